"""A real server's stream through the assembler: what the records leave is what the tables hold."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Any

import psycopg
import pytest
from confluent_kafka import murmur2

from cdc.record.ports import Record
from cdc.settings.mask_rules import NO_MASKS
from connectors.postgres.assembly.assembler import Assembler, AssemblerPorts, Limits, Pipeline
from connectors.postgres.server.catalog_shapes import resolve_tables
from connectors.postgres.server.connections import connect
from tests.golden.direct import Rereads, Shapes, make_slot, publish, settings_of, start, until_mark

TABLES = """
create schema s;
create table s.shifted (id int primary key deferrable initially deferred, note text);
alter table s.shifted replica identity full;
create table s.docs (id int primary key, doc text, n int);
alter table s.docs alter doc set storage external;
create table s.tree (id int, region text, v text, primary key (id, region)) partition by list (region);
create table s.tree_eu partition of s.tree for values in ('eu');
create table s.tree_us partition of s.tree for values in ('us');
"""
CHANGES = {
    "key shift and swap": [
        "insert into s.shifted select g, 'n' || g from generate_series(1, 500) g",
        "update s.shifted set id = id + 1",
        "update s.shifted set id = case id when 2 then 3 else 2 end where id in (2, 3)",
        "update s.shifted set id = 1000 - id",
        "begin; insert into s.shifted values (7, 'again'); delete from s.shifted where note = 'n490'; commit",
        "begin; update s.shifted set id = id + 1; update s.shifted set id = id - 1; commit",
    ],
    "values left out": [
        "insert into s.docs select g, repeat('x', 3000) || g, 0 from generate_series(1, 20) g",
        "update s.docs set n = 1",
        "update s.docs set id = id + 100",
        "begin; insert into s.docs values (1, repeat('y', 3000), 0); update s.docs set n = 2 where id = 1; commit",
        "begin; update s.docs set n = 3; delete from s.docs where id > 110; commit",
    ],
    "partitions": [
        "insert into s.tree values (1, 'eu', 'a'), (2, 'us', 'b'), (3, 'eu', 'c')",
        "update s.tree set region = 'us' where id = 1",
        "update s.tree set v = 'z'",
        "delete from s.tree where id = 2",
    ],
    "truncates": [
        "insert into s.docs values (500, 'a', 1)",
        "begin; truncate s.docs, s.shifted; insert into s.docs values (501, 'b', 2); commit",
        "begin; insert into s.shifted values (1, 'a'); truncate s.tree; insert into s.shifted values (2, 'b'); commit",
    ],
}


def left(records: Sequence[Record], lane: int) -> dict[str, Any]:
    """Rows of a topic after its records, in the order of the topic."""
    rows: dict[str, Any] = {}
    for _, key, value, headers in (record for record in records if record[0] == lane):
        if dict(headers)["op"] == b"t":
            rows.clear()
        elif value is None or json.loads(value)["after"] is None:
            rows.pop(key.decode(), None)
        else:
            rows[key.decode()] = json.loads(value)["after"]
    return rows


def in_order(rows: Iterable[Any]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


@pytest.mark.parametrize("netted_bytes", [32 << 20, 5_000], ids=["in memory", "spilled"])
def test_h38_h41_h44_h45_h78_the_records_leave_the_tables_rows(database: str, netted_bytes: int) -> None:
    settings = settings_of("s", database, "readable")
    with psycopg.connect(database, autocommit=True) as owner, closing(connect(settings.source)) as conn:
        owner.execute(TABLES)
        tables = resolve_tables(conn, settings)
        assert [table.problems for table in tables] == [()] * 3
        publish(conn, settings.publication, tables)
        shapes = Shapes(conn, settings.publication, tables, "readable")
        records: list[Record] = []
        assembler = Assembler(
            Pipeline(name="s", database="s", epoch=1),
            AssemblerPorts(
                schemas=shapes,
                lanes=shapes.lanes,
                partition=murmur2,
                reselect=Rereads(conn),
                overflow=records.extend,
                masks=NO_MASKS,
            ),
            limits=Limits(netted_bytes=netted_bytes),
        )
        with closing(connect(settings.source, replication=True)) as stream:
            make_slot(stream, settings.slot)
            start(stream, settings.slot, settings.publication)
            for statements in CHANGES.values():
                for statement in statements:
                    owner.execute(statement)
                owner.execute("select pg_logical_emit_message(false, 'golden-end', '')")
                records += assembler.feed(list(until_mark(stream)), 1).records
                for table in tables:
                    name = table.table.table
                    held = owner.execute(f"select row_to_json(t)::text from s.{name} t").fetchall()
                    lane = shapes.topics.get(table.topic, -1)
                    assert in_order(left(records, lane).values()) == in_order(json.loads(text) for (text,) in held)
        positions = [dict(headers)["pos"] for _, _, _, headers in records]
        assert positions == sorted(positions)
