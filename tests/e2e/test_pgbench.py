"""The oracle: a real TPC-B runs on while snapshot, capture and sinks are killed; then everything must be equal."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest
import redis as redis_client
from psycopg.conninfo import conninfo_to_dict

from cdc.process.clock import SYSTEM_CLOCK
from cdc.process.errors import Exit
from cdc.record.topic_names import TableName
from cdc.settings.model import Settings, load
from cdc.stack.postgres import install_folder
from cdc.wiring import open_schemas
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.feed import follow
from sinks.contract.stores import open_store
from tests.integration.cli.pipeline import Pipeline, assert_refused
from tests.programs import RunCdc, Spawn, Spawned
from tests.waiting import wait_until

CLIENTS = 4
TRANSACTIONS_PER_S = 120
TURNS = 5
"""How often capture is killed."""
ACCOUNTS = 20_000
"""A fifth of what pgbench makes: a store is filled with all of them while the rest goes on."""
TPC_B = f"""
\\set aid random(1, {ACCOUNTS})
\\set tid random(1, 10)
\\set delta random(-5000, 5000)
begin;
update pgbench_accounts set abalance = abalance + :delta where aid = :aid;
update pgbench_tellers set tbalance = tbalance + :delta where tid = :tid;
update pgbench_branches set bbalance = bbalance + :delta where bid = 1;
insert into pgbench_history (tid, bid, aid, delta, mtime) values (:tid, 1, :aid, :delta, current_timestamp);
end;
"""
BALANCES = {"pgbench_accounts": "abalance", "pgbench_tellers": "tbalance", "pgbench_branches": "bbalance"}
TABLES = (*BALANCES, "pgbench_history")


@pytest.fixture
def stores(redis_url: str, opensearch: str, index_prefix: str, tmp_path: Path) -> dict[str, Any]:
    """Settings of three stores of one's own."""
    return {
        "cache": {"kind": "redis", "url": redis_url},
        "search": {"kind": "opensearch", "url": opensearch, "prefix": index_prefix},
        "warehouse": {"kind": "delta", "path": str(tmp_path / "warehouse")},
    }


@pytest.fixture
def pipeline(
    database: str, kafka: str, topic_prefix: str, stores: dict[str, Any], tmp_path: Path, run_cdc: RunCdc
) -> Pipeline:
    """The captured pgbench tables and three stores; nothing made yet."""
    document = {
        "name": topic_prefix,
        "source": {"dsn": database, "tables": ["public.pgbench_*"]},
        "log": {"bootstrap_servers": kafka, "partitions": 3},
        "capture": {"http_address": ""},
        "snapshot": {"chunk_bytes": "256kB"},
        "sinks": stores,
        "spark": {"checkpoint": str(tmp_path / "checkpoints")},
    }
    made = Pipeline(tmp_path, run_cdc, document)
    done = subprocess.run(
        pgbench(made.dsn, "-i", "-q", "-s", "1"), env=libpq(made.dsn), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    made.sql(f"delete from pgbench_accounts where aid > {ACCOUNTS}")
    return made


def pgbench(dsn: str, *arguments: str) -> list[str]:
    return [str(install_folder() / "bin" / "pgbench"), *arguments, str(conninfo_to_dict(dsn)["dbname"])]


def libpq(dsn: str) -> dict[str, str]:
    """The connection by environment, as pgbench takes it."""
    parts = conninfo_to_dict(dsn)
    names = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "passfile": "PGPASSFILE", "password": "PGPASSWORD"}
    return {**os.environ, **{names[name]: str(value) for name, value in parts.items() if name in names}}


class Lives:
    """A command that is started again each time it was killed."""

    def __init__(self, spawn: Spawn, pipeline: Pipeline, *arguments: str, alive: str) -> None:
        self._spawn = spawn
        self._command = ("cdc", "--config", str(pipeline.config), *arguments)
        self._alive = alive
        self.now = self._start()

    def _start(self) -> Spawned:
        return self._spawn(*self._command)

    def kill_after(self, delay_s: float) -> None:
        """Wait for its sign of life, and for ``delay_s``; then SIGKILL, and start it again."""
        wait_until(lambda: self._alive in self.now.stderr, 120, describe=lambda: self.now.stderr[-2000:])
        SYSTEM_CLOCK.sleep(delay_s)
        assert self.now.process.poll() is None, self.now.stderr[-2000:]
        self.now.kill()
        self.now = self._start()


def snapshot_killed_twice(pipeline: Pipeline, spawn: Spawn, delays: random.Random) -> int:
    """Run the snapshot until it is complete, killing the first two; how many were killed before they were done."""
    killed = 0
    for attempt in range(3):
        running = spawn("cdc", "--config", pipeline.config, "snapshot", "--workers", "1")
        if attempt < 2:
            began_or_ended(running)
            SYSTEM_CLOCK.sleep(delays.uniform(0, 0.1))
            killed += running.process.poll() is None
            running.kill()
        else:
            assert running.wait(180) == 0, running.stderr
    return killed


def began_or_ended(snapshot: Spawned) -> None:
    """Return when rows are being read."""
    wait_until(
        lambda: "pgbench_accounts" in snapshot.stderr or snapshot.process.poll() is not None,
        120,
        describe=lambda: snapshot.stderr,
    )


