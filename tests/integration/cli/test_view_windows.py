"""Windows that close, on real servers: last figures in a store, late rows in their topic, and what commands say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from cdc.errors import Exit
from cdc.settings import LogSettings
from connectors.kafka.compacted import KafkaCompactedTopic
from tests.integration.cli.pipeline import Pipeline, assert_refused
from tests.programs import RunCdc, Spawn
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
SQL = """select date_bin('1 day', o.placed_at, '2000-01-01') as day, count(*) as orders, sum(o.amount) as total,
 false as final from orders o group by 1"""
OLD, OPEN = "2020-01-01T00:00:00Z", "2990-01-01T00:00:00Z"


@pytest.fixture
def pipeline(database: str, kafka: str, topic_prefix: str, tmp_path: Path, run_cdc: RunCdc) -> Pipeline:
    (tmp_path / "days.sql").write_text(SQL, encoding="utf-8")
    document = {
        "name": topic_prefix,
        "source": {"dsn": database, "tables": ["public.*"]},
        "log": {"bootstrap_servers": kafka, "partitions": 2},
        "capture": {"http_address": ""},
        "spark": {"checkpoint": str(tmp_path / "checkpoints"), "http_address": ""},
        "sinks": {"reports": {"kind": "sql", "url": f"sqlite:///{tmp_path}/reports.db", "tables": ["view.*"]}},
        "views": {"days": {"sql": str(tmp_path / "days.sql"), "state": str(tmp_path / "state"), "close": "7d"}},
    }
    made = Pipeline(tmp_path, run_cdc, document)
    made.sql(
        "create table orders (id int primary key, placed_at timestamp, amount numeric(8, 2))",
        "insert into orders select g, '2020-01-01 10:00', 1.5 from generate_series(1, 4) g",
    )
    return made


def _of_view(pipeline: Pipeline) -> dict[str, Any]:
    return dict(orjson.loads(pipeline.cdc("status", "--json").stdout)["views"]["days"])


def _differences(pipeline: Pipeline) -> int:
    """Keys in which the store differs, closed windows left out."""
    compared = pipeline.cdc("verify", "reports", "--json", "--timeout", "240", timeout_s=400)
    assert compared.returncode == 0, compared.stderr + compared.stdout
    return int(orjson.loads(compared.stdout)["differences"])


def test_v19_closed_windows_and_late_rows_on_servers(pipeline: Pipeline, spawn: Spawn, kafka: str) -> None:
    pipeline.good("init")
    pipeline.good("snapshot")
    capture = spawn("cdc", "--config", pipeline.config, "run")
    runner = spawn("cdc", "--config", pipeline.config, "view", "run")
    pipeline.sql("insert into orders values (5, '2990-01-01 10:00', 7)")
    closed = wait_until(lambda: _of_view(pipeline)["closed"], 60, lambda: runner.stderr[-2000:])
    assert closed.startswith("20")
    # A row that comes too late, one that changes, and one that goes.
    pipeline.sql(
        "insert into orders values (6, '2020-01-01 11:00', 9)",
        "update orders set amount = 2 where id = 1",
        "delete from orders where id = 2",
        "insert into orders values (7, '2990-01-01 11:00', 1)",
    )
    wait_until(lambda: _of_view(pipeline)["late"] == 2 and _of_view(pipeline)["left"] == 1, 60)
    assert "late" in pipeline.cdc("status").stdout
    sink = spawn("cdc", "--config", pipeline.config, "sink", "reports")
    assert _differences(pipeline) == 0
    shown = orjson.loads(pipeline.good("view", "show", "days", OLD))
    assert (shown["orders"], shown["total"], shown["final"]) == (4, "6.00", True)
    topic = f"{pipeline.document['name']}.view.days.late"
    late = KafkaCompactedTopic(LogSettings(bootstrap_servers=kafka), topic).read()
    found = {one["row"]["id"]: one for one in map(orjson.loads, late.values())}
    assert {key: (one["op"], one["window"]["day"]) for key, one in found.items()} == {
        6: ("c", OLD),
        1: ("u", OLD),
        2: ("d", OLD),
    }
    assert found[6]["after"] == {"id": 6, "placed_at": "2020-01-01T11:00:00Z", "amount": "9.00"}
    assert runner.terminate() == 0, runner.stderr

    # What the state knew, the topic knows.
    pipeline.good("view", "rebuild", "days")
    pipeline.sql("delete from orders where placed_at < '2021-01-01'", "insert into orders values (8, now(), 1)")
    runner = spawn("cdc", "--config", pipeline.config, "view", "run")
    assert _differences(pipeline) == 0
    assert sink.terminate() == 0, sink.stderr
    assert runner.terminate() == 0, runner.stderr
    shown = orjson.loads(pipeline.good("view", "show", "days", OLD))
    assert (shown["orders"], shown["final"]) == (4, True)
    assert orjson.loads(pipeline.good("view", "show", "days", OPEN))["final"] is False

    # A view that closed windows goes on with its close alone.
    pipeline.document["views"]["days"]["close"] = "0s"
    assert_refused(pipeline.cdc("view", "run"), Exit.CONFIG, "are closed, and it has no close any more")
    pipeline.document["views"]["days"] |= {"close": "7d", "window": "orders"}
    assert_refused(pipeline.cdc("view", "check"), Exit.CONFIG, "orders is no date or timestamp in the view's key")
    assert topic in pipeline.cdc("view", "drop", "days", "--yes").stderr
    assert capture.terminate() == 0, capture.stderr
