"""A store that the runner feeds from a log in memory, and that may be taken back, exchanged or killed meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from cdc.process.clock import ManualClock
from cdc.process.errors import CdcError
from cdc.record.progress import EpochsState, Offsets, Progress, Watermark
from cdc.record.schema import TableSchema
from sinks.contract.port import OpenSink, PlaceMissing
from sinks.contract.table_places import PlaceStep
from spark.figures.sink_metrics import Metrics
from spark.records.ports import SinkTopics
from spark.stores.apply import Outcome, with_keys
from spark.stores.place_check import StoreMoved
from spark.stores.store_thread import Store as Running
from spark.stores.store_thread import Surroundings
from spark.stores.watermark import Claim, LogEnds, LogView
from tests.contract.orders import order, statuses
from tests.contract.stores import Store
from tests.contract.topics import ORDERS, Topic, at, batch, column, shape
from tests.unit.spark.doubles import MemoryDead

BESIDE = shape(column("id", "int8", key=1), column("n", "int4"), table="others")
RETENTION_S = 3_600.0
MOST_STARTS = 6


class Killed(Exception):
    """The process of the sink ends here."""


@dataclass
class Log:
    """Two topics, and what progress says of them. :class:`spark.records.ports.LogQuestions`."""

    orders: Topic = field(default_factory=Topic)
    others: Topic = field(default_factory=lambda: Topic(BESIDE))
    shapes: list[TableSchema] = field(default_factory=lambda: [ORDERS, BESIDE])
    view: LogView = field(default_factory=LogView)

    def topics(self, sink: str) -> SinkTopics:
        ids = {one.topic: f"id of {one.topic}" for one in self.shapes}
        partitions = dict.fromkeys(ids, 1)
        return SinkTopics(ids=ids, partitions=partitions, compaction_lag_s=1e9, retention_s=RETENTION_S)

    def ends(self, topics: SinkTopics) -> Offsets:
        return {one.schema.topic: {0: one.events[-1].offset + 1} for one in (self.orders, self.others)}

    def epochs(self) -> EpochsState:
        return EpochsState()

    def newest(self) -> tuple[int, int] | None:
        return None

    def schemas(self) -> list[TableSchema]:
        return list(self.shapes)

    def looks(self, topics: object) -> None:
        """Nothing is asked of topics that stay."""

    def rekeyed(self) -> frozenset[str]:
        return frozenset()

    @property
    def lsn(self) -> int:
        """Of the newest progress record: one for each event."""
        return 8 * sum(parts[0] for parts in self.ends(SinkTopics()).values())

    def note(self, clock: ManualClock) -> None:
        """Progress, and the ends, as a sink hears of them."""
        ends = self.ends(SinkTopics())
        self.view.note_progress([Progress(epoch=1, lsn=self.lsn, offsets=ends)])
        self.view.note_ends(LogEnds(clock.monotonic(), ends))


@dataclass
class Feeding:
    """One sink over one store. ``mortal``: after so many writes into the store its process ends. None for never."""

    store: Store
    log: Log = field(default_factory=Log)
    clock: ManualClock = field(default_factory=ManualClock)
    mortal: int | None = None
    running: Running | None = None
    starts: int = 0

    def begun(self) -> Running:
        """A process of the sink: the one that runs, or another one."""
        if self.running is None:
            facts: Any = self.log
            around = Surroundings(
                facts=facts, dead=MemoryDead(), view=self.log.view, metrics=Metrics(), clock=self.clock
            )
            self.running = Running("store", self._open, around)
            self._ran(self.running.begin)
            self.starts += 1
        return self.running

    def level(self) -> None:
        """Feed it until it is level with the log, as a query does that begins again for a store that has moved."""
        self.log.note(self.clock)
        for _ in range(MOST_STARTS):
            try:
                self._feed(self.begun())
            except (PlaceMissing, StoreMoved):
                self.end()
                continue
            return
        raise AssertionError("the store does not come to rest")

    def rest(self, seconds: float = 2.0) -> None:
        """So much time passes. The store is looked at between two batches, and begins again where it has moved."""
        self.clock.advance(seconds)
        running = self.begun()
        running.idle()
        running.run(lambda: None)
        if isinstance(running.fault, StoreMoved | PlaceMissing):
            self.end()
        elif running.fault is not None:
            raise running.fault

    def end(self) -> None:
        """The process ends. What the store has stays."""
        running, self.running = self.running, None
        if running is not None:
            running.end()

    def claims(self) -> Watermark | None:
        """As a reader of the store hears it."""
        return self.store.open().watermarks.read()

    def claims_all(self) -> bool:
        """Whether it claims to show all that the log has."""
        mark = self.claims()
        return mark is not None and mark.lsn >= self.log.lsn and not mark.held

    def shows(self) -> Mapping[str, str]:
        return statuses(self.store.open())

    def _feed(self, running: Running) -> None:
        ends = self.log.ends(SinkTopics())
        events = [
            one
            for topic in (self.log.orders, self.log.others)
            for one in topic.events
            if one.offset >= running.offsets.get(one.topic, {}).get(one.partition, 0)
        ]
        rows = batch(events)
        claim = Claim(ends, self.clock.monotonic())
        history = partial(with_keys, rows)
        self._ran(lambda: running.settle_events(rows, Outcome(), claim, history))

    def _ran(self, act: Callable[[], object]) -> None:
        running = self.running
        assert running is not None
        try:
            running.result(running.attempt(act))
        except CdcError:
            raise
        except Killed:
            self.end()
            raise

    def _open(self) -> OpenSink:
        opened = self.store.open(self.clock)
        return opened if self.mortal is None else _mortal(opened, self)

    def wrote(self) -> None:
        """A write into the store begins, or is over."""
        if self.mortal is not None:
            self.mortal -= 1
            if self.mortal < 0:
                raise Killed


def _mortal(opened: OpenSink, feeding: Feeding) -> OpenSink:
    """The same whose process ends before or behind a write, or in the middle of a batch."""
    places: Any = opened.places
    for owner, name in (
        (opened.sink, "apply"),
        (opened.sink, "prepare"),
        (places._store, "put_places"),
        (places._store, "taken_back"),
        (opened.watermarks, "write"),
    ):
        _watch(owner, name, feeding)
    return replace(opened)


def _watch(owner: Any, name: str, feeding: Feeding) -> None:
    act = getattr(owner, name)

    def watched(*given: Any, **named: Any) -> Any:
        feeding.wrote()
        done = act(*given, **named)
        feeding.wrote()
        return done

    setattr(owner, name, watched)


def filled(store: Store) -> Feeding:
    """A store of two tables that is level with a log of four rows."""
    feeding = Feeding(store)
    log = feeding.log
    for number in (1, 2, 3):
        log.orders.upsert(order(number, "first"), at(number))
    log.others.upsert({"id": 1, "n": 1}, at(1))
    feeding.level()
    assert feeding.claims_all()
    return feeding


def goes_on(feeding: Feeding) -> None:
    """More changes: one row is deleted, one is changed and one comes."""
    log = feeding.log
    log.orders.delete(order(2), at(12))
    log.orders.upsert(order(1, "second"), at(13))
    log.orders.upsert(order(4, "second"), at(14))
    feeding.level()


TRUTH = {"1": "second", "3": "first", "4": "second"}


def step_of(feeding: Feeding, text: bytes) -> PlaceStep:
    """A step of the orders' place that began from this text."""
    return PlaceStep(ORDERS, frozenset((text,)), text)
