"""Histories in warehouses by the commands, across the end of every process of the application."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import deltalake
import psycopg
import pytest

from cdc.record.position import Lsn, Position
from tests.e2e.test_spark_lakes import killed_whole
from tests.integration.cli.pipeline import Pipeline
from tests.programs import RunCdc, Spawn
from tests.waiting import wait_until

pytestmark = pytest.mark.long
START_S = 200.0


@pytest.fixture
def pipeline(database: str, kafka: str, topic_prefix: str, tmp_path: Path, run_cdc: RunCdc) -> Pipeline:
    document = {
        "name": topic_prefix,
        "source": {"dsn": database, "tables": ["public.orders"]},
        "log": {"bootstrap_servers": kafka, "partitions": 2},
        "capture": {"http_address": ""},
        "history": {"tables": ["public.orders"]},
        "sinks": {
            "lake": {"kind": "delta", "path": str(tmp_path / "lake"), "history": ["public.*"]},
            "reports": {"kind": "sql", "url": f"sqlite:///{tmp_path}/reports.db", "history": ["public.orders"]},
        },
        "spark": {"checkpoint": str(tmp_path / "checkpoints"), "http_address": ""},
    }
    made = Pipeline(tmp_path, run_cdc, document)
    made.sql(
        "create table orders (id int primary key, n int)",
        "insert into orders select i, 0 from generate_series(1, 20) i",
    )
    return made


def state(pipeline: Pipeline) -> tuple[str, dict[int, int]]:
    """The first position that the table as it is now does not have, and the table."""
    with psycopg.connect(pipeline.dsn) as connection, connection.transaction():
        rows: dict[int, int] = dict(connection.execute("select id, n from orders").fetchall())
        [lsn] = connection.execute("select pg_current_wal_insert_lsn()").fetchone() or [""]
    return Position(1, Lsn.parse(lsn), 0).text(), rows


def fold(pipeline: Pipeline, at: str) -> dict[int, int]:
    with sqlite3.connect(pipeline.folder / "reports.db") as reports:
        found = reports.execute(
            "select id, n from public_orders__scd2 where _from <= ? and (_to is null or _to > ?)", (at, at)
        )
        return dict(found.fetchall())


def kept(pipeline: Pipeline) -> list[tuple[Any, ...]]:
    """Both stores' rows, which are the same."""
    columns = ["_key", "_op", "_xid", "id", "n"]
    table = deltalake.DeltaTable(str(pipeline.folder / "lake" / "public" / "orders__history"))
    rows = table.scan(columns=columns).read_all().to_struct_array().to_pylist()
    lake = sorted(tuple(row[name] for name in columns) for row in rows if row["_op"] is not None)
    with sqlite3.connect(pipeline.folder / "reports.db") as reports:
        sql = f"select {', '.join(columns)} from public_orders__history where _op is not null order by _key"
        assert reports.execute(sql).fetchall() == lake
    return lake


def test_e6_killed_and_started_again_it_folds_to_the_table(pipeline: Pipeline, spawn: Spawn) -> None:
    for command in ("init", "snapshot"):
        pipeline.good(command)
    running = spawn("cdc", "--config", pipeline.config, "run")
    sink = spawn("cdc", "--config", pipeline.config, "sink")
    pipeline.sql(
        "update orders set n = n + 1", "delete from orders where id = 3", "update orders set id = 33 where id = 4"
    )
    first = state(pipeline)
    path = pipeline.folder / "lake" / "public" / "orders__history"
    wait_until(lambda: deltalake.DeltaTable.is_deltatable(str(path)), START_S, lambda: sink.stderr[-2000:])
    killed_whole(sink)
    pipeline.sql(
        "update orders set n = n + 1 where id < 9", "truncate orders", "insert into orders values (7, 70), (8, 80)"
    )
    last = state(pipeline)
    pipeline.sql("insert into orders values (9, 90)")
    done = pipeline.cdc("sink", "--until-caught-up", timeout_s=START_S)
    assert done.returncode == 0, done.stderr
    assert running.process.poll() is None, running.stderr
    rows = kept(pipeline)
    assert [row[1] for row in rows].count("r") == 20
    assert [row[1] for row in rows].count("u") == 20 + 6
    for at, table in (first, last):
        assert fold(pipeline, at) == table
    assert "[sinks.lake] history" not in pipeline.good("check")
