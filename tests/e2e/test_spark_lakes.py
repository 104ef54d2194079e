"""Warehouses that Spark writes, through all commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cdc.errors import Exit
from tests.integration.cli.pipeline import Pipeline
from tests.programs import RunCdc, Spawn
from tests.waiting import wait_until

ROWS = 40
START_S = 400.0


@pytest.fixture
def pipeline(
    database: str, kafka: str, topic_prefix: str, tmp_path: Path, run_cdc: RunCdc, sink: dict[str, Any]
) -> Pipeline:
    document = {
        "name": topic_prefix,
        "source": {"dsn": database, "tables": ["public.orders"]},
        "log": {"bootstrap_servers": kafka, "partitions": 2},
        "capture": {"http_address": ""},
        "sinks": {"lake": sink},
        "spark": {"checkpoint": str(tmp_path / "checkpoints"), "http_address": ""},
    }
    made = Pipeline(tmp_path, run_cdc, document)
    made.sql(
        "create table orders (id int primary key, status text)",
        f"insert into orders select i, 'open' from generate_series(1, {ROWS}) i",
    )
    return made


@pytest.fixture
def sink(tmp_path: Path) -> dict[str, Any]:
    return {"kind": "delta", "engine": "spark", "path": str(tmp_path / "lake")}


@pytest.mark.slow
def test_a_delta_warehouse_of_spark_goes_through_commands(pipeline: Pipeline, spawn: Spawn, tmp_path: Path) -> None:
    import deltalake  # noqa: PLC0415

    def stored() -> dict[str, str | None]:
        folder = str(tmp_path / "lake" / "public" / "orders")
        if not deltalake.DeltaTable.is_deltatable(folder):
            return {}
        found = deltalake.DeltaTable(folder).scan(columns=["_key", "status", "_deleted"]).read_all().to_struct_array()
        return {row["_key"]: None if row["_deleted"] else row["status"] for row in found.to_pylist()}

    walk(pipeline, spawn, stored)
    operations = [one["operation"] for one in deltalake.DeltaTable(str(tmp_path / "lake/public/orders")).history()]
    assert "MERGE" in operations
    pipeline.document["sinks"]["lake"]["engine"] = "embedded"
    refused = pipeline.cdc("sink", "--until-caught-up", timeout_s=START_S)
    assert refused.returncode == Exit.CONFIG
    assert 'is written by engine = "spark", and the settings name "embedded"' in refused.stderr


def walk(pipeline: Pipeline, spawn: Spawn, stored: Any) -> None:
    """Snapshot, changes, verify, repair, rebuild, and changes again."""
    pipeline.good("init")
    pipeline.good("snapshot")
    spawn("cdc", "--config", pipeline.config, "run")
    sink = spawn("cdc", "--config", pipeline.config, "sink")
    wait_until(lambda: len(stored()) == ROWS, START_S, lambda: sink.stderr[-2000:])
    pipeline.sql("update orders set status = 'paid' where id = 1", "delete from orders where id = 2")
    wanted = {str(number): "open" for number in range(3, ROWS + 1)} | {"1": "paid", "2": None}
    wait_until(lambda: stored() == wanted, START_S, lambda: sink.stderr[-2000:])
    assert "lake" in pipeline.good("check")
    pipeline.good("verify", "lake")
    pipeline.cdc("rebuild", "lake", timeout_s=START_S)
    live = {key: status for key, status in wanted.items() if status}
    assert {key: status for key, status in stored().items() if status} == live
    pipeline.sql("update orders set status = 'sent' where id = 3")
    wait_until(lambda: stored().get("3") == "sent", START_S, lambda: sink.stderr[-2000:])
    pipeline.good("verify", "lake")
    assert sink.process.poll() is None, sink.stderr[-2000:]
    sink.process.terminate()
    sink.process.wait(START_S)
