"""``cdc forget`` and documents that no delete makes anew: of groups, of closed windows, and dead letters of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from cdc.dead import DeadLetter, Why
from cdc.errors import Exit
from cdc.settings import load
from connectors.kafka.dead_letters import DeadLetterTopic
from tests.conftest import Stack
from tests.integration.cli.pipeline import Pipeline
from tests.integration.cli.test_forget import KEY, SENTINEL, SOON, files_with, set_options, sink
from tests.programs import RunCdc, Spawn
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
VIEWS = {
    "grouped": "select c.name, count(*) as n from customers c group by c.name",
    "closed": "select date_trunc('day', c.at) as day, (array_agg(c.name order by c.id))[1] as name"
    " from customers c group by 1",
    "counted": "select date_trunc('day', c.at) as day, count(*) as n from customers c group by 1",
}
CLOSING = ("closed", "counted")


@pytest.fixture
def views(database: str, kafka: str, topic_prefix: str, tmp_path: Path, run_cdc: RunCdc) -> Pipeline:
    """Views over customers, of whose names one is the sentinel, and a store that follows two of them."""
    for name, text in VIEWS.items():
        (tmp_path / f"{name}.sql").write_text(text, encoding="utf-8")
    sections = {name: {"sql": str(tmp_path / f"{name}.sql"), "state": str(tmp_path / "state")} for name in VIEWS}
    for name in CLOSING:
        sections[name]["close"] = "2d"
    document: dict[str, Any] = {
        "name": topic_prefix,
        "source": {"dsn": database, "tables": ["public.*"]},
        "log": {"bootstrap_servers": kafka, "partitions": 1},
        "capture": {"http_address": ""},
        "spark": {"http_address": "", "checkpoint": str(tmp_path / "checkpoints")},
        "views": sections,
        "sinks": {
            "files": {"kind": "delta", "path": str(tmp_path / "files"), "tables": [f"view.{name}" for name in VIEWS]}
        },
    }
    made = Pipeline(tmp_path, run_cdc, document)
    made.sql(
        "create table customers (id int primary key, name text, at timestamp)",
        f"insert into customers values ({KEY}, '{SENTINEL}', '2020-01-01'), (2, 'x', '2020-01-02')",
        "insert into customers values (1, 'other', now())",
    )
    for command in ("init", "snapshot"):
        made.good(command)
    return made


def places(pipeline: Pipeline, *arguments: str) -> dict[str, dict[str, Any]]:
    done = pipeline.cdc("forget", "customers", KEY, "--json", "--timeout", "0", *arguments)
    assert "Traceback" not in done.stderr
    assert done.returncode == Exit.DIFFERENCE, done.stderr
    return {one["place"]: one for one in orjson.loads(done.stdout)["places"]}


def test_h302_nothing_is_gone_that_the_files_have(
    views: Pipeline, spawn: Spawn, kafka: str, stack: Stack, tmp_path: Path
) -> None:
    """Compacted, with every delete passed: grep over the files and the report agree."""
    name, logs = views.document["name"], Path(str(stack.folder)) / "kafka" / "data"  # type: ignore[attr-defined]
    spawn("cdc", "--config", views.config, "run")
    spawn("cdc", "--config", views.config, "view", "run")
    wait_until(lambda: files_with(SENTINEL, logs / f"{name}.view.closed.1-0"), 60)
    wait_until(lambda: files_with(SENTINEL, logs / f"{name}.view.grouped.1-0"), 60)
    sink(views)
    letter = DeadLetter(
        sink="files", why=Why.REFUSED, topic=f"{name}.view.grouped.1", partition=0, offset=3, reason="no",
        key=orjson.dumps({"name": SENTINEL}), value=b"{}",
    )  # fmt: skip
    DeadLetterTopic(load(views.config).log, f"{name}.dead").write([letter])
    views.sql(f"delete from customers where id = {KEY}")
    wait_until(lambda: "tombstones" in str(places(views)["view grouped, log"]), 60, lambda: places(views))
    sink(views)
    for view in VIEWS:
        set_options(kafka, f"{name}.view.{view}.1", SOON)
    rows = iter(range(1000, 10_000))

    def compacted() -> bool:
        views.sql(f"insert into customers values ({next(rows)}, 'more', now())")
        return "older version" not in str(places(views)["view grouped, log"])

    wait_until(compacted, 120, lambda: places(views))
    found = places(views)
    said = {place: one["state"] for place, one in found.items()}
    assert files_with(SENTINEL, *logs.glob(f"{name}.view.grouped.1-0")), "its tombstone has the group's key"
    assert said["view grouped, log"] == said["view grouped, files"] == "may hold"
    assert files_with(SENTINEL, *logs.glob(f"{name}.view.closed.1-0")), "a closed window's figure stays"
    assert said["view closed, log"] == said["view closed, files"] == said["view closed, state"] == "may hold"
    assert "stays as it is" not in str(found["view counted, log"]), "it counts by days"
    assert files_with(SENTINEL, *logs.glob(f"{name}.dead-0"))
    assert said["dead letters"] == "may hold"
    held = [file for file in files_with(SENTINEL, tmp_path) if "checkpoints" in file]
    assert held == [], "Spark's checkpoints hold offsets alone"
