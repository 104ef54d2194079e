"""Two shards of capture on real servers: each on its own, together one pipeline."""

from __future__ import annotations

import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace

import pytest

from cdc.aside import asides_of
from cdc.crash import CRASH_EXIT
from cdc.errors import ConfigError, Exit
from cdc.shard_documents import tables_of
from cdc.shard_plan import each_shard, state_topic_of
from cdc.state import TopicsState
from cdc.wiring.sinks import build_sinks
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted import KafkaCompactedTopic
from connectors.postgres.connections import writer_lock
from connectors.whole_state import read_known_each
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
MOVING = (
    "shards_noted", "epoch_slot_dropped", "epoch_noted", "shard_epoch_noted", "table_taken", "publication_left",
    "table_given_up",
)  # fmt: skip
"""The crash points of a takeover, in the order of its steps."""
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

    def run(self, shard: str) -> Spawned:
        return self.pipeline.spawn("cdc", "--config", self.pipeline.config(), "run", "--shard", shard)

    def start(self, shard: str) -> None:
        run = self.runs[shard] = self.run(shard)
        wait_until(lambda: self.pipeline.said(run, "streaming"), 30, lambda: run.stderr)

    def spoil(self, *statements: str) -> None:
        """Change the store behind everybody's back."""
        with closing(sqlite3.connect(self.pipeline.folder / "store.db")) as store, store:
            for statement in statements:
                store.execute(statement)

    def stored(self, table: str) -> int:
        """How many rows the store has of a table."""
        with closing(sqlite3.connect(self.pipeline.folder / "store.db")) as store:
            return int(store.execute(f"select count(*) from {table}").fetchone()[0])

    def shard_of(self, table: str) -> str:
        """The shard that a sink takes for the table's."""
        topics = build_sinks(load_settings(self.pipeline.config()), ["store"]).facts.topics("store")
        return topics.shards[f"{self.pipeline.name}.{table}"]

    @property
    def slot(self) -> str:
        return self.pipeline.settings.slot

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
def divided(pipeline: Pipeline, run_cdc: RunCdc) -> Divided:
    pipeline.document["source"]["tables"] = ["public.orders", "public.others"]
    pipeline.document["capture"]["shards"] = SHARDS
    pipeline.document["sinks"] = {"store": {"kind": "sql", "url": f"sqlite:///{pipeline.folder}/store.db"}}
    pipeline.execute(*TABLES)
    return Divided(pipeline, run_cdc)


def tables_of_shards(divided: Divided) -> list[set[str]]:
    """The tables that each shard's state topic has."""
    states = read_known_each(divided.pipeline.settings)
    return [set(tables_of(states[shard])) for shard in divided.pipeline.settings.capture.shards]


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
        # What it has otherwise is mended in the epoch of the shard that writes the table.
        divided.spoil(
            "update public_orders set status = 'wrong' where id = 2", "delete from public_others where id = 3"
        )
        assert divided.cdc("verify", "store").returncode == 1
        divided.good("verify", "--repair", "store")
        divided.good("verify", "store")
        events = divided.good("events", "--from-beginning", "--until-caught-up")
        assert {"orders", "others"} <= {line.split()[0] for line in events.splitlines()}
        divided.good("dead", "list")
    for shard, run in divided.runs.items():
        assert run.terminate() == 0, f"{shard}: {run.stderr}"
    made = divided.pipeline.one(
        "select array_agg(slot_name::text) from pg_replication_slots where database = current_database()"
    )
    assert set(made) == slots
    divided.good("drop", "--shard", "sales", "--topics", "--yes")
    assert tables_of_shards(divided) == [set(), {"public.others"}]
    divided.good("drop", "--topics", "--yes")
    names = TopicAdmin(divided.pipeline.settings.log).names()
    assert [name for name in names if name.startswith(f"{divided.pipeline.name}.")] == []
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
        for point in MOVING:
            divided.killed_at(point, *again)
            assert divided.shard_of("public.orders") in SHARDS, "a moved table is in a shard at each moment"
            if point != "table_given_up":
                assert_refused(divided.cdc("run", "--shard", "rest"), Exit.CONFIG, "is written by the shard sales")
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


