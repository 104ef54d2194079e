"""Keys of every kind through capture into the stores: each row there, each delete its own, compared and repaired."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

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
from tests.contract.conftest import postgres_url
from tests.fresh import fresh_name
from tests.integration.cli.pipeline import Pipeline, assert_refused
from tests.programs import Spawn, Spawned
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
KEYS = {
    "bits": ("bit varying", ("", "0", "00", "000", "01")),
    "few_bits": ("bit varying(1)", ("", "0", "1")),
    "clocks": ("timetz", ("10:00+02", "08:00+00", "09:00+01")),
    "lists": ("int[]", ("{1,2}", "[0:1]={1,2}", "{{1,2}}", "{}")),
    "spans": ("interval", ("1 mon", "30 days 10:30", "31 days")),
    "pairs": ("pair", ("(,)", "(0,a)", "(00,a)")),
    "domains": ("bits_domain", ("", "0", "00")),
    "decimals": ("numeric", ("NaN", "Infinity", "-Infinity", "1.0")),
    "texts": ("text", ("", " ", "a:b", "%empty", "%", "x" * 3000, "x" * 3000 + "y")),
    "bytes": ("bytea", ("", r"\x00", r"\x0000")),
}
"""Table -> the type of its key, and keys that Postgres's index holds for different."""
RANDOM = (
    "insert into bytes select decode(string_agg(md5(i::text || '{0}'), ''), 'hex') from generate_series(1, 160) i "
    "on conflict do nothing"
)
"""A key of 2,560 bytes that no compression makes shorter. No btree of Postgres takes its base64."""


@pytest.fixture
def keyed(pipeline: Pipeline, redis_url: str, opensearch: str, index_prefix: str, tmp_path: Path) -> Pipeline:
    url = postgres_url(conninfo_to_dict(pipeline.dsn))
    pipeline.document["sinks"] = {
        "cache": {"kind": "redis", "url": redis_url},
        "search": {"kind": "opensearch", "url": opensearch, "prefix": index_prefix},
        "lake": {"kind": "delta", "path": str(tmp_path / "lake")},
        "reports": {"kind": "sql", "url": url, "db_schema": fresh_name()},
    }
    pipeline.document["source"]["tables"] = ["public.*"]
    pipeline.sql(
        "drop table orders", "create type pair as (a bit varying, b text)", "create domain bits_domain as varbit"
    )
    for table, (kind, _) in KEYS.items():
        pipeline.sql(f"create table {table} (k {kind} primary key, v int)")
    pipeline.sql("alter table bytes alter k set storage external")
    return pipeline


def insert(pipeline: Pipeline) -> int:
    """A row of each key. How many there are."""
    with psycopg.connect(pipeline.dsn, autocommit=True) as session:
        for table, (kind, values) in KEYS.items():
            for value in values:
                session.execute(
                    f"insert into {table} values (%s::{kind}, 1) on conflict (k) do update set v = 2", [value]
                )
        session.execute(RANDOM.format("a"))
        session.execute(RANDOM.format("b"))
    return sum(len(values) for _, values in KEYS.values()) + 2


def verified(pipeline: Pipeline, *more: str) -> dict[str, Any]:
    done = pipeline.cdc("verify", "--json", "--timeout", "300", *more, timeout_s=240)
    assert done.stdout.startswith("{"), done.stderr
    found: dict[str, Any] = orjson.loads(done.stdout)
    return found | {"exit": done.returncode}


def rows(found: dict[str, Any], side: str) -> dict[str, int]:
    """By sink."""
    counts: dict[str, int] = {}
    for one in found["tables"]:
        counts[one["sink"]] = counts.get(one["sink"], 0) + one[side]
    return counts


@pytest.mark.long
def test_w1_w4_w5_w8_each_key_is_a_row_of_its_own(keyed: Pipeline, spawn: Spawn) -> None:
    stores = keyed.document["sinks"]
    count = insert(keyed)
    keyed.begin()
    capture = spawn("cdc", "--config", keyed.config, "run")
    sink = spawn("cdc", "--config", keyed.config, "sink")
    wait_until(lambda: sink.stderr.count('"sink_started"') == len(stores), 240, lambda: sink.stderr[-3000:])
    assert_equal(keyed, sink, count)
    # A delete of one key leaves the others.
    with psycopg.connect(keyed.dsn, autocommit=True) as session:
        for table, (kind, values) in KEYS.items():
            session.execute(f"delete from {table} where k = %s::{kind}", [values[0]])
        session.execute("delete from bytes where k = (select max(k) from bytes)")
    assert_equal(keyed, sink, count - len(KEYS) - 1)
    assert_equal(keyed, sink, insert(keyed))
    assert keyed.good("dead", "list").strip() in ("", "no dead letters")
    assert sink.terminate() == 0, sink.stderr
    assert capture.terminate() == 0, capture.stderr


def assert_equal(keyed: Pipeline, sink: Spawned, count: int) -> None:
    found = verified(keyed)
    assert found["exit"] == Exit.OK, (found, sink.stderr[-3000:])
    expected = dict.fromkeys(keyed.document["sinks"], count)
    assert rows(found, "source_rows") == rows(found, "store_rows") == expected


@pytest.fixture
def twice(pipeline: Pipeline, redis_url: str, tmp_path: Path) -> Pipeline:
    """A table with two rows of one key, as an index of another collation leaves them, and stores that hold one."""
    pipeline.document["sinks"] = {
        "cache": {"kind": "redis", "url": redis_url},
        "reports": {"kind": "sql", "url": f"sqlite:///{tmp_path}/reports.db"},
    }
    pipeline.begin()
    with psycopg.connect(pipeline.dsn, autocommit=True) as session:
        ready = "update pg_index set indisready = %s where indexrelid = 'orders_pkey'::regclass"
        session.execute(ready, [False])
        session.execute("insert into orders values (42, 'twice')")
        session.execute(ready, [True])
        row = session.execute("select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::int8").fetchone()
    assert row is not None
    settings = load(pipeline.config)
    shape = SchemaRegistry(KafkaCompactedTopic(settings.log, schema_topic(settings.name))).latest(
        TableName("public", "orders")
    )
    assert shape is not None
    for sink in settings.sinks:
        with closing(open_store(sink, settings)) as store:
            rows = [RepairRow(b'{"id":%d}' % n, b'{"id":%d,"status":"open"}' % n) for n in (42, 43)]
            assert StoreRepair(store).put(shape, Position(1, row[0], 1).text(), rows) == []
            store.watermarks.write(Watermark(epoch=1, lsn=row[0] + (1 << 30)))
    return pipeline


def test_w1_two_rows_of_one_key_are_named_and_not_mended(twice: Pipeline) -> None:
    done = twice.cdc("verify", "--timeout", "300")
    assert_refused(done, Exit.DIFFERENCE, "2 shared", "--repair")
    assert "shared in cache: public.orders 42\n" in done.stdout
    mended = verified(twice, "--repair")
    assert mended["exit"] == Exit.DIFFERENCE
    assert rows(mended, "source_rows") == {"cache": 2, "reports": 2}
    assert rows(mended, "shared") == rows(mended, "store_rows") == {"cache": 1, "reports": 1}, "43 is gone, 42 is not"
    assert [(one["written"], one["deleted"]) for one in mended["repaired"]] == [(0, 1), (0, 1)]
    assert_refused(twice.cdc("verify", "--timeout", "300"), Exit.DIFFERENCE, "2 shared", "reindex")