@pytest.mark.slow
@pytest.mark.long
def test_stores_equal_the_source_whatever_is_killed_on_the_way(
    pipeline: Pipeline, spawn: Spawn, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("CDC_TEST_SEED") or random.SystemRandom().randrange(10**6))
    delays = random.Random(seed)
    for command in ("check", "init"):
        assert_refused(pipeline.cdc(command), Exit.CONFIG, "public.pgbench_history has no key", "add column")
    pipeline.sql("alter table pgbench_history add column id bigint generated always as identity primary key")
    pipeline.good("init")

    options = bench_options(pipeline.folder, TRANSACTIONS_PER_S)
    load_ = spawn(*pgbench(pipeline.dsn, *options), env=libpq(pipeline.dsn))
    sinks = Lives(spawn, pipeline, "sink", alive="sink_started")
    killed = snapshot_killed_twice(pipeline, spawn, delays)
    capture = Lives(spawn, pipeline, "run", alive='"streaming"')
    for turn in range(TURNS):
        capture.kill_after(delays.uniform(0.2, 3))
        if turn < TURNS - 1:
            sinks.kill_after(delays.uniform(0.2, 4))
    capture.kill_after(delays.uniform(0.2, 1))
    assert load_.process.poll() is None, load_.stderr
    load_.process.send_signal(signal.SIGINT)
    load_.wait()

    done = pipeline.cdc("verify", "--timeout", "900", "--json", timeout_s=1000)
    assert done.returncode == 0, f"seed {seed}: {done.stdout}{done.stderr}"
    report = orjson.loads(done.stdout)
    assert (report["differences"], report["undecided"]) == (0, 0)
    assert {(t["sink"], t["table"]) for t in report["tables"]} == {
        (sink, f"public.{table}") for sink in ("cache", "search", "warehouse") for table in TABLES
    }
    settings = load(pipeline.config, {})
    sums_agree(settings, pipeline.dsn)
    records = streamed_positions_grow(settings)
    differences_are_found(pipeline)
    assert capture.now.terminate() == 0, capture.now.stderr
    assert sinks.now.terminate(90) == 0, sinks.now.stderr
    rows = sum(t["source_rows"] for t in report["tables"]) // 3
    with capsys.disabled():
        print(f"\n[seed {seed}: {killed + 2 * TURNS} kills, {rows} rows, {records} streamed records, 0 lost, 0 wrong]")


def differences_are_found(pipeline: Pipeline) -> None:
    """A comparison that finds nothing proves something only if it finds what is there."""
    tellers = f"{pipeline.document['name']}:public.pgbench_tellers"
    with redis_client.Redis.from_url(pipeline.document["sinks"]["cache"]["url"]) as cache:
        cache.rename(f"{tellers}:1", f"{tellers}:999")
        cache.hset(f"{tellers}:2", "row", '{"tid":2}')
    done = pipeline.cdc("verify", "cache", "--json")
    assert_refused(done, Exit.DIFFERENCE, "1 missing, 1 extra, 1 stale")
    (found,) = (table for table in orjson.loads(done.stdout)["tables"] if table["keys"])
    assert found["table"] == "public.pgbench_tellers"
    assert found["keys"] == {"missing": ["1"], "extra": ["999"], "stale": ["2"]}


def bench_options(folder: Path, per_s: int) -> list[str]:
    script = folder / "tpc_b.sql"
    script.write_text(TPC_B, encoding="utf-8")
    return ["-n", "-f", str(script), "-c", str(CLIENTS), "-j", "2", "-R", str(per_s), "-T", "900"]


def sums_agree(settings: Settings, dsn: str) -> None:
    """TPC-B's own invariant, in the source and in each store: all balances add up to the history."""
    expected = source_sums(dsn)
    assert len(set(expected.values())) == 1, expected
    schemas = open_schemas(settings)
    for name in settings.sinks:
        with closing(open_store(name, settings)) as store:
            for table, column in {**BALANCES, "pgbench_history": "delta"}.items():
                shape = schemas.latest(TableName("public", table))
                assert shape is not None
                found = sum(row[column] for row in stored_rows(store.reader.scan(shape)))
                assert found == expected[table], f"{name}: {table}"


def source_sums(dsn: str) -> Mapping[str, int]:
    with psycopg.connect(dsn) as connection:
        return {
            table: int(connection.execute(f"select sum({column}) from {table}").fetchall()[0][0])
            for table, column in {**BALANCES, "pgbench_history": "delta"}.items()
        }


def stored_rows(batches: Iterator[Any]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        for row in batch.column("row").to_pylist():
            if row is not None:
                yield orjson.loads(row)


def streamed_positions_grow(settings: Settings) -> int:
    """H75: per partition, streamed records are in order and none is there twice; how many there are."""
    topics = [f"{settings.name}.public.{table}" for table in TABLES]
    counts = {topic: facts.partitions for topic, facts in TopicAdmin(settings.log).describe(topics).items()}
    newest: dict[tuple[str, int], bytes] = {}
    records = 0
    for batch in follow(settings.log, counts, from_beginning=True, until_caught_up=True):
        for record in batch:
            if record.headers["op"] == b"r":
                continue
            lane, pos = (record.topic, record.partition), record.headers["pos"]
            assert pos > newest.get(lane, b""), f"{lane} at {record.offset}: {pos!r} behind {newest[lane]!r}"
            newest[lane] = pos
            records += 1
    return records
