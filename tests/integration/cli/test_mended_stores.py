"""``cdc verify --repair`` on each real store without a sink beside it: a short form of ``e2e/test_repair.py``."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest

from cdc.process.crash_points import CRASH_EXIT
from cdc.process.errors import Exit
from cdc.record.position import Position
from cdc.record.progress import Watermark
from cdc.record.topic_names import TableName, schema_topic
from cdc.settings.model import load
from cdc.verification.ports import RepairRow
from connectors.kafka.compacted_topic import KafkaCompactedTopic
from connectors.kafka.schema_registry import SchemaRegistry
from connectors.operate.verify import StoreRepair
from sinks.contract.stores import open_store
from tests.e2e.test_repair import damage
from tests.integration.cli.pipeline import Pipeline, assert_refused

pytestmark = pytest.mark.slow
ROWS = 20
DAMAGED = {"missing": 12, "stale": 12, "extra": 12, "ahead": 12}
"""Three rows of each kind in each of four stores."""
POINTS = ("repair_cut", "mend_removed", "repair_cleared", "mend_applied", "repair_written", "repair_finished")
"""In the order in which a repair passes them."""


@pytest.fixture
def shop(pipeline: Pipeline, redis_url: str, opensearch: str, index_prefix: str, tmp_path: Path) -> Pipeline:
    """Stores that claim all that the source has written so far, and more, and hold one row of it."""
    pipeline.document["sinks"] = {
        "cache": {"kind": "redis", "url": redis_url},
        "search": {"kind": "opensearch", "url": opensearch, "prefix": index_prefix},
        "warehouse": {"kind": "delta", "path": str(tmp_path / "warehouse")},
        "reports": {"kind": "sql", "url": f"sqlite:///{tmp_path}/reports.db"},
    }
    pipeline.sql(f"insert into orders select i, 'open' from generate_series(1, {ROWS}) i")
    pipeline.begin()
    with psycopg.connect(pipeline.dsn) as session:
        row = session.execute("select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::int8").fetchone()
    assert row is not None
    settings = load(pipeline.config)
    registry = SchemaRegistry(KafkaCompactedTopic(settings.log, schema_topic(settings.name)))
    shape = registry.latest(TableName("public", "orders"))
    assert shape is not None
    for sink in settings.sinks:
        with closing(open_store(sink, settings)) as store:
            one = RepairRow(b'{"id":1}', b'{"id":1,"status":"open"}')
            assert StoreRepair(store).put(shape, Position(1, row[0], 1).text(), [one]) == []
            store.watermarks.write(Watermark(epoch=1, lsn=row[0] + (1 << 30)))
    return pipeline


def repaired(shop: Pipeline) -> dict[str, Any]:
    done = shop.cdc("verify", "--repair", "--json", "--timeout", "300", timeout_s=200)
    assert done.returncode == Exit.OK, done.stderr + done.stdout
    report: dict[str, Any] = orjson.loads(done.stdout)
    assert (report["differences"], report["undecided"]) == (0, 0)
    assert all(one["refused"] == one["unread"] == [] for one in report["repaired"])
    return report


def test_h93_h101_each_store_is_mended_and_equal(shop: Pipeline) -> None:
    filled = repaired(shop)
    assert {one["sink"] for one in filled["repaired"]} == set(shop.document["sinks"]), "what is missing is written"
    assert shop.cdc("verify", "--timeout", "300").returncode == Exit.OK
    damage(shop)
    unequal = shop.cdc("verify", "--timeout", "300")
    assert_refused(unequal, Exit.DIFFERENCE, "--repair")
    assert all(f" {count} {kind}" in unequal.stderr for kind, count in DAMAGED.items()), unequal.stderr
    report = repaired(shop)
    assert all(one["deleted"] >= 3 for one in report["repaired"]), report
    assert shop.cdc("verify", "--timeout", "300").returncode == Exit.OK


def test_h93_h101_a_repair_killed_at_each_step_is_repeated(shop: Pipeline) -> None:
    repaired(shop)
    damage(shop)
    for point in POINTS:
        killed = shop.cdc("verify", "--repair", "--timeout", "300", timeout_s=200, CDC_CRASH_AT=point)
        assert killed.returncode == CRASH_EXIT, f"{point}: {killed.stderr}{killed.stdout}"
    repaired(shop)
    equal = shop.cdc("verify", "--timeout", "300")
    assert equal.returncode == Exit.OK, equal.stderr + equal.stdout
