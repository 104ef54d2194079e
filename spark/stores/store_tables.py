"""The tables of one store: their shapes, those that are held, and their places against what the store claims.

A claim holds for a table whose place is as far, of the same topic. Not all places are looked at when a sink starts, of
which there may be thousands: some are, the others before their first batch, or when their turn comes, within a minute.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from math import ceil
from typing import NamedTuple, TypeVar

from cdc.process.crash_points import crash_point, declare
from cdc.record.progress import Hold, Offsets, Watermark
from cdc.record.schema import TableSchema
from cdc.wire.dead_letter import DeadLetter
from sinks.contract.port import CannotCarry, OpenSink, PlaceMissing
from sinks.contract.table_places import SchemaBook, TablePlace
from spark.records.ports import SinkTopics
from spark.stores.apply import Shape
from spark.stores.holds import Holds, make_room
from spark.stores.place_check import StoreMoved, Surroundings, check_place
from spark.stores.store_calls import StoreCalls
from spark.stores.watermark import Claim

log = logging.getLogger(__name__)
T = TypeVar("T")

declare("tables_taken_back")

_AT_ONCE = 32
"""So many resting tables are looked at as a sink starts."""
_ROUND_S, _TURN_S = 60.0, 2.0
"""All tables are looked at within such a round: so often some of them."""


class TakenBack(NamedTuple):
    """A table whose place is below what its store claims. ``offsets``: from where it is read, nothing for all of it,
    from empty. ``since_ms``: when, in ms since 1970, it was last known to be level with the log."""

    shape: TableSchema
    offsets: Mapping[int, int]
    since_ms: int


def taken_back(
    shape: TableSchema, place: TablePlace | None, mark: Watermark | None, topics: SinkTopics, now_ms: int
) -> TakenBack | None:
    """A table that is not as its store claims it (``mark``). None where it is.

    It is read on from its place where the topic has all that came since: deletes are kept for a while alone. A
    history's topic keeps them as everything else, and the rows that are there stay: it is never emptied.
    """
    claimed = mark.offsets.get(shape.topic, {}) if mark is not None else {}
    hold = mark.held.get(shape.topic) if mark is not None else None
    claims, whole = any(claimed.values()), TakenBack(shape, {}, now_ms)
    if place is None:
        return whole if claims else None
    waited_s = (now_ms - (hold.since_ms if hold is not None and hold.since_ms else now_ms)) / 1000
    retention_s = math.inf if shape.history else topics.retention_s
    if place.topic_id != topics.ids[shape.topic] or waited_s > retention_s:
        return whole
    if claims and all(place.offsets.get(partition, 0) >= offset for partition, offset in claimed.items()):
        return None
    if (now_ms - place.level_ms) / 1000 > retention_s:
        return whole
    lower = {partition: min(offset, place.offsets.get(partition, 0)) for partition, offset in claimed.items()}
    return TakenBack(shape, lower, place.level_ms) if claims else None


def held_back(mark: Watermark, tables: Iterable[TakenBack]) -> Watermark:
    """The claim of a store until it was seen to such tables: they are held until they have come as far as its LSN."""
    holds = {one.shape.topic: Hold(table=str(one.shape.table), since_ms=one.since_ms) for one in tables}
    return replace(mark, held={**mark.held, **holds})


def lowered(mark: Watermark, tables: Iterable[TakenBack]) -> Watermark:
    """Its claim from then on, before they are read again."""
    found = {one.shape.topic: one.offsets for one in tables}
    kept: Offsets = {topic: parts for topic, parts in mark.offsets.items() if topic not in found}
    return replace(mark, offsets={**kept, **{topic: parts for topic, parts in found.items() if parts}})


class StoreTables(StoreCalls):
    """The store of one sink as far as its tables go, for which topics stand. ``connect`` opens it, and is called again
    once it was closed."""

    def __init__(self, name: str, connect: Callable[[], OpenSink], around: Surroundings) -> None:
        super().__init__(name, around)
        self.captured = SinkTopics()
        """The topics of all its tables."""
        self.topics = SinkTopics()
        """Those that it reads: all but those of held tables."""
        self.shown: Watermark | None = None
        self._connect = connect
        self._opened: OpenSink | None = None
        self._unsure: Watermark | None = None
        self._book = SchemaBook()
        self._shapes: Mapping[str, TableSchema] = {}
        self._absent: frozenset[Shape] = frozenset()
        self._holds = Holds(name, around.clock)
        self._order: list[str] = []
        self._unseen: set[str] = set()
        """Those that were not looked at since the store was opened."""
        self._suspects: set[str] = set()
        """Those that are to be looked at as it is opened again."""
        self._turn_s = around.clock.monotonic()
        self._led: Claim | None = None

    @property
    def offsets(self) -> Offsets:
        """The offsets that the store shows, by its last watermark. Empty for an empty store."""
        return self.shown.offsets if self.shown is not None else {}

    def learn(self, needs: frozenset[Shape]) -> None:
        """Read the schema topic, and make room in the store for every shape of the tables that were looked at. Versions
        that are still missing are absent.

        A table whose newest shape the store cannot take is held from here on, until the next :meth:`begin`.
        """
        shapes = [shape for shape in self._around.facts.schemas() if shape.topic in self.captured.ids]
        self._book = SchemaBook(shapes)
        self._shapes = {versions[0].topic: versions[0] for versions in self._book.tables()}
        self._seen(())
        self._absent |= {shape for shape in needs if shape not in self._book}

    def _seen(self, topics: Collection[str]) -> None:
        """These tables were looked at."""

        def make(versions: list[TableSchema]) -> None:
            if versions[0].topic not in self._holds.now:
                make_room(self._open().sink, versions, self._around.facts)

        self._unseen.difference_update(topics)
        for versions in self._book.tables():
            if versions[0].topic not in self._unseen:
                self._holding(partial(make, versions))
        self.topics = self.captured.without(self._holds.now)

    def _go_on(self) -> None:
        """Look at tables as the store begins. Of one that was taken back less is claimed, before it is read again."""
        held = self.shown.held if self.shown is not None else {}
        resting = sorted(topic for topic, parts in self.offsets.items() if any(parts.values()) and topic not in held)
        later = {*resting[_AT_ONCE:]} - self._suspects
        self._order, self._unseen, self._suspects = sorted(self.captured.ids), set(self.captured.ids), set()
        self._turn_s, self._led = self._around.clock.monotonic(), None
        self.learn(frozenset())
        topics = [topic for topic in self._order if topic in self._shapes and topic not in later]
        # A held table is held on, with its rows, while the store does not take its shape.
        self._seen([topic for topic in topics if topic in held])
        found = self._holding(lambda: self._taken_back(topics))
        if found and self.shown is not None:
            self._commit_as(held_back(self.shown, found))
        for one in found:
            self._open().places.taken_back(one.shape, empty=not (one.offsets or one.shape.history))
            log.warning("table_taken_back", extra={"sink": self.name, "table": str(one.shape.table)})
        crash_point("tables_taken_back")
        if found and self.shown is not None:
            self._commit_as(lowered(self.shown, found))
        self._seen(topics)

    def _taken_back(self, topics: Iterable[str]) -> list[TakenBack]:
        """Of some tables, those that are not as the store claims them."""
        places, now_ms = self._open().places, self._now_ms()
        shapes = [self._shapes[topic] for topic in topics if topic not in self._holds.now]
        found = (taken_back(shape, places.read(shape), self.shown, self.captured, now_ms) for shape in shapes)
        return [one if places.reads_on else one._replace(offsets={}) for one in found if one is not None]

    def _look(self, topics: Iterable[str]) -> None:
        """Look at tables between two batches. StoreMoved where one is not as it was, or not as the store claims it."""
        known = [topic for topic in topics if topic in self._shapes]
        new = [topic for topic in known if topic in self._unseen]

        def look() -> list[TableSchema]:
            moved = [one.shape for one in self._taken_back(new)]
            old = [self._shapes[t] for t in known if t not in self._unseen and t not in self._holds.now]
            return moved + [shape for shape in old if not self._open().places.stands(shape)]

        for shape in self._holding(look)[:1]:
            self._suspects.add(shape.topic)
            raise StoreMoved(f"{shape.table} of {self.name} is in another state than it was: restored or emptied?")
        if new:
            self._seen(new)

    def _turn(self) -> list[str]:
        """Those whose turn it is to be looked at."""
        now_s = self._around.clock.monotonic()
        waited_s = now_s - self._turn_s
        if waited_s < _TURN_S:
            return []
        self._turn_s = now_s
        count = ceil(len(self._order) * waited_s / _ROUND_S)
        turn, rest = self._order[:count], self._order[count:]
        self._order = [*rest, *turn]
        return turn

    def _lead(self, at: Claim, late: Iterable[DeadLetter] = ()) -> None:
        """Say to which places a batch leads. ``late``: letters whose rows may be applied behind those of the batch."""
        moved = [t for t, parts in at.offsets.items() if t in self._shapes and parts != self.offsets.get(t, {})]
        self._look(topic for topic in moved if topic in self._unseen)
        level_ms = (self.shown.level_ms if self.shown is not None else 0) or self._now_ms()
        ids = self.captured.ids
        led = [topic for topic in moved if topic in ids and topic not in self._holds.now]
        places = (TablePlace(topic_id=ids[t], offsets=at.offsets[t], level_ms=level_ms) for t in led)
        apart = {one.topic for one in late}
        shapes = [self._shapes[topic] for topic in led]
        self._open().places.lead(zip(shapes, places, strict=True), {one.table for one in shapes if one.topic in apart})
        self._led = at

    def hold(self, refusal: CannotCarry) -> None:
        """Hold a table from here on, until the next :meth:`begin`. Raise the refusal where it is held already."""
        self._holds.refuse(refusal, self._book)
        self._open().places.leave(refusal.table)
        self.topics = self.captured.without(self._holds.now)

    def _holding(self, action: Callable[[], T]) -> T:
        """Act. Again, without each table that turns out to be one that the store cannot take."""
        while True:
            try:
                return action()
            except CannotCarry as refusal:
                self.hold(refusal)
            except PlaceMissing as missing:
                self._suspects.update(topic for topic, one in self._shapes.items() if one.table == missing.table)
                # Somebody else may feed the store.
                self._open().checked(self._check_place)
                raise

    def _commit_as(self, wanted: Watermark) -> None:
        self._open().claim(wanted, partial(self._check_place, wanted))
        self.shown, self._unsure = wanted, None

    def _check_place(self, wanted: Watermark | None = None) -> None:
        check_place(self.name, self._open(), self.shown, self._unsure)
        self._unsure = wanted or self._unsure
        self._look(self._turn())
        self._figures.answered(self._around.clock.monotonic())

    def _now_ms(self) -> int:
        return self._around.clock.now_ns() // 1_000_000

    def _open(self) -> OpenSink:
        if self._opened is None:
            self._opened = self._connect()
        return self._opened

    def _close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()
