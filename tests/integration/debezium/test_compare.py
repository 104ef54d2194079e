"""``cdc connect compare`` on a real Kafka Connect: golden scripts, TPC-B under load, a difference on purpose."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest

from cdc.stack.postgres import install_folder
from connectors.kafka.admin import TopicAdmin
from tests.e2e.test_pgbench import libpq, pgbench
from tests.golden.left_out import REFUSED_TABLES
from tests.golden.records import CASES
from tests.integration.debezium.conftest import Pipeline
from tests.programs import RunCdc

SCRIPTS = (
    "sh_operations",
    "sh_keys",
    "sh_transactions",
    "sh_numeric",
    "sh_text",
    "sh_datetime",
    "sh_datetime_special",
    "sh_arrays",
    "sh_defaults_generated",
    "sh_float_money",
    "sh_toast",
    "sh_partitions_root",
    "sh_truncate_emitted",
    "sh_uuid_json_interval",
    "sh_enum_domain",
    "sh_identifiers",
)
COMPARE_S = 240.0


def psql(dsn: str) -> list[str]:
    return [str(install_folder() / "bin" / "psql"), dsn, "-X", "-q", "-v", "ON_ERROR_STOP=1"]


def compared(
    run_cdc: RunCdc, settings: Path, *arguments: str, code: int = 0, env: Mapping[str, str] | None = None
) -> Any:
    done = run_cdc("--config", settings, "connect", "compare", "--json", *arguments, timeout_s=COMPARE_S, env=env)
    assert done.stdout, done.stderr
    found = orjson.loads(done.stdout)
    assert done.returncode == code, "\n".join(words for table in found["tables"] for words in table["first"])
    return found


def nothing_is_left(pipeline: Pipeline) -> None:
    settings = pipeline.settings()
    assert [t for t in TopicAdmin(settings.log).names() if t.startswith(f"{settings.name}-")] == []
    left = pipeline.session.execute(
        "select slot_name::text from pg_replication_slots where database = current_database()"
        " union all select pubname::text from pg_publication"
    ).fetchall()
    assert left == []


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["readable", pytest.param("debezium", marks=pytest.mark.long)])
def test_golden_scripts_differ_only_as_the_manual_explains(
    pipeline: Pipeline,
    database: str,
    run_cdc: RunCdc,
    tmp_path: Path,
    encoding: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    changes = []
    for case in SCRIPTS:
        for file in ("schema.sql", "seed.sql"):
            subprocess.run([*psql(database), "-f", str(CASES / case / file)], check=True, capture_output=True)
        changes += ["-f", str(CASES / case / "changes.sql")]
    pipeline.document["source"] |= {"tables": [f"{case}.*" for case in SCRIPTS], "exclude": sorted(REFUSED_TABLES)}
    pipeline.document["log"]["encoding"] = encoding
    found = compared(run_cdc, pipeline.toml(tmp_path), "--snapshot", "--", *psql(database), *changes)
    assert found["unexplained"] == 0
    assert found["records"] > 200
    assert {"D13", "D14", "D15", "D23"} <= set(found["rules"])
    # Most records of ordinary types are equal in all but headers and our own fields.
    equal = sum(table["equal"] for table in found["tables"])
    assert equal > found["records"] / 2
    with capsys.disabled():
        rules = ", ".join(f"{name} {rule['differences']}" for name, rule in found["rules"].items())
        print(f"\n[{encoding}: {found['records']} records, {equal} equal; {rules}]")
    nothing_is_left(pipeline)


@pytest.mark.long
@pytest.mark.slow
def test_tpcb_under_load_says_the_same_record_by_record(
    pipeline: Pipeline, database: str, run_cdc: RunCdc, tmp_path: Path
) -> None:
    subprocess.run(pgbench(database, "-i", "-q", "-s", "1"), env=libpq(database), check=True, capture_output=True)
    pipeline.run("alter table pgbench_history add column id bigint generated always as identity primary key")
    pipeline.document["source"]["tables"] = ["public.pgbench_*"]
    load = pgbench(database, "-n", "-c", "4", "-j", "2", "-t", "250")
    found = compared(run_cdc, pipeline.toml(tmp_path), "--", *load, env=libpq(database))
    assert found["unexplained"] == 0
    assert {t["table"]: (t["debezium_records"], t["native_records"]) for t in found["tables"]} == {
        f"public.pgbench_{name}": (1000, 1000) for name in ("accounts", "branches", "history", "tellers")
    }
    assert set(found["rules"]) <= {"D14", "D15"}
    assert all(table["equal"] == 1000 for table in found["tables"])
    nothing_is_left(pipeline)


ARRAYS = {
    "int[]": ("{1,NULL,3}", "{{1,2},{3,4}}"),
    "text[]": ("{a,NULL,b}", "{{a,b},{c,d}}"),
    "numeric[]": ("{NaN,1,NULL,Infinity}", "{{1.5},{NULL}}"),
    "float8[]": ("{1.5,NULL,NaN,-0,Infinity}", "{{1.5,2},{3,4}}"),
    "uuid[]": ("{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11,NULL}", "{{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}}"),
    "date[]": ("{2016-11-04,NULL,infinity}", "{{2016-11-04},{2016-11-05}}"),
    "timestamptz[]": ("{2016-11-04 13:51:30.123456+02,NULL,-infinity}", "{{2016-11-04 13:51:30+02}}"),
    "time[]": ("{13:51:30.123456,NULL,24:00}", "{{13:51:30.123456},{13:51}}"),
    "money[]": ("{1.23,NULL}", "{{1.23}}"),
    "mood[]": ("{sad,NULL}", "{{ok}}"),
    "point[]": ('{"(1,2)",NULL}', '{{"(1,2)"}}'),
    "jsonb[]": ('{"{\\"a\\": 1}",NULL}', '{{"[1]"}}'),
}


@pytest.mark.parametrize("encoding", ["readable", "debezium"])
def test_h180_arrays_that_debezium_gets_wrong_are_the_sources(
    pipeline: Pipeline, database: str, run_cdc: RunCdc, tmp_path: Path, encoding: str
) -> None:
    """Whole ones, some dimensions and some elements are lost there: the source's rows say that ours are right."""
    columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate(ARRAYS))
    pipeline.run("create type mood as enum ('sad', 'ok')", f"create table arr (id int primary key, {columns})")
    pipeline.document["source"]["tables"] = ["public.arr"]
    pipeline.document["log"]["encoding"] = encoding
    rows = (f"({at}, {', '.join(f'$${v[at]}$$' for v in ARRAYS.values())})" for at in range(2))
    found = compared(
        run_cdc, pipeline.toml(tmp_path), "--", *psql(database), "-c", f"insert into arr values {', '.join(rows)}"
    )
    assert (found["unexplained"], found["undecided"], found["records"]) == (0, 0, 2)
    assert {"D2", "D7"} < found["rules"].keys()


