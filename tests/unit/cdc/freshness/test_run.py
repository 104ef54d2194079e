"""Waiting for a store on doubles: epochs, a log that is away, another generation, what waits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from cdc.freshness.run import WaitPorts, Waits
from cdc.process.clock import ManualClock
from cdc.process.errors import DifferenceFound, LogError, SinkError, TopicError
from cdc.record.position import Lsn
from cdc.record.progress import EpochsState, Hold, Watermark, epoch_of
from cdc.record.source_lineage import SourceLineage
from cdc.record.state import SlotState
from cdc.record.tokens import Token
from cdc.wire.dead_letter import DeadLetter, Why


@dataclass
class Store:
    held: Watermark | None = None
    later: list[Watermark] = field(default_factory=list)
    used: bool = True
    closed: bool = False
    away: bool = False

    @property
    def watermarks(self) -> Store:
        return self

    def read(self) -> Watermark | None:
        if self.away:
            raise SinkError("the store is away")
        if self.later:
            self.held = self.later.pop(0)
        return self.held

    def current(self) -> bool:
        return self.used

    def close(self) -> None:
        self.closed = True


@dataclass
class World:
    """A store that shows one LSN, in a pipeline of epoch 2."""

    stores: list[Store] = field(default_factory=lambda: [Store(Watermark(epoch=2, lsn=50))])
    epoch: int | None = 2
    log: Exception | None = None
    letters: list[DeadLetter] = field(default_factory=list)
    asked: int = 0
    nudged: int = 0
    brief: bool = False
    gtids: bool = False
    takes_s: float = 0.0
    clock: ManualClock = field(default_factory=ManualClock)

    def waits(self) -> Waits:
        ports = WaitPorts(
            open=self._open,
            briefly=self._briefly,
            epoch=self._epoch,
            letters=self._letters,
            nudge=self._nudge,
            require=lambda: None,
            place=lambda sink, table: f"shop.{table}",
        )
        return Waits(ports, self.clock)

    def _open(self, sink: str) -> Store:
        return next(store for store in self.stores if store.used and not store.closed)

    @contextmanager
    def _briefly(self) -> Iterator[None]:
        self.brief = True
        yield
        self.brief = False

    def _epoch(self) -> int | None:
        self.asked += 1
        if self.log is not None:
            raise self.log
        return self.epoch

    def _letters(self) -> list[DeadLetter]:
        if self.log is not None:
            raise self.log
        return self.letters

    def _nudge(self) -> None:
        self.nudged += 1


def test_it_returns_what_the_store_shows_and_asks_once() -> None:
    world = World()
    with world.waits() as waits:
        assert waits.wait("cache", 50) == Watermark(epoch=2, lsn=50)
        assert waits.wait("cache", 40).lsn == 50
        assert (waits.unsure, world.asked, world.nudged) == ("", 1, 0)
    assert world.stores[0].closed


def test_h88_a_store_of_an_older_epoch_shows_no_newer_token() -> None:
    world = World(epoch=3)
    with pytest.raises(DifferenceFound, match="cache stands at 0/32"):
        world.waits().wait("cache", 5, timeout_s=3)
    assert world.nudged == 1


def test_h109_without_the_log_the_stores_own_lsn_counts() -> None:
    world = World(log=LogError("Kafka is away"))
    waits = world.waits()
    assert waits.wait("cache", 50).lsn == 50
    assert waits.unsure == "the pipeline's epoch is not known, cache is in epoch 2: Kafka is away"
    with pytest.raises(LogError, match="Kafka is away"):
        waits.wait("cache", 51)
    world.stores[0].held = None
    with pytest.raises(LogError, match="Kafka is away"):
        waits.wait("cache", 1)
    world.log, world.stores[0].held = None, Watermark(epoch=2, lsn=60)
    assert waits.wait("cache", 60).lsn == 60
    assert waits.unsure == ""


def test_h88_a_new_epoch_shows_no_lsn_by_its_number_alone() -> None:
    world = World()
    waits = world.waits()
    assert waits.wait("cache", 50).epoch == 2
    world.epoch, world.stores[0].held = 3, Watermark(epoch=3, lsn=10)
    with pytest.raises(DifferenceFound, match="cache stands at 0/A"):
        waits.wait("cache", 50, timeout_s=1)
    world.stores[0].held = Watermark(epoch=3, lsn=60)
    assert waits.wait("cache", 50).epoch == 3
    assert world.asked == 2, "once more for the newer epoch"
    world.log, world.stores[0].held = LogError("Kafka is away"), Watermark(epoch=4, lsn=60)
    with pytest.raises(DifferenceFound):
        waits.wait("cache", 50, timeout_s=1)


def test_a_token_is_judged_without_the_log() -> None:
    held = Watermark(epoch=9, lsn=50, lineage=SourceLineage("7", 1))
    world = World(stores=[Store(held)], log=LogError("Kafka is away"))
    waits = world.waits()
    assert waits.wait("cache", Token("7", 1, Lsn(50))) == held
    assert (waits.unsure, world.asked) == ("", 0)
    with pytest.raises(DifferenceFound, match="the token is of 8/1"):
        waits.wait("cache", Token("8", 1, Lsn(1)), timeout_s=2)
    assert world.nudged == 1


def test_another_generation_is_opened_once_readers_see_it() -> None:
    world = World(stores=[Store(Watermark(epoch=2, lsn=50)), Store(Watermark(epoch=2, lsn=70))])
    waits = world.waits()
    assert waits.wait("cache", 50).lsn == 50
    world.stores[0].used = False
    assert waits.wait("cache", 50).lsn == 70


def test_a_store_that_does_not_answer_says_so() -> None:
    world = World(stores=[Store(away=True)])
    with pytest.raises(SinkError, match="away"):
        world.waits().wait("cache", 1)


def letter(sink: str, key: bytes) -> DeadLetter:
    return DeadLetter(
        sink=sink, why=Why.REFUSED, topic="t", partition=0, offset=1, reason="no", key=key, value=b"{}", headers=()
    )


def test_what_the_watermark_does_not_speak_of_is_told() -> None:
    world = World(letters=[letter("cache", b'{"id":1}'), letter("search", b'{"id":2}')])
    hold = Hold(table="public.a", reason="its columns changed", since_ms=0)
    world.stores[0].held = Watermark(epoch=2, lsn=50, held={"t": hold})
    waits = world.waits()
    assert list(waits.waiting("cache")) == [
        hold.sentence("cache"),
        'cache holds back t {"id":1}: cdc dead list says why',
    ]
    world.log = LogError("Kafka is away")
    assert list(waits.waiting("cache"))[1:] == ["not known whether cache holds back a key: Kafka is away"]
    world.log = TopicError("no topic")
    assert list(waits.waiting("cache"))[1:] == []


def test_the_epoch_is_the_slots_or_the_one_noted_of_a_connector() -> None:
    slot = SlotState(
        epoch=4,
        system_identifier="7",
        timeline=1,
        database="shop",
        database_oid=5,
        slot="s",
        publication="p",
        consistent_point=0,
    )
    epochs = EpochsState(latest=3)
    held = {slot.key(): slot.to_json(), epochs.key(): epochs.to_json()}
    assert (epoch_of(held, "postgres"), epoch_of(held, "debezium")) == (4, 3)
    assert (epoch_of({}, "postgres"), epoch_of({}, "debezium")) == (None, 1)


IDS = {"shop.a": "id", "shop.b": "id"}
SHOWN = Watermark(epoch=2, lsn=90, topic_ids=IDS)
HELD = Watermark(epoch=2, lsn=90, topic_ids=IDS, held={"shop.a": Hold(table="a", reason="it is read again")})
ANEW = Watermark(epoch=2, lsn=0, topic_ids=IDS)


def test_h461_a_table_that_was_held_counts_by_the_store_of_now() -> None:
    """Shown while it was held, spoken for when the store had begun anew: of no one moment do both say the LSN."""
    world = World([Store(HELD, later=[HELD, HELD, ANEW])])
    with pytest.raises(DifferenceFound, match="0/5A was not reached"):
        world.waits().wait("cache", 90, table="a", timeout_s=3)
    world = World([Store(HELD, later=[HELD, HELD, ANEW, ANEW, SHOWN])])
    assert world.waits().wait("cache", 90, table="a", timeout_s=3).lsn == 90


def test_h461_without_the_log_a_held_table_is_not_claimed() -> None:
    away = LogError("Kafka is away")
    with pytest.raises(LogError):
        World([Store(HELD)], log=away).waits().wait("cache", 90, table="a")
    waits = World([Store(SHOWN)], log=away).waits()
    assert (waits.wait("cache", 90, table="a").lsn, bool(waits.unsure)) == (90, True)
