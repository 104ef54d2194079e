"""Requests on doubles: whole tables joined, rows by condition or key, commands, the first rows, all or none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from cdc.operate.snapshot_requests import (
    RereadPorts,
    Rereads,
    WantedRows,
    captured_table,
    first_requests,
    key_texts,
    progress_of,
)
from cdc.process.clock import ManualClock
from cdc.process.errors import ConfigError, SourceError, UsageError
from cdc.record.row_condition import Condition
from cdc.record.schema import Column, Identity, TableSchema
from cdc.record.state import (
    CommandState,
    ReadingState,
    RequestState,
    SnapshotState,
    TopicsState,
    find_all,
    requests_of,
    with_command,
)
from cdc.record.tables_aside import AsideState, Cause, TableState
from cdc.record.topic_names import TableName
from tests.killing import Killed, Steps, every_kill
from tests.memory_log import MemoryCompactedTopic

TABLES = ("public.a", "public.b", "other.b")
SNAPSHOT = SnapshotState(epoch=1, state="complete", consistent_point=10, last_cut_lsn=500)


def shape(table: TableName) -> TableSchema:
    columns = [
        Column(name=name, attnum=n, type="int8", type_oid=20, kind="int8", nullable=False, key_position=n)
        for n, name in enumerate(("id", "part"), 1)
    ]
    return TableSchema(
        table=table,
        topic=f"shop.{table}",
        version=1,
        oid=1,
        encoding="readable",
        identity=Identity.DEFAULT,
        columns=tuple(columns),
    )


class World:
    """A pipeline of three tables, its first snapshot complete."""

    def __init__(self, steps: Steps | None = None, snapshot: SnapshotState | None = SNAPSHOT) -> None:
        self.steps = steps or Steps()
        self.clock = ManualClock()
        self.away = self.refuses = False
        self.known = True
        topics = TopicsState(cluster_id="c", tables={table: f"shop.{table}" for table in TABLES})
        made = [one for one in (topics, snapshot) if one is not None]
        self.state = MemoryCompactedTopic({one.key(): one.to_json() for one in made})

    def insert_lsn(self) -> int:
        return 700

    def check(self, table: TableName, wanted: Condition) -> None:
        if self.refuses:
            raise ConfigError(f"that is no condition on {table}")

    @contextmanager
    def source(self) -> Iterator[World]:
        if self.away:
            raise SourceError("Postgres is away")
        yield self

    def rereads(self) -> Rereads:
        ports = RereadPorts(
            state=self.steps.over("state", self.state),
            source=self.source,
            shape=lambda table: shape(table) if self.known else None,
        )
        return Rereads(ports, self.clock)

    def asked(self) -> list[RequestState]:
        return requests_of(self.state.read())

    def note(self, **members: object) -> None:
        told: dict[str, object] = {"id": "snapshot:public.a", "table": "public.a", "serial": 1, "epoch": 1, **members}
        noted = ReadingState(**told)  # type: ignore[arg-type]
        self.state.write([(noted.key(), noted.to_json())])


def test_h97_a_whole_table_is_asked_for_once() -> None:
    world = World()
    (first,) = world.rereads().ask(["a"], WantedRows())
    assert (first.id, first.table, first.after_lsn) == ("snapshot:public.a", "public.a", 700)
    world.clock.advance(1)
    again = world.rereads().ask(["public.a", "other.b"], WantedRows())
    assert {one.id: one.serial for one in again}["snapshot:public.a"] == first.serial
    assert sorted(one.table for one in world.asked()) == ["other.b", "public.a"]


def test_h120_a_request_by_hand_replaces_one_for_a_table_aside() -> None:
    """The request that is under way waits for the cause to go; the operator's takes the table as it is."""
    world = World()
    (first,) = world.rereads().ask(["public.a"], WantedRows())
    aside = AsideState(
        table="public.a",
        epoch=1,
        state=TableState.ASIDE,
        cause=Cause.CHANGED,
        detail="its key is another one",
        since_lsn=600,
        since_ms=0,
    )
    world.state.write([(aside.key(), aside.to_json())])
    world.clock.advance(1)
    (again,) = world.rereads().ask(["public.a"], WantedRows())
    assert again.by_hand
    assert again.serial > first.serial