def test_a_difference_that_no_rule_explains_ends_with_1(
    pipeline: Pipeline, database: str, run_cdc: RunCdc, tmp_path: Path
) -> None:
    pipeline.run("insert into a select i, 's' || i, i from generate_series(1, 3) i")
    pipeline.document["debezium"]["options"]["column.mask.with.3.chars"] = "public.a.v"
    statements = "update a set v = 'changed' where id = 1; update b set v = v"
    found = compared(run_cdc, pipeline.toml(tmp_path), "--", *psql(database), "-c", statements, code=1)
    (table,) = (table for table in found["tables"] if table["table"] == "public.a")
    assert table["unexplained"] == 1
    assert 'value.after.v: Debezium "***" | ours "changed"' in table["first"][0]
    assert (table["debezium_records"], table["native_records"]) == (1, 1)
    nothing_is_left(pipeline)


def test_a_comparison_of_nothing_proves_nothing(
    pipeline: Pipeline, database: str, run_cdc: RunCdc, tmp_path: Path
) -> None:
    done = run_cdc("--config", pipeline.toml(tmp_path), "connect", "compare", "--for", "0", timeout_s=COMPARE_S)
    assert done.returncode == 1, done.stderr
    assert "nothing was compared" in done.stderr
    with psycopg.connect(database) as session:
        assert session.execute(
            "select count(*) from pg_replication_slots where database = current_database()"
        ).fetchone() == (0,)