def test_h408_a_generation_is_filled_from_all_shards(divided: Divided) -> None:
    """A rebuild reads the topics of both, and is over when it shows what each of them had brought."""
    divided.set_up()
    for shard in SHARDS:
        divided.start(shard)
    with divided.followed():
        divided.assert_waits(divided.written("update orders set status = 'paid'", "update others set note = 'new'"))
    divided.spoil("delete from public_orders where id = 2")
    divided.good("rebuild", "store")
    with divided.followed():
        divided.assert_waits(divided.written("delete from orders where id = 1", "delete from others where id = 1"))
        divided.good("verify", "store")


def test_h402_a_session_takes_no_table_back_that_moved_meanwhile(divided: Divided) -> None:
    """Another shard takes the table over while a capture with the settings of before waits for its lock."""
    divided.set_up()
    with divided.pipeline.session() as held:
        held.execute("select pg_advisory_lock_shared(%s, %s)", writer_lock(f"{divided.pipeline.name}/sales"))
        run = divided.run("sales")
        wait_until(lambda: divided.pipeline.said(run, "waiting_for_lock"), 60, lambda: run.stderr)
        sales, rest = (
            KafkaCompactedTopic(one.log, state_topic_of(one)) for one in each_shard(divided.pipeline.settings)
        )
        former, taker = (TopicsState.find(topic.read()) for topic in (sales, rest))
        assert former is not None
        assert taker is not None
        moved = replace(taker, tables={**taker.tables, **former.tables}, topics={**taker.topics, **former.topics})
        rest.write([(moved.key(), moved.to_json())])
        topics = {topic: facts for topic, facts in former.topics.items() if topic not in former.tables.values()}
        given_up = replace(former, tables={}, topics=topics)
        sales.write([(given_up.key(), given_up.to_json())])
    assert run.wait(60) == Exit.CONFIG, run.stderr
    assert "public.orders is written by the shard rest" in run.stderr


def test_h405_a_shard_that_the_settings_lack_is_refused(divided: Divided) -> None:
    """It was renamed: its capture may run on, beside that of the new name."""
    divided.set_up()
    divided.pipeline.document["capture"]["shards"] = {"shop": ["public.orders"], "rest": ["public.others"]}
    words = "has a shard sales, which [capture.shards] does not name: it writes public.orders"
    for command in (("run", "--shard", "rest"), ("init", "--shard", "rest"), ("verify", "store")):
        assert_refused(divided.cdc(*command), Exit.CONFIG, words)
    with pytest.raises(ConfigError, match="has a shard sales"):
        build_sinks(load_settings(divided.pipeline.config()), ["store"]).facts.topics("store")
    again = ("init", "--shard", "shop", "--new-epoch", "--yes")
    for point in ("shard_epoch_noted", "shard_ended"):
        divided.killed_at(point, *again)
    divided.good(*again)
    divided.good("snapshot", "--shard", "shop", "--workers", "1")
    for shard in ("shop", "rest"):
        divided.start(shard)
    with divided.followed():
        divided.assert_waits(divided.written("update orders set status = 'paid'", "update others set note = 'new'"))
        divided.good("verify", "store")
    slots = divided.pipeline.one("select array_agg(slot_name::text) from pg_replication_slots")
    assert {slot.rpartition("__")[2] for slot in slots if slot.startswith(divided.slot)} == {"shop", "rest"}


def test_h439_a_shard_that_ends_before_its_snapshot(divided: Divided) -> None:
    """It has its publication by then, and no slot of which anything is noted."""
    divided.good("init")
    divided.pipeline.document["capture"]["shards"] = {"shop": ["public.orders"], "rest": ["public.others"]}
    divided.good("init", "--shard", "shop", "--new-epoch", "--yes")
    made = divided.pipeline.one("select array_agg(pubname::text) from pg_publication")
    assert {name.rpartition("__")[2] for name in made if name.startswith(divided.slot)} == {"shop", "rest"}
    divided.good("snapshot", "--workers", "1")