def test_h142_a_dotted_schemas_table_has_several_names() -> None:
    world = World()
    topics = TopicsState(cluster_id="c", tables={"my.schema.t": "shop.t", "public.a": "shop.a"})
    world.state.write([(topics.key(), topics.to_json())])
    for name in ("t", "my.schema.t"):
        (asked,) = world.rereads().ask([name], WantedRows())
        assert asked.table == "my.schema.t"


def test_rows_are_asked_for_by_condition_and_key_each_time_anew() -> None:
    world = World()
    for _ in range(2):
        world.rereads().ask(["a"], WantedRows(where="id > 3"))
        world.rereads().ask(["a"], WantedRows(keys=["1:2", "a%3Ab:2"]))
        world.clock.advance(1)
    asked = world.asked()
    assert len(asked) == 4
    assert [one.where for one in asked if one.where] == ['"id" > 3'] * 2
    assert [one.keys for one in asked if one.keys] == [[["1", "2"], ["a:b", "2"]]] * 2


@pytest.mark.parametrize(
    ("tables", "wanted", "words"),
    [
        (["a", "never"], WantedRows(), "never is no captured table"),
        (["b"], WantedRows(), "b is more than one captured table"),
        (["a"], WantedRows(where="secret = 1"), "no captured column secret"),
        (["a"], WantedRows(where="id ="), "no condition on public.a"),
        (["a"], WantedRows(keys=["1"]), "has 2 columns, one of --keys has 1"),
    ],
)
def test_what_cannot_be_carried_out_is_not_asked_for(tables: list[str], wanted: WantedRows, words: str) -> None:
    world = World()
    with pytest.raises((UsageError, ConfigError), match=words):
        world.rereads().ask(tables, wanted)
    assert world.asked() == []


def test_nothing_is_written_where_the_source_refuses_or_is_away() -> None:
    world = World()
    world.refuses = True
    with pytest.raises(ConfigError, match="no condition"):
        world.rereads().ask(["a"], WantedRows(where="id = 1"))
    world.away = True
    with pytest.raises(SourceError, match="away"):
        world.rereads().ask(["a"], WantedRows())
    world.away = world.refuses = world.known = False
    with pytest.raises(ConfigError, match="the shape of "):
        world.rereads().ask(["a"], WantedRows(where="id = 1"))
    assert world.asked() == []


def test_before_the_first_snapshot_no_table_is_read_again() -> None:
    with pytest.raises(UsageError, match="the first snapshot takes every table"):
        World(snapshot=None).rereads().ask(["a"], WantedRows())


def test_a_wish_counts_for_the_request_that_was_seen() -> None:
    world = World()
    with pytest.raises(UsageError, match="no table is being read again"):
        world.rereads().command([], "paused")
    world.rereads().ask(["public.a", "public.b"], WantedRows())
    assert world.rereads().command(["a"], "paused") == ["public.a: paused"]
    (command,) = find_all(world.state.read(), CommandState)
    seen = {one.table: with_command(one, command if one.id == command.id else None).state for one in world.asked()}
    assert seen == {"public.a": "paused", "public.b": "asked"}
    assert len(world.rereads().command([], "cancelled")) == 2


def test_a_request_is_followed_by_its_serial() -> None:
    world = World()
    (asked,) = world.rereads().ask(["a"], WantedRows())
    assert world.rereads().look([asked]) == [None]
    world.note(serial=asked.serial - 1)
    assert world.rereads().look([asked]) == [None]
    world.note(serial=asked.serial + 1, state="running")
    (found,) = world.rereads().look([asked])
    assert found is not None
    assert found.state == "running"


def test_first_rows_are_asked_for_once() -> None:
    world = World(snapshot=None)
    world.note(state="done", first=True)
    world.rereads().ask_first()
    world.clock.advance(1)
    before = world.asked()
    world.rereads().ask_first()
    assert world.asked() == before
    assert sorted(one.table for one in before) == ["other.b", "public.b"]


@pytest.mark.parametrize("change", [{"state": "running"}, {"rows": 7}])
def test_first_rows_are_not_asked_for_beside_their_snapshot(change: dict[str, object]) -> None:
    members: dict[str, object] = {"epoch": 1, "state": "complete", "consistent_point": 0, "last_cut_lsn": 0, **change}
    with pytest.raises(UsageError, match="has begun with its rows"):
        World(snapshot=SnapshotState(**members)).rereads().ask_first()  # type: ignore[arg-type]


