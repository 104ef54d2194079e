"""What is read when parts do not answer: each is Unknown by itself, and hides no other."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from cdc.process.clock import ManualClock
from cdc.process.errors import CdcError, Exit, LogError, SinkError, SourceError, TopicError
from cdc.record.ports import Unknown
from cdc.record.progress import Mark, Offsets, Watermark
from cdc.record.server_facts import PublicationFacts
from cdc.record.state import SlotState, SnapshotState, TopicsState
from cdc.record.topic_names import TableName
from cdc.status.facts import ConnectorFacts, SourceState, StatusFacts, StatusPorts
from cdc.status.run import StatusPlan, StatusReader
from cdc.wire.dead_letter import DeadLetter, Why
from tests.unit.cdc.checks.test_postgres import KNOWN, SERVER, SLOT
from tests.waiting import wait_until

TOPICS = TopicsState(
    cluster_id="c",
    topics={"shop.public.a": {"id": "x", "partitions": 1}},
    tables={"public.a": "shop.public.a", "public.left_out": "shop.public.left_out"},
)
SNAPSHOT = SnapshotState(epoch=1, state="complete", consistent_point=10, last_cut_lsn=500)


@dataclass
class World:
    """A pipeline with two sinks; ``away``: by part, the error that it answers with."""

    away: dict[str, CdcError] = field(default_factory=dict)
    postgres: bool = True
    closed: list[str] = field(default_factory=list)
    opened: list[str] = field(default_factory=list)
    used: bool = True
    hanging: dict[str, threading.Event] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    held: dict[bytes, bytes] = field(
        default_factory=lambda: {one.key(): one.to_json() for one in (KNOWN, SNAPSHOT, TOPICS)}
    )

    def ask(self, part: str) -> None:
        self.asked[part] += 1
        if part in self.hanging:
            assert self.hanging[part].wait(60)
        if part in self.away:
            raise self.away[part]

    def state(self) -> Mapping[bytes, bytes]:
        self.ask("log")
        return self.held

    def marks(self) -> Sequence[Mark]:
        return [Mark(1, 400, 9)]

    def letters(self) -> list[DeadLetter]:
        self.ask("letters")
        return [
            DeadLetter(
                sink="cache", why=Why.REFUSED, topic="t", partition=0, offset=1, reason="no", key=b"k", value=b""
            )
        ]

    def ends(self, topics: Sequence[str]) -> Offsets:
        self.ask("ends")
        return {topic: {0: 7} for topic in topics}

    def facts(self) -> SourceState:
        self.ask("source")
        return SourceState(address="here", server=SERVER, slot=SLOT)

    def publication(self) -> PublicationFacts | None:
        self.ask("publication")
        tables = frozenset((TableName("public", "a"),))
        return PublicationFacts(
            publication="cdc_shop", operations=frozenset(("insert",)), tables=tables, via_root=False
        )

    def relations(self, tables: Sequence[str], oids: Sequence[int]) -> Mapping[int, TableName]:
        return {oid: TableName(*table.split(".")) for oid, table in enumerate(tables)}

    def children(self, oids: Sequence[int]) -> Mapping[int, Sequence[TableName]]:
        return {}

    def close(self) -> None:
        self.closed.append("source")

    def connector(self) -> ConnectorFacts:
        self.ask("connector")
        return ConnectorFacts(
            name="c", database="mysql", address="a", state="RUNNING", fault="", snapshot="", position="", lsn=None
        )

    def open_store(self, sink: str) -> Store:
        self.ask(sink)
        self.opened.append(sink)
        return Store(self, sink)

    @contextmanager
    def briefly(self) -> Iterator[None]:
        yield

    def look(self) -> StatusReader:
        plan = StatusPlan(
            name="shop",
            slot="cdc_shop",
            sinks={"cache": "redis", "search": "opensearch"},
            takes=lambda table: table != "public.left_out",
            views=("slim",),
        )
        return StatusReader(plan, self.ports(), ManualClock(), limit_s=0.5 if self.hanging else 60)

    def ports(self) -> StatusPorts:
        return StatusPorts(
            log=self,
            source=self if self.postgres else None,
            connector=None if self.postgres else self.connector,
            open_store=self.open_store,
            briefly=self.briefly,
        )

    def shown_by(self, sink: str) -> Watermark | None:
        return Watermark(epoch=1, lsn=300)

    def read(self) -> StatusFacts:
        with self.look() as look:
            return look.read()


@dataclass
class Store:
    world: World
    name: str

    @property
    def watermarks(self) -> Store:
        return self

    def read(self) -> Watermark | None:
        self.world.ask(self.name)
        return self.world.shown_by(self.name)

    def current(self) -> bool:
        return self.world.used

    def close(self) -> None:
        self.world.closed.append(self.name)


def test_everything_that_answers_is_read_and_closed() -> None:
    world = World()
    facts = world.read()
    assert (facts.slot, facts.snapshot, facts.marks) == (KNOWN, SNAPSHOT, [Mark(1, 400, 9)])
    assert [(s.name, s.kind, s.watermark, s.parked) for s in facts.sinks] == [
        ("cache", "redis", Watermark(epoch=1, lsn=300), 1),
        ("search", "opensearch", Watermark(epoch=1, lsn=300), 0),
    ]
    assert list(facts.not_followed) == ["public.a"]
    assert (facts.log, facts.connector, facts.ends) == (None, None, {})
    assert sorted(world.closed) == ["cache", "search", "source"]


def test_h109_a_log_that_is_away_hides_no_other_part() -> None:
    away = LogError("Kafka is away")
    facts = World(away={"log": away}).read()
    assert facts.log == facts.slot == facts.snapshot == Unknown(away)
    assert [(view.name, view.known) for view in facts.views] == [("slim", False)]
    assert (facts.marks, facts.not_followed) == ((), {})
    assert [(s.watermark, s.parked) for s in facts.sinks] == [(Watermark(epoch=1, lsn=300), None)] * 2
    assert isinstance(facts.source, SourceState)


@pytest.mark.parametrize("part", ["source", "publication"])
def test_h109_a_source_that_is_away_hides_no_other_part(part: str) -> None:
    away = SourceError("Postgres is away")
    facts = World(away={part: away}).read()
    assert facts.source == Unknown(away)
    assert facts.not_followed == {}
    assert facts.slot == KNOWN


def test_h109_a_store_that_is_away_hides_no_other_store() -> None:
    away = SinkError("Redis is away")
    facts = World(away={"cache": away}).read()
    assert [s.watermark for s in facts.sinks] == [Unknown(away), Watermark(epoch=1, lsn=300)]


def test_a_pipeline_without_dead_letters_has_no_parked_key() -> None:
    facts = World(away={"letters": TopicError("no such topic")}).read()
    assert [s.parked for s in facts.sinks] == [0, 0]


def test_h113_an_unreadable_document_is_a_fault_of_the_log_alone() -> None:
    world = World()
    world.held[KNOWN.key()] = b"{"
    facts = world.read()
    assert isinstance(facts.log, Unknown)
    assert isinstance(facts.source, SourceState)


def test_before_the_slot_is_noted_no_table_counts_as_left_behind() -> None:
    world = World()
    del world.held[KNOWN.key()]
    assert SlotState.find(world.held) is None
    assert world.read().not_followed == {}


def test_another_database_is_judged_by_connector_and_topic_ends() -> None:
    facts = World(postgres=False).read()
    assert facts.source is None
    assert isinstance(facts.connector, ConnectorFacts)
    assert facts.ends == {"shop.public.a": {0: 7}, "shop.public.left_out": {0: 7}}
    away = LogError("Kafka Connect is away")
    assert World(postgres=False, away={"connector": away}).read().connector == Unknown(away)
    silent = World(postgres=False, away={"ends": away}).read()
    assert (silent.log, silent.ends) == (Unknown(away), {})


def test_stores_are_kept_until_another_generation_is_in_use() -> None:
    world = World()
    with world.look() as look:
        look.read()
        look.read()
        assert sorted(world.opened) == ["cache", "search"]
        world.used = False
        look.read()
        assert len(world.opened) == 4
    assert len(world.closed) == 5


PARTS = ["log", "letters", "source", "publication", "cache"]


def askers_since(before: Collection[threading.Thread]) -> list[threading.Thread]:
    """Not a count of all threads: one of an earlier test may end in the meantime."""
    return [one for one in threading.enumerate() if one.name.startswith("status ") and one not in before]


@pytest.mark.parametrize("part", PARTS)
def test_h272_a_part_that_hangs_hides_no_other(part: str) -> None:
    """It is not known, in its own words, and is asked again only when it has ended."""
    world = World(hanging={part: threading.Event()})
    before = set(threading.enumerate())
    with world.look() as look:
        for _ in range(3):
            facts = look.read()
            unknown = {
                "log": isinstance(facts.log, Unknown),
                "letters": facts.sinks[0].parked is None and facts.log is None,
                "source": isinstance(facts.source, Unknown),
                "publication": isinstance(facts.source, Unknown),
                "cache": isinstance(facts.sinks[0].watermark, Unknown),
            }
            same = {"source": {"source", "publication"}, "publication": {"source", "publication"}}
            no_letters = {"log": {"log"}}
            assert {one for one, silent in unknown.items() if silent} == same.get(part, no_letters.get(part, {part}))
            assert facts.sinks[1].watermark == Watermark(epoch=1, lsn=300)
            wait_until(lambda: len(askers_since(before)) <= 1, 20)  # A part that hangs has one thread.
        assert world.asked[part] == 1
        world.hanging[part].set()
        wait_until(lambda: not askers_since(before), 20)
        assert look.read().source == World().read().source
        assert world.asked[part] > 1


@pytest.mark.parametrize(("part", "words"), [("source", "Postgres has not answered in 0.5 s"), ("cache", "it has not")])
def test_h272_a_part_that_hangs_is_named(part: str, words: str) -> None:
    world = World(hanging={part: threading.Event()})
    with world.look() as look:
        facts = look.read()
        found = facts.source if part == "source" else facts.sinks[0].watermark
        world.hanging[part].set()
    assert isinstance(found, Unknown)
    assert str(found).startswith(words)
    assert (found.because.exit, "asks at once" in found.because.hint) == (Exit.UNAVAILABLE, True)


def test_h272_what_a_part_that_hangs_uses_is_not_closed() -> None:
    """Its end would wait for the part as well. It ends with the process."""
    world = World(hanging={"cache": threading.Event(), "source": threading.Event()})
    with world.look() as look:
        look.read()
    assert world.closed == []
    for one in world.hanging.values():
        one.set()


def test_a_bug_in_a_look_is_no_silence() -> None:
    world = World()
    with pytest.raises(KeyError, match="cache"), world.look() as look:
        world.away = Fails()
        look.read()


class Fails(dict[str, CdcError]):
    def __contains__(self, part: object) -> bool:
        if part == "cache":
            raise KeyError(part)
        return False


def test_each_part_s_answer_has_its_time() -> None:
    assert set(World().read().answered_s) >= {"log", "source", "store cache", "store search"}
