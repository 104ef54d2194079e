"""A store of another package, through all commands: the files of ``tests/other_store``, found by their entry point."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cdc.process.errors import Exit
from tests.integration.cli.pipeline import Pipeline
from tests.programs import RunCdc, Spawn
from tests.waiting import wait_until

ROWS = 40
START_S = 240.0


@pytest.fixture
def fork_server() -> None:
    """Commands start from cold, so that PYTHONPATH counts: it is how the package is installed here."""


@pytest.fixture
def pipeline(
    database: str,
    kafka: str,
    topic_prefix: str,
    other_store: Path,
    tmp_path: Path,
    run_cdc: RunCdc,
    monkeypatch: pytest.MonkeyPatch,
) -> Pipeline:
    monkeypatch.setenv("PYTHONPATH", str(other_store))
    document = {
        "name": topic_prefix,
        "source": {"dsn": database, "tables": ["public.orders"]},
        "log": {"bootstrap_servers": kafka, "partitions": 2},
        "capture": {"http_address": ""},
        "sinks": {"files": {"kind": "folder", "path": str(tmp_path / "store")}},
        "spark": {"checkpoint": str(tmp_path / "checkpoints"), "http_address": ""},
    }
    made = Pipeline(tmp_path, run_cdc, document)
    made.sql(
        "create table orders (id int primary key, status text)",
        f"insert into orders select i, 'open' from generate_series(1, {ROWS}) i",
    )
    return made


def stored(pipeline: Pipeline, generation: int) -> dict[str, str | None]:
    """The files of a generation: the status of each row by its key, None for a delete."""
    place = pipeline.folder / "store" / pipeline.document["name"] / str(generation) / "tables" / "public" / "orders"
    rows = [json.loads(file.read_text(encoding="utf-8")) for file in place.glob("*.json")]
    return {row["key"]: json.loads(row["row"])["status"] if row["row"] else None for row in rows}


@pytest.mark.long
def test_a_store_of_a_package_goes_through_all_commands(pipeline: Pipeline, spawn: Spawn) -> None:
    pipeline.good("init")
    pipeline.good("snapshot")
    spawn("cdc", "--config", pipeline.config, "run")
    sink = spawn("cdc", "--config", pipeline.config, "sink")
    pipeline.sql("update orders set status = 'paid' where id = 1", "delete from orders where id = 2")
    wanted = {str(number): "open" for number in range(3, ROWS + 1)} | {"1": "paid", "2": None}
    wait_until(lambda: stored(pipeline, 1) == wanted, START_S, lambda: sink.stderr[-2000:])
    assert "files" in pipeline.good("check")
    shown = json.loads(pipeline.cdc("status", "--json").stdout)
    assert {name: one["kind"] for name, one in shown["sinks"].items()} == {"files": "folder"}
    pipeline.good("verify", "files")
    damage(pipeline, "7")
    assert pipeline.cdc("verify", "files").returncode == Exit.DIFFERENCE
    pipeline.good("verify", "files", "--repair")
    assert stored(pipeline, 1)["7"] == "open"
    damage(pipeline, "8")
    pipeline.cdc("rebuild", "files", timeout_s=START_S)
    assert {key: status for key, status in stored(pipeline, 2).items() if status} == {
        key: status for key, status in wanted.items() if status
    }
    pipeline.sql("update orders set status = 'sent' where id = 3")
    wait_until(lambda: stored(pipeline, 2)["3"] == "sent", 60.0, lambda: sink.stderr[-2000:])
    pipeline.good("verify", "files")


def damage(pipeline: Pipeline, key: str) -> None:
    """Somebody writes another value into a row's file."""
    folder = pipeline.folder / "store" / pipeline.document["name"] / "1" / "tables" / "public" / "orders"
    file = folder / f"{key}_.json"
    held = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**held, "row": json.dumps({"id": int(key), "status": "wrong"})}), encoding="utf-8")