def test_h401_a_captured_partition_of_another_shards_tree(divided: Divided) -> None:
    """The catalog says of which tree it is, and the settings which shard takes that."""
    divided.pipeline.execute(
        "create table trees (id int primary key) partition by range (id)",
        "create table leaves partition of trees for values from (0) to (100)",
    )
    divided.pipeline.document["source"]["tables"] = ["public.trees", "public.leaves"]
    divided.pipeline.document["capture"]["shards"] = {"sales": ["public.trees"], "rest": ["public.leaves"]}
    words = "public.leaves is a partition of public.trees, which the shard sales takes with all its rows"
    assert words in (done := divided.cdc("init", "--shard", "rest")).stdout + done.stderr
    assert done.returncode != 0
    divided.good("init", "--shard", "sales")


def asides_by_shard(divided: Divided) -> dict[str, set[str]]:
    """The tables that each shard's state topic has set aside."""
    states = read_known_each(divided.pipeline.settings)
    return {shard: set(asides_of(states[shard])) for shard in SHARDS}


def test_h440_a_shard_with_a_table_aside_starts_again(divided: Divided) -> None:
    """Its state topic says so, and no other one: the other shard's tables go on, and so does it after a kill."""
    divided.pipeline.execute("create table beside (id int primary key)")
    divided.pipeline.document["source"]["tables"] = ["public.orders", "public.beside", "public.others"]
    together = ["public.orders", "public.beside"]
    divided.pipeline.document["capture"]["shards"] = {"sales": together, "rest": ["public.others"]}
    divided.set_up()
    for shard in SHARDS:
        divided.start(shard)
    with divided.followed():
        divided.assert_waits(divided.written("update orders set status = 'paid'", "update others set note = 'new'"))
        divided.pipeline.execute(
            "alter table orders drop constraint orders_pkey, alter status set not null, add primary key (id, status)",
            "insert into orders values (42, 'paid')",
        )
        said = {"sales": {"public.orders"}, "rest": set[str]()}
        wait_until(lambda: asides_by_shard(divided) == said, 60, lambda: divided.runs["sales"].stderr)
        divided.runs["sales"].kill()
        token = divided.written("insert into others values (42, 'late')")
        divided.assert_waits(token, "--table", "public.others")
        divided.start("sales")
        token = divided.written("insert into beside values (1)", "insert into orders values (43, 'late')")
        wait_until(lambda: divided.stored("public_beside") == 1, 60, lambda: divided.runs["sales"].stderr)
        assert asides_by_shard(divided) == said, "a start takes nobody back whose key has changed"
        refused = divided.cdc("wait", "store", token, "--table", "public.orders", "--timeout", "3")
        assert_refused(refused, Exit.DIFFERENCE, "public.orders")
        assert "public.orders" in divided.status().stdout
        divided.good("snapshot", "--shard", "sales", "public.orders")
        wait_until(lambda: not any(asides_by_shard(divided).values()), 60, lambda: divided.runs["sales"].stderr)
        divided.assert_waits(divided.written("delete from orders where id = 42", "delete from others where id = 42"))
        divided.good("verify", "store")


def test_h404_with_and_without_shards_do_not_mix(divided: Divided) -> None:
    divided.set_up()
    del divided.pipeline.document["capture"]["shards"]
    for command in ("init", "run"):
        assert_refused(divided.cdc(command), Exit.CONFIG, "is divided into the shards rest, sales")


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
        (("forget", "public.orders", "1"), "cdc forget does not work for a pipeline with"),
        (("share", "store", "2"), "cdc share does not work for a pipeline with"),
        (("sink", "store", "--share", "1/2"), "--share and [capture.shards] cannot be had together yet"),
        (("init", "--new-epoch", "--yes"), "cdc init --new-epoch is of one capture"),
        (("status", "--watch"), "cdc status --watch is of one capture"),
    ],
)
def test_commands_that_do_not_know_shards_refuse(divided: Divided, arguments: tuple[str, ...], words: str) -> None:
    assert_refused(divided.cdc(*arguments), Exit.CONFIG, words)
