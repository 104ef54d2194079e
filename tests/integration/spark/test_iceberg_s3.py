"""An Iceberg warehouse in S3, fed by ``cdc sink`` as a user starts it: its jar is fetched, its key shows nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc.process.errors import Exit, SinkError
from sinks.contract.stores import open_store, spec_of
from sinks.iceberg.iceberg_catalog import probe_iceberg
from tests.integration.cli.pipeline import assert_refused
from tests.integration.spark.handmade import HandMadeLog
from tests.lakes import foreign_table, lake_catalog
from tests.object_store import REGION, Login, ObjectStore, object_store
from tests.programs import RunCdc

pytestmark = pytest.mark.long

BUCKET = "shop-lake"
ALL = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
START_S = 400.0


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with object_store(tmp_path_factory.mktemp("s3")) as made:
        made.make(BUCKET)
        yield made


@pytest.fixture(scope="module")
def login(store: ObjectStore) -> Login:
    return store.user("lake", ALL)


def test_h376_a_warehouse_in_s3_is_fed_by_the_command(
    pipeline: HandMadeLog, store: ObjectStore, login: Login, database: str, tmp_path: Path, run_cdc: RunCdc
) -> None:
    catalog = lake_catalog(database)
    for name, text in {"password": catalog.secrets["password"], "key": login.secret}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    sink = {
        "kind": "iceberg",
        **catalog.options,
        "password": f"file:{tmp_path}/password",
        "path": f"s3://{BUCKET}/lake",
        "catalog_options": {"s3.endpoint": store.url, "client.region": REGION, "s3.access-key-id": login.key},
        "catalog_secrets": {"s3.secret-access-key": f"file:{tmp_path}/key"},
    }
    config, checkpoints = tmp_path / "cdc.toml", tmp_path / "checkpoints"
    config.write_text(pipeline.toml({"lake": sink}, checkpoint=str(checkpoints)), encoding="utf-8")
    settings = pipeline.settings({"lake": sink})
    said = ""
    for status in ("first", "second"):
        pipeline.put([{"id": number, "status": status, "total": "1.00"} for number in range(20)])
        pipeline.put([{"id": 3}])
        pipeline.progress()
        done = run_cdc("--config", config, "-v", "sink", "--until-caught-up", timeout_s=START_S, env={}, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        said += done.stdout + done.stderr
        opened = open_store("lake", settings)
        assert pipeline.shown(opened) == pipeline.rows["orders"]
        opened.close()
    with foreign_table(spec_of("lake", settings)) as table:
        assert table.location().startswith(f"s3://{BUCKET}/lake/")
        assert {str(one.summary.operation.value) for one in table.snapshots() if one.summary} >= {"append", "overwrite"}
    said += "".join(path.read_text(encoding="utf-8", errors="replace") for path in checkpoints.rglob("*.log"))
    assert login.secret not in said
    assert catalog.secrets["password"] not in said

    (tmp_path / "key").write_text("kein-wort-davon", encoding="utf-8")
    pipeline.put([{"id": 1, "status": "third", "total": "1.00"}])
    pipeline.progress()
    with pytest.raises(SinkError, match="refuses the key"):
        probe_iceberg(spec_of("lake", pipeline.settings({"lake": sink})))
    done = run_cdc("--config", config, "sink", "--until-caught-up", timeout_s=START_S, env={}, cwd=tmp_path)
    assert_refused(done, Exit.CONFIG, "refuses the key")
    assert "kein-wort-davon" not in done.stdout + done.stderr
