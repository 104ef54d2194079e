"""Snapshots taken anew on the real Connect: what was deleted meanwhile leaves every store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest
from psycopg import sql

from connectors.kafka.admin import TopicAdmin
from tests.conftest import Stack
from tests.integration.debezium.conftest import Pipeline
from tests.integration.debezium.following import restless, source_rows
from tests.integration.debezium.test_stores import SINK_S, cached
from tests.programs import RunCdc, Spawn, Spawned
from tests.waiting import wait_until


@pytest.fixture
def stores(redis_url: str, opensearch: str, index_prefix: str, warehouse: Path) -> dict[str, dict[str, str]]:
    """Sections of three stores of one's own."""
    return {
        "sinks__cache": {"kind": "redis", "url": redis_url},
        "sinks__search": {"kind": "opensearch", "url": opensearch, "prefix": index_prefix},
        "sinks__warehouse": {"kind": "delta", "path": str(warehouse)},
    }


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
def test_h123_rows_deleted_before_a_reset_leave_the_stores(
    pipeline: Pipeline, stores: dict[str, dict[str, str]], run_cdc: RunCdc, spawn: Spawn, tmp_path: Path
) -> None:
    """As the manual's cure for a lost slot has it: the slot is dropped, and no event tells of what went meanwhile."""
    pipeline.run(
        "insert into a select i, 's' || i, i from generate_series(1, 60) i",
        "insert into b select i, 'x' from generate_series(1, 5) i",
    )
    settings = pipeline.toml(tmp_path, **stores, spark=spark_section(tmp_path))
    name, url = pipeline.settings().name, stores["sinks__cache"]["url"]
    assert run_cdc("--config", settings, "connect", "deploy").returncode == 0
    sink = spawn("cdc", "--config", settings, "sink")
    holds(sink, url, name, "public.a", set(range(1, 61)))

    connector = pipeline.connector()
    connector.stop()
    pipeline.run("delete from a where id <= 31", "delete from b", "insert into a values (99, 'late', 1)")
    slot = connector.wanted()["slot.name"]
    wait_until(lambda: drop_slot(pipeline, slot), 30, "the slot is free")
    assert run_cdc("--config", settings, "connect", "offsets", "--reset", "--yes").returncode == 0
    assert run_cdc("--config", settings, "connect", "resume").returncode == 0
    holds(sink, url, name, "public.a", {*range(32, 61), 99})
    holds(sink, url, name, "public.b", set())

    verified = run_cdc("--config", settings, "verify", "--timeout", "150", "--json", timeout_s=2 * SINK_S)
    assert verified.returncode == 0, verified.stdout + verified.stderr + sink.stderr[-3000:]
    assert orjson.loads(verified.stdout)["differences"] == 0
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
def test_h123_a_worker_killed_in_a_snapshot_leaves_no_phantoms(
    pipeline: Pipeline,
    stack: Stack,
    database: str,
    redis_url: str,
    run_cdc: RunCdc,
    spawn: Spawn,
    tmp_path: Path,
) -> None:
    pipeline.run("insert into a select i, 's' || i, i from generate_series(1, 20000) i")
    # Late, so that the next table is locked before it is read: a whole first snapshot is another case.
    pipeline.document["debezium"]["options"] |= {"snapshot.delay.ms": "20000"}
    settings = cache_alone(pipeline, redis_url, tmp_path)
    name = pipeline.settings().name
    assert run_cdc("--config", settings, "connect", "deploy").returncode == 0
    with psycopg.connect(database) as holding:
        holding.execute("lock table b in access exclusive mode")
        sink = spawn("cdc", "--config", settings, "sink")
        topic = f"{name}.public.a"
        log = TopicAdmin(pipeline.settings().log)
        assert topic not in log.names() or not sum(log.end_offsets({topic: 2})[topic].values()), "the lock came late"
        wait_until(lambda: sum(log.end_offsets({topic: 2})[topic].values()) > 1000, 60, "the snapshot has begun")
        stack.stop_part("connect", kill=True)
    pipeline.run("delete from a where id % 2 = 0")
    # The slot that saw the deletes is lost, too: no event tells of them.
    slot = pipeline.connector().wanted()["slot.name"]
    wait_until(lambda: drop_slot(pipeline, slot), 30, "the slot is free")
    stack.start_part("connect")
    holds(sink, redis_url, name, "public.a", set(range(1, 20000, 2)))
    assert "snapshot_again" in sink.stderr
    assert sink.terminate() == 0