def test_a_call_killed_at_any_step_is_run_again() -> None:
    def run(world: World) -> None:
        world.rereads().ask(["public.a", "public.b"], WantedRows())
        world.rereads().command([], "paused")

    for steps in every_kill(lambda steps: run(World(steps))):
        world = World(steps)
        with pytest.raises(Killed):
            run(world)
        world.steps = Steps()
        run(world)
        assert sorted(one.table for one in world.asked()) == ["public.a", "public.b"]
        assert {one.state for one in find_all(world.state.read(), CommandState)} == {"paused"}


@pytest.mark.parametrize(
    "documents",
    [
        (),
        (SNAPSHOT,),
        (TopicsState(cluster_id="c", tables={"public.a": "shop.public.a"}),),
        (
            TopicsState(cluster_id="c", tables={"public.a": "shop.public.a"}),
            SnapshotState(epoch=1, state="running", consistent_point=10, last_cut_lsn=500),
        ),
    ],
)
def test_tables_are_known_once_the_first_snapshot_is_complete(documents: tuple[SnapshotState | TopicsState]) -> None:
    with pytest.raises(UsageError, match="the first snapshot takes every table") as refused:
        captured_table({one.key(): one.to_json() for one in documents}, "public.a")
    assert refused.value.hint == "cdc snapshot, without a table"


def test_keys_are_asked_for_column_by_column() -> None:
    table = shape(TableName("public", "a"))
    assert key_texts([["1", "2"], ["3", "4"]], table) == (("1", "2"), ("3", "4"))
    assert key_texts([], table) == ()


def test_before_init_there_are_no_tables_to_read_first() -> None:
    with pytest.raises(ConfigError, match="the pipeline has no topics yet") as refused:
        first_requests({}, 1)
    assert refused.value.hint == "cdc init makes them"


def test_first_rows_are_of_the_tables_that_nobody_read_first() -> None:
    """A table that was read again, or whose first reading goes on or failed, has its first rows to come."""
    world = World()
    world.note(state="done", first=True)
    world.note(id="snapshot:public.b", table="public.b", state="done", first=False)
    world.note(id="snapshot:other.b", table="other.b", state="failed", first=True)
    found = first_requests(world.state.read(), 77)
    assert [(one.id, one.table, one.after_lsn, one.serial, one.first) for one in found] == [
        ("snapshot:public.b", "public.b", 0, 77, True),
        ("snapshot:other.b", "other.b", 0, 77, True),
    ]
    world.rereads().ask(["public.b"], WantedRows())
    assert [one.table for one in first_requests(world.state.read(), 77)] == ["public.b", "other.b"]
    world.state.write([(found[0].key(), found[0].to_json())])
    assert [one.table for one in first_requests(world.state.read(), 77)] == ["other.b"]


def test_a_request_is_under_way_from_its_own_serial_on() -> None:
    world = World()
    (asked,) = world.rereads().ask(["a"], WantedRows())
    found = []
    for serial in (asked.serial - 1, asked.serial, asked.serial + 1):
        world.note(serial=serial)
        found += progress_of(world.state.read(), [asked])
    assert [one.serial if one is not None else None for one in found] == [None, asked.serial, asked.serial + 1]


def test_a_request_that_a_newer_one_replaces_is_not_over() -> None:
    """As where a table is followed again meanwhile: the older one ends as cancelled, and the newer one is read."""
    world = World()
    (asked,) = world.rereads().ask(["a"], WantedRows())
    world.note(serial=asked.serial, state="cancelled")
    cancelled = progress_of(world.state.read(), [asked])
    newer = replace(asked, serial=asked.serial + 1)
    world.state.write([(newer.key(), newer.to_json())])
    replaced = progress_of(world.state.read(), [asked])
    world.note(serial=newer.serial, state="done")
    done = progress_of(world.state.read(), [asked])
    assert [one.state if one is not None else None for one in (*cancelled, *replaced, *done)] == [
        "cancelled",
        None,
        "done",
    ]
