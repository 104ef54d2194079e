"""Snapshots taken anew, killed workers and partial rows, on the real Connect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from psycopg import sql

from cdc.process.crash_points import CRASH_EXIT
from cdc.process.errors import Exit
from tests.conftest import Stack
from tests.integration.debezium.conftest import Pipeline
from tests.integration.debezium.following import restless, source_rows
from tests.integration.debezium.test_stores import SINK_S, cached
from tests.programs import RunCdc, Spawn, Spawned
from tests.waiting import wait_until

POINTS = ("resnapshot_noted", "resnapshot_stopped", "resnapshot_deleted", "resnapshot_made", "resnapshot_reset")


def spark_section(folder: Path) -> dict[str, Any]:
    return {"master": "local[1]", "checkpoint": str(folder / "checkpoints"), "http_address": ""}


def holds(sink: Spawned, url: str, name: str, table: str, ids: set[int]) -> None:
    """Wait until the cache holds these rows of a table, and no other."""

    def equal() -> bool:
        assert sink.process.poll() is None, sink.stderr
        assert {row["id"] for row in cached(url, name, table).values()} == ids
        return True

    wait_until(equal, SINK_S, lambda: sink.stderr[-3000:])


@pytest.mark.slow
def test_h123_a_resnapshot_behind_a_lost_slot(
    pipeline: Pipeline, redis_url: str, run_cdc: RunCdc, spawn: Spawn, tmp_path: Path
) -> None:
    """No event tells of what went meanwhile. The old generation is served until the new one is whole."""
    pipeline.run(
        "insert into a select i, 's' || i, i from generate_series(1, 60) i",
        "insert into b select i, 'x' from generate_series(1, 5) i",
    )
    settings = cache_alone(pipeline, redis_url, tmp_path)
    name = pipeline.settings().name
    assert run_cdc("--config", settings, "connect", "deploy").returncode == 0
    sink = spawn("cdc", "--config", settings, "sink")
    holds(sink, redis_url, name, "public.a", set(range(1, 61)))
    holds(sink, redis_url, name, "public.b", {1, 2, 3, 4, 5})

    connector = pipeline.connector()
    connector.stop()
    pipeline.run("delete from a where id <= 31", "delete from b", "insert into a values (99, 'late', 1)")
    slot = connector.wanted()["slot.name"]
    wait_until(lambda: drop_slot(pipeline, slot), 30, "the slot is free")
    for point in POINTS:
        killed = run_cdc("--config", settings, "connect", "resnapshot", "--yes", env={"CDC_CRASH_AT": point})
        assert killed.returncode == CRASH_EXIT, killed.stderr
        refused = run_cdc("--config", settings, "connect", "resume")
        assert refused.returncode == Exit.CONFIG, point
        assert "a resnapshot was begun and not finished" in refused.stderr
    done = run_cdc("--config", settings, "connect", "resnapshot", "--yes")
    assert done.returncode == 0, done.stderr
    assert "cdc rebuild cache" in done.stdout + done.stderr
    assert sink.process.wait(SINK_S) == Exit.TOPIC, sink.stderr[-3000:]
    # It looks while the topics are gone, or when they are there again.
    assert "made anew" in sink.stderr or "the topic does not exist" in sink.stderr
    assert len(cached(redis_url, name, "public.a")) == 60

    rebuilt = run_cdc("--config", settings, "rebuild", "cache", timeout_s=2 * SINK_S)
    assert rebuilt.returncode == 0, rebuilt.stderr
    sink = spawn("cdc", "--config", settings, "sink")
    verified = run_cdc("--config", settings, "verify", "--timeout", "300", "--json", timeout_s=2 * SINK_S)
    assert verified.returncode == 0, verified.stdout + verified.stderr + sink.stderr[-3000:]
    report = orjson.loads(verified.stdout)
    assert (report["differences"], report["undecided"]) == (0, 0)
    rows = {(t["sink"], t["table"]): t["source_rows"] for t in report["tables"]}
    assert rows["cache", "public.a"] == 30
    assert sink.terminate() == 0


def drop_slot(pipeline: Pipeline, slot: str) -> bool:
    """Whether no slot of the name is left: it stays taken for a moment after its connector."""
    statement = (
        "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = {} and not active"
    )
    pipeline.session.execute(sql.SQL(statement).format(sql.Literal(slot)))
    left = pipeline.session.execute("select 1 from pg_replication_slots where slot_name = %s", [slot]).fetchone()
    return left is None


def cache_alone(pipeline: Pipeline, url: str, folder: Path) -> Path:
    return pipeline.toml(folder, sinks__cache={"kind": "redis", "url": url}, spark=spark_section(folder))


@pytest.mark.slow
@pytest.mark.long
def test_h230_a_table_whose_key_changes_waits(
    pipeline: Pipeline, redis_url: str, run_cdc: RunCdc, spawn: Spawn, tmp_path: Path
) -> None:
    """Debezium goes on with the new key, and nothing removes the rows that stand under the former one."""
    pipeline.run("insert into b select i, 'x' from generate_series(1, 5) i", "insert into a values (1, 's', 1)")
    settings = cache_alone(pipeline, redis_url, tmp_path)
    name = pipeline.settings().name
    assert run_cdc("--config", settings, "connect", "deploy").returncode == 0
    sink = spawn("cdc", "--config", settings, "sink")
    holds(sink, redis_url, name, "public.b", {1, 2, 3, 4, 5})
    pipeline.run(
        "alter table b drop constraint b_pkey, alter v set not null, add primary key (id, v)",
        "update b set v = 'y' where id = 2",
        "delete from b where id = 3",
        "insert into b values (6, 'x')",
        "insert into a values (2, 's', 1)",
    )
    holds(sink, redis_url, name, "public.a", {1, 2})
    wait_until(lambda: "table_held" in sink.stderr, SINK_S, lambda: sink.stderr[-3000:])
    assert "table_keyed_anew" in sink.stderr
    status = run_cdc("--config", settings, "status")
    assert status.returncode == 1
    assert "its key is another one now" in status.stdout
    assert run_cdc("--config", settings, "connect", "resnapshot", "--yes").returncode == 0
    assert sink.process.wait(SINK_S) == Exit.TOPIC, sink.stderr[-3000:]


@pytest.fixture
def deployed(pipeline: Pipeline, redis_url: str, run_cdc: RunCdc, tmp_path: Path) -> Path:
    """The settings of a pipeline with a cache, whose connector runs."""
    settings = cache_alone(pipeline, redis_url, tmp_path)
    assert run_cdc("--config", settings, "connect", "deploy").returncode == 0
    return settings


@pytest.mark.slow
@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.long)])
def test_h124_a_worker_killed_under_load(
    pipeline: Pipeline,
    stack: Stack,
    database: str,
    redis_url: str,
    deployed: Path,
    spawn: Spawn,
    kills: int,
) -> None:
    name = pipeline.settings().name
    sink = spawn("cdc", "--config", deployed, "sink")
    with restless(database):
        for _ in range(kills):
            seen = len(pipeline.records("public.a"))
            pipeline.arrived("public.a", seen + 200, 60)
            stack.stop_part("connect", kill=True)
            stack.start_part("connect")
        seen = len(pipeline.records("public.a"))
        pipeline.arrived("public.a", seen + 200, 60)

    def equal() -> bool:
        assert sink.process.poll() is None, sink.stderr[-3000:]
        held = {row["id"]: row for row in cached(redis_url, name, "public.a").values()}
        assert {key: row["v"] for key, row in held.items()} == {
            key: row["v"] for key, row in source_rows(pipeline).items()
        }
        return True

    wait_until(equal, SINK_S, lambda: sink.stderr[-3000:])
    assert sink.terminate() == 0


@pytest.mark.slow
def test_h125_no_unchanged_value_reaches_a_store(
    pipeline: Pipeline, redis_url: str, run_cdc: RunCdc, spawn: Spawn, tmp_path: Path
) -> None:
    """An identity that was changed under a connector that runs: what an update lacks is a dead letter, no key waits
    for it, and the next whole record of its key settles it."""
    pipeline.run(
        "alter table a alter v set storage external",
        "insert into a (id, v) select n, repeat(n::text, 5000) from generate_series(1, 3) n",
    )
    settings = cache_alone(pipeline, redis_url, tmp_path)
    name = pipeline.settings().name
    assert run_cdc("--config", settings, "connect", "deploy").returncode == 0
    sink = spawn("cdc", "--config", settings, "sink")
    holds(sink, redis_url, name, "public.a", {1, 2, 3})
    pipeline.run("alter table a replica identity default", "update a set n = 7")

    def told() -> bool:
        assert sink.process.poll() is None, sink.stderr[-3000:]
        letters = run_cdc("--config", settings, "dead", "list").stdout
        return letters.count("it lacks the value of v, which did not change") == 3

    wait_until(told, SINK_S, lambda: sink.stderr[-3000:])
    assert {row["n"] for row in cached(redis_url, name, "public.a").values()} == {"3.00"}
    pipeline.run("alter table a replica identity full", "update a set n = 8 where id < 3", "delete from a where id = 3")
    wait_until(
        lambda: (
            {key: (row["n"], len(row["v"])) for key, row in cached(redis_url, name, "public.a").items()}
            == {"1": ("8.00", 5000), "2": ("8.00", 5000)}
        ),
        SINK_S,
        lambda: sink.stderr[-3000:],
    )
    assert sink.terminate() == 0
