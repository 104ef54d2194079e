"""Two shards of capture on real servers: each on its own, together one pipeline."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cdc.crash import CRASH_EXIT
from cdc.errors import Exit
from cdc.shard_documents import tables_of
from cdc.shard_plan import each_shard
from cdc.wiring.sinks import build_sinks
from connectors.whole_state import read_each
from sinks.sections import load_settings
from tests.faults.follower import Following
from tests.integration.capture.pipeline import Pipeline
from tests.integration.cli.pipeline import assert_refused
from tests.programs import RunCdc, Spawned
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

TABLES = (
    "create table orders (id int primary key, status text)",
    "create table others (id int primary key, note text)",
    "insert into orders select n, 'open' from generate_series(1, 20) n",
    "insert into others select n, 'old' from generate_series(1, 20) n",
)
SHARDS = {"sales": ["public.orders"], "rest": ["public.others"]}


@dataclass
class Command:
    """Says when the follower of the store is to end."""

    stop: bool = False


@dataclass
class Divided:
    """A pipeline of two shards, with a store."""

    pipeline: Pipeline
    run_cdc: RunCdc
    runs: dict[str, Spawned] = field(default_factory=dict)

    def cdc(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        pipeline = self.pipeline
        return self.run_cdc("--config", pipeline.config(), *arguments, cwd=pipeline.folder, env=environment)

    def killed_at(self, point: str, *arguments: str) -> None:
        done = self.cdc(*arguments, CDC_CRASH_AT=point)
        assert done.returncode == CRASH_EXIT, done.stdout + done.stderr

    def good(self, *arguments: str) -> str:
        done = self.cdc(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def set_up(self) -> None:
        self.killed_at("shards_noted", "init")
        self.good("init")
        self.good("snapshot", "--workers", "1")

    def start(self, shard: str) -> None:
        pipeline = self.pipeline
        run = self.runs[shard] = pipeline.spawn("cdc", "--config", pipeline.config(), "run", "--shard", shard)
        wait_until(lambda: pipeline.said(run, "streaming"), 30, lambda: run.stderr)

    def written(self, *statements: str) -> str:
        """One transaction. Returns a token behind its commit."""
        self.pipeline.transaction(*statements)
        return str(self.pipeline.one("select pg_current_wal_insert_lsn()"))

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Meanwhile the store is fed, as by cdc sink."""
        settings, command = load_settings(self.pipeline.config()), Command()
        following = Following(build_sinks(settings, ["store"]), "store", settings.log)
        thread = threading.Thread(target=following.run, args=(command,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            command.stop = True
            thread.join(60)
        assert not thread.is_alive()

    def status(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A look for which every part answered in time."""
        looks: list[subprocess.CompletedProcess[str]] = []

        def answered() -> bool:
            looks.append(self.cdc("status", *arguments))
            return looks[-1].returncode != Exit.UNAVAILABLE

        wait_until(answered, 120, lambda: looks[-1].stderr)
        return looks[-1]

    def assert_waits(self, token: str, *more: str) -> None:
        self.good("wait", "store", token, "--timeout", "60", *more)

    def assert_does_not_show(self, token: str) -> None:
        done = self.cdc("wait", "store", token, "--timeout", "3")
        assert done.returncode == 1, done.stdout + done.stderr
        assert "was not reached" in done.stderr


@pytest.fixture
def divided(pipeline: Pipeline, run_cdc: RunCdc, tmp_path: Path) -> Divided:
    pipeline.document["source"]["tables"] = ["public.orders", "public.others"]
    pipeline.document["capture"]["shards"] = SHARDS
    pipeline.document["sinks"] = {"store": {"kind": "sql", "url": f"sqlite:///{tmp_path}/store.db"}}
    pipeline.execute(*TABLES)
    return Divided(pipeline, run_cdc)


def tables_of_shards(divided: Divided) -> list[set[str]]:
    """The tables that each shard's state topic has."""
    return [set(tables_of(documents)) for documents in read_each(divided.pipeline.settings).values()]


def test_h400_a_shard_is_killed_and_the_other_goes_on(divided: Divided) -> None:
    """A transaction over both is shown when both have it, each table when its own shard has it."""
    divided.set_up()
    assert tables_of_shards(divided) == [{"public.orders"}, {"public.others"}]
    slots = {one.slot for one in each_shard(divided.pipeline.settings)}
    for shard in SHARDS:
        divided.start(shard)
    with divided.followed():
        token = divided.written("update orders set status = 'paid' where id < 9", "update others set note = 'new'")
        divided.assert_waits(token)
        divided.runs["rest"].kill()
        token = divided.written("delete from orders where id = 1", "delete from others where id = 1")
        divided.assert_waits(token, "--table", "public.orders")
        divided.assert_does_not_show(token)
        status = divided.status()
        assert status.returncode == 1
        assert "nobody reads" in status.stdout + status.stderr
        assert [line.split(",")[0] for line in status.stdout.splitlines() if line.startswith("pipeline ")] == [
            f"pipeline {divided.pipeline.name}/{shard}" for shard in SHARDS
        ]
        assert divided.status("--shard", "sales").returncode == 0
        divided.start("rest")
        divided.assert_waits(token)
        assert "public.others" in divided.good("verify", "store")
        divided.good("check")
    for shard, run in divided.runs.items():
        assert run.terminate() == 0, f"{shard}: {run.stderr}"
    made = divided.pipeline.one(
        "select array_agg(slot_name::text) from pg_replication_slots where database = current_database()"
    )
    assert set(made) == slots
    for shard in SHARDS:
        divided.good("drop", "--shard", shard, "--yes")
    assert not divided.pipeline.one("select count(*) from pg_replication_slots where database = current_database()")


def test_h402_a_table_moves_only_with_a_new_epoch(divided: Divided) -> None:
    divided.set_up()
    divided.start("sales")
    divided.start("rest")
    with divided.followed():
        divided.assert_waits(divided.written("update orders set status = 'paid'", "update others set note = 'new'"))
        for run in divided.runs.values():
            assert run.terminate() == 0
        divided.pipeline.execute("create table more (id int primary key); insert into more values (1)")
        divided.pipeline.document["source"]["tables"] = ["public.orders", "public.others", "public.more"]
        divided.pipeline.document["capture"]["shards"] = {
            "rest": ["public.orders", "public.others"],
            "sales": ["public.more"],
        }
        for arguments in (("run",), ("init",), ("snapshot",)):
            for shard in SHARDS:
                refused = divided.cdc(*arguments, "--shard", shard)
                assert_refused(refused, Exit.CONFIG, "public.orders is written by the shard sales", "to the shard rest")
        divided.pipeline.execute("update orders set status = 'moved' where id = 2", "delete from orders where id = 3")
        again = ("init", "--shard", "rest", "--new-epoch", "--yes")
        for point in ("epoch_noted", "table_given_up"):
            divided.killed_at(point, *again)
        divided.good(*again)
        divided.good("snapshot", "--shard", "rest", "--workers", "1")
        divided.good("init", "--shard", "sales")
        divided.start("rest")
        divided.start("sales")
    with divided.followed():
        divided.assert_waits(
            divided.written("update orders set status = 'late' where id = 4", "insert into more values (2)")
        )
        divided.good("verify", "store")
    assert tables_of_shards(divided) == [{"public.orders", "public.others"}, {"public.more"}]


def test_h404_with_and_without_shards_do_not_mix(divided: Divided) -> None:
    divided.set_up()
    del divided.pipeline.document["capture"]["shards"]
    for command in ("init", "run"):
        assert_refused(divided.cdc(command), Exit.CONFIG, "is divided into the shards sales, rest")


def test_h404_a_capture_without_shards_is_not_divided(divided: Divided) -> None:
    shards = divided.pipeline.document["capture"].pop("shards")
    divided.good("init")
    divided.pipeline.document["capture"]["shards"] = shards
    assert_refused(divided.cdc("init", "--shard", "sales"), Exit.CONFIG, "has no shards, and its topics are there")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run",), "cdc run is of one capture"),
        (("up", "--yes"), "cdc up does not work for a pipeline with"),
        (("diff",), "cdc diff does not work for a pipeline with"),
        (("rebuild", "store"), "cdc rebuild does not work for a pipeline with"),
        (("verify", "--repair"), "cdc verify --repair does not work for a pipeline with"),
        (("drop", "--shard", "rest", "--topics"), "cdc drop --topics does not work for a pipeline with"),
    ],
)
def test_commands_that_do_not_know_shards_refuse(divided: Divided, arguments: tuple[str, ...], words: str) -> None:
    assert_refused(divided.cdc(*arguments), Exit.CONFIG, words)