@pytest.mark.slow
def test_h226_a_store_without_the_first_table_hears_it_too(
    pipeline: Pipeline,
    stack: Stack,
    database: str,
    redis_url: str,
    run_cdc: RunCdc,
    spawn: Spawn,
    tmp_path: Path,
) -> None:
    """The row that began the snapshot is another table's: whoever reads this table alone never meets it."""
    pipeline.run(
        "create table c (id int primary key)",
        "insert into c values (1)",
        "insert into a values (1, 's', 1)",
        "insert into b select i, 's' from generate_series(1, 20000) i",
    )
    pipeline.document["source"]["tables"] = ["public.a", "public.b", "public.c"]
    pipeline.document["debezium"]["options"] |= {"snapshot.delay.ms": "20000"}
    only_b = {"kind": "redis", "url": redis_url, "tables": ["public.b"]}
    settings = pipeline.toml(tmp_path, sinks__cache=only_b, spark=spark_section(tmp_path))
    name = pipeline.settings().name
    assert run_cdc("--config", settings, "connect", "deploy").returncode == 0
    log, topic = TopicAdmin(pipeline.settings().log), f"{name}.public.b"
    with psycopg.connect(database) as holding:
        holding.execute("lock table c in access exclusive mode")
        sink = spawn("cdc", "--config", settings, "sink")
        assert topic not in log.names() or not sum(log.end_offsets({topic: 2})[topic].values()), "the lock came late"
        wait_until(lambda: sum(log.end_offsets({topic: 2})[topic].values()) > 19000, 90, "the snapshot has begun")
        stack.stop_part("connect", kill=True)
    pipeline.run("delete from b where id % 2 = 0")
    slot = pipeline.connector().wanted()["slot.name"]
    wait_until(lambda: drop_slot(pipeline, slot), 30, "the slot is free")
    stack.start_part("connect")
    holds(sink, redis_url, name, "public.b", set(range(1, 20000, 2)))
    assert sink.stderr.count('"snapshot_again"') == 1, sink.stderr[-3000:]
    # Who has the first table finds the snapshot's own beginning there, and nothing of it is taken for the one before.
    assert sink.terminate() == 0
    both = {**only_b, "tables": ["public.a", "public.b"]}
    sink = spawn("cdc", "--config", pipeline.toml(tmp_path, sinks__cache=both, spark=spark_section(tmp_path)), "sink")
    holds(sink, redis_url, name, "public.a", {1})
    holds(sink, redis_url, name, "public.b", set(range(1, 20000, 2)))
    assert sink.terminate() == 0


@pytest.mark.slow
def test_h221_a_whole_snapshot_without_its_offset_is_a_first(
    pipeline: Pipeline, redis_url: str, run_cdc: RunCdc, spawn: Spawn, tmp_path: Path
) -> None:
    """As after a worker that was killed behind the last row, before Kafka Connect stored where it was."""
    pipeline.run(
        "insert into a select i, 's' || i, i from generate_series(1, 60) i",
        "insert into b select i, 'x' from generate_series(1, 5) i",
    )
    settings = cache_alone(pipeline, redis_url, tmp_path)
    name = pipeline.settings().name
    assert run_cdc("--config", settings, "connect", "deploy").returncode == 0
    sink = spawn("cdc", "--config", settings, "sink")
    holds(sink, redis_url, name, "public.a", set(range(1, 61)))
    pipeline.run("insert into a values (61, 'streamed', 1)")
    holds(sink, redis_url, name, "public.a", set(range(1, 62)))

    connector = pipeline.connector()
    connector.stop()
    pipeline.run("delete from a where id <= 31", "delete from b")
    slot = connector.wanted()["slot.name"]
    wait_until(lambda: drop_slot(pipeline, slot), 30, "the slot is free")
    connector.client.reset_offsets(connector.name)
    connector.resume()
    holds(sink, redis_url, name, "public.a", set(range(32, 62)))
    holds(sink, redis_url, name, "public.b", set())

    # One on request is none: what it does not read stays.
    pipeline.run("insert into b select i, 'y' from generate_series(1, 5) i")
    holds(sink, redis_url, name, "public.b", set(range(1, 6)))
    asked = run_cdc("--config", settings, "connect", "signal", "snapshot", "public.b", "--blocking")
    assert asked.returncode == 0, asked.stderr
    wait_until(lambda: "snapshot_on_request" in sink.stderr, SINK_S, lambda: sink.stderr[-3000:])
    assert sink.stderr.count('"snapshot_again"') == 1, sink.stderr[-3000:]
    holds(sink, redis_url, name, "public.a", set(range(32, 62)))
    assert sink.terminate() == 0


@pytest.mark.slow
def test_h230_a_table_whose_key_changes_waits_for_a_reset(
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
    assert run_cdc("--config", settings, "connect", "offsets", "--reset", "--yes").returncode == 0
    assert run_cdc("--config", settings, "connect", "resume").returncode == 0
    holds(sink, redis_url, name, "public.b", {1, 2, 4, 5, 6})
    verified = run_cdc("--config", settings, "verify", "--timeout", "150", "--json", timeout_s=2 * SINK_S)
    assert verified.returncode == 0, verified.stdout + verified.stderr + sink.stderr[-3000:]
    assert sink.terminate() == 0


@pytest.fixture
def deployed(pipeline: Pipeline, redis_url: str, run_cdc: RunCdc, tmp_path: Path) -> Path:
    """The settings of a pipeline with a cache, whose connector runs."""
    settings = cache_alone(pipeline, redis_url, tmp_path)
    assert run_cdc("--config", settings, "connect", "deploy").returncode == 0
    return settings


@pytest.mark.slow
@pytest.mark.parametrize("kills", [1, pytest.param(3, marks=pytest.mark.long)])
def test_h124_a_worker_killed_under_load_raises_no_alarm(
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
    assert "positions_fell" not in sink.stderr
    assert "snapshot_again" not in sink.stderr
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
