"""One query for all stores: read once, handed to each through a queue of its own, so a stalled one holds only itself.

Each store starts with a query of its own and joins the shared one when it is near the log's end. One whose
queue stays full leaves: it goes on by itself from where it is, and joins again when it has caught up. Spark's
checkpoint of the shared query runs ahead of the stores. Each is as far as its own watermark says.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures import TimeoutError as NotInTime
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from cdc.process.clock import SYSTEM_CLOCK
from cdc.process.errors import CdcError, Exit, Retry
from cdc.record.progress import Offsets
from sinks.contract.batch import pc
from sinks.contract.registry import SinkSpec
from spark.queries.micro_batch import MicroBatch
from spark.queries.query import Query, collected, history_of, tell
from spark.queries.query_run import Engine, Run
from spark.queries.tasks import SLICE_BYTES
from spark.session.failures import GRACE_S, unexpected
from spark.stores.apply import History, Outcome
from spark.stores.place_check import grown
from spark.stores.store_thread import Store
from spark.stores.watermark import Claim, covers, highest, lowest

log = logging.getLogger(__name__)

SHARED = "shared"
_STALLED_S = 3.0
"""How long a full queue may hold the others before its store has to leave."""
_GATHER_S = 5.0
"""How long those that are near wait for the rest at the start."""
_REJOIN_S, _LONGEST_REJOIN_S = 30.0, 900.0
_DRAIN_S = 60.0
_MOST_QUEUED = 64
_MOST_JOINED = 20_000
"""Records of batches that a store takes together."""
_MOST_AHEAD = 2
"""Slices' worth of bytes that may be queued for a store."""
_NOTHING: pa.Table = pa.table({})


class Behind(CdcError):
    """A batch before this one failed for the store: it goes on by itself from its own watermark."""

    exit = Exit.UNAVAILABLE
    retry = Retry.NOW


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A batch as it was read: its records, or, where executors brought it down, ``events`` and what they found.

    ``history``: finds all events that the batch has of some keys.
    """

    starts: Offsets
    ends: Offsets
    records: pa.Table | None
    events: pa.Table | None
    before: Outcome
    read_at_s: float
    started_s: float
    history: History

    @property
    def rows(self) -> pa.Table:
        """The rows that were read, in either form."""
        return self.records if self.records is not None else self.events if self.events is not None else _NOTHING


class Lane:
    """The way of one store: what is queued for it, in order, and whether it has to leave.

    A store that takes longer than the next batch needs to be read finds several queued, and takes them as one:
    a write costs it about the same for few rows as for many.
    """

    def __init__(self, store: Store, most_records: int, slice_bytes: int = SLICE_BYTES) -> None:
        self.store = store
        self.stalled = False
        self._most_records = most_records
        self._slice_bytes = slice_bytes
        self._waiting: deque[Content] = deque()
        self._queue: deque[tuple[int, int, Future[None]]] = deque()

    def offer(self, content: Content, settle: Callable[[Content], None]) -> None:
        """Queue a batch. ``settle`` may get it joined with those behind it, and is repeated while the store is away."""

        def work() -> None:
            taken = self.take()
            if taken is not None:
                self.store.patiently(partial(settle, taken))

        self._waiting.append(content)
        rows = content.rows
        self._queue.append((rows.num_rows, rows.nbytes, self.store.attempt(work)))

    def take(self) -> Content | None:
        """The next batch with all that can be joined to it. None when an earlier call took it. One thread calls."""
        if not self._waiting:
            return None
        first = self._waiting.popleft()
        if first.records is None:
            return first
        tables, joined, rows, size = [first.records], first, first.records.num_rows, first.records.nbytes
        while self._waiting and rows < _MOST_JOINED:
            following = self._waiting[0]
            if following.records is None or size + following.records.nbytes > self._slice_bytes:
                break
            self._waiting.popleft()
            rows += following.records.num_rows
            size += following.records.nbytes
            tables.append(following.records)
            joined = replace(joined, ends=following.ends, read_at_s=following.read_at_s)
        return replace(joined, records=pa.concat_tables(tables))

    def has_room(self, timeout_s: float) -> bool:
        """Whether a batch may be queued. Waits for room at most so long."""
        self._shed()
        if self._full:
            wait([self._queue[0][2]], timeout_s, FIRST_COMPLETED)
            self._shed()
        return not self._full

    def drained(self, timeout_s: float) -> bool:
        """Whether all that is queued got done in time."""
        until_s = SYSTEM_CLOCK.monotonic() + timeout_s
        try:
            for _, _, work in list(self._queue):
                work.result(max(0.0, until_s - SYSTEM_CLOCK.monotonic()))
        except (NotInTime, CdcError):
            return False
        return True

    def fault(self) -> CdcError | None:
        """The error that ended its work, if any."""
        for _, _, work in list(self._queue):
            failure = work.exception() if work.done() else None
            if isinstance(failure, CdcError):
                return failure
            if failure is not None:
                return unexpected(self.store.name, failure)
        return self.store.fault

    @property
    def _full(self) -> bool:
        rows = sum(rows for rows, _, _ in self._queue)
        size = sum(size for _, size, _ in self._queue)
        too_much = rows > self._most_records or size > _MOST_AHEAD * self._slice_bytes
        return len(self._queue) >= _MOST_QUEUED or (len(self._queue) > 0 and too_much)

    def _shed(self) -> None:
        while self._queue and self._queue[0][2].done() and self._queue[0][2].exception() is None:
            self._queue.popleft()


class FanOut:
    """All stores of an application. Looked after by :meth:`tend`, as a :class:`spark.queries.query.Query` is."""

    def __init__(self, stores: Mapping[str, tuple[Store, SinkSpec]], engine: Engine) -> None:
        self._engine = engine
        self.alone = {sink: Query(store, spec, engine) for sink, (store, spec) in stores.items()}
        """Every store's own query. Those in the shared one rest."""
        self._resting = {sink for sink, (_, spec) in stores.items() if spec.every_s}
        """The stores with a rest between batches of their own: the shared query would wait for them."""
        self._lanes: dict[str, Lane] = {}
        self._run: Run | None = None
        self._may_join_s = dict.fromkeys(stores, 0.0)
        self._left = dict.fromkeys(stores, 0)
        self._gather_until_s: float | None = None

    @property
    def together(self) -> frozenset[str]:
        """The stores that are fed by the shared query now."""
        return frozenset(self._lanes)

    def tend(self) -> None:
        """One look. Call it a few times a second. A store that no further start can cure stands still alone."""
        for sink, query in self.alone.items():
            if sink not in self._lanes:
                query.tend()
        if self._run is not None:
            self._look_after(self._run)
        self._gather()

    def ask(self) -> None:
        """Wait for stores no longer, and begin nothing more."""
        for query in self.alone.values():
            query.ask()
        if self._run is not None:
            self._run.ask()

    def conclude(self) -> None:
        """End between slices. Queued work is done, unless its store is away or does not answer in time. An error since
        the last look that no start can cure is the failure of its store's own query."""
        self.ask()
        lanes = dict(self._lanes)
        self._end_shared(GRACE_S)
        for sink, lane in lanes.items():
            self.alone[sink].heed(lane.fault())
        for query in self.alone.values():
            query.conclude()

    def _look_after(self, run: Run) -> None:
        for sink, lane in list(self._lanes.items()):
            fault = lane.fault()
            if fault is not None or lane.stalled:
                self._leave(sink, fault)
        if not run.active:
            failure = run.failure()
            lanes = self._end_shared()
            for sink in lanes:
                self.alone[sink].again(failure)

    def _leave(self, sink: str, fault: CdcError | None) -> None:
        lane = self._lanes.pop(sink)
        self._left[sink] += 1
        rest_s = min(_LONGEST_REJOIN_S, _REJOIN_S * 2 ** (self._left[sink] - 1))
        self._may_join_s[sink] = self._engine.clock.monotonic() + rest_s
        log.warning("sink_left_shared_query", extra={"sink": sink, "behind": lane.store.behind()})
        if fault is not None:
            self.alone[sink].again(fault)
        if not self._lanes:
            self._end_shared()

    def _gather(self) -> None:
        """Let those that are near the end of the log join, together where that can be."""
        now_s = self._engine.clock.monotonic()
        near = [sink for sink in self.alone if sink not in self._lanes and self._may_join(sink, now_s)]
        if not near:
            self._gather_until_s = None
            return
        if self._gather_until_s is None:
            self._gather_until_s = now_s + _GATHER_S
        could = sum(query.failure is None and sink not in self._resting for sink, query in self.alone.items())
        together = len(near) + len(self._lanes)
        # One that is left alone stays in its own query: it would be ended and begun at each look.
        if together > 1 and (together == could or now_s >= self._gather_until_s):
            self._gather_until_s = None
            self._join(near)

    def _may_join(self, sink: str, now_s: float) -> bool:
        query = self.alone[sink]
        if sink in self._resting:
            return False
        return query.running and now_s >= self._may_join_s[sink] and query.store.behind() <= self._engine.driver_rows

    def _join(self, near: list[str]) -> None:
        together = [*self._end_shared(), *near]
        for sink in near:
            self.alone[sink].halt()
        stores = [self.alone[sink].store for sink in together]
        if len(stores) < 2:
            return
        for store in stores:
            store.halt.clear()
        # All that tasks read for several stores comes to the driver.
        engine = replace(self._engine, kafka=self._engine.kafka.for_writers(1))
        self._lanes = {store.name: Lane(store, engine.kafka.max_offsets, engine.slice_bytes) for store in stores}
        self._run = Run(SHARED, engine, starts_of(stores), self._deliver)
        log.info("stores_share_a_query", extra={"sinks": ",".join(self._lanes)})

    def _end_shared(self, drain_s: float = _DRAIN_S) -> list[str]:
        """End the shared query. The stores that got all that was queued for them, the others go on by themselves."""
        run, self._run = self._run, None
        lanes, self._lanes = self._lanes, {}
        if run is not None:
            run.halt()
        return [sink for sink, lane in lanes.items() if lane.drained(drain_s)]

    def _deliver(self, batch: MicroBatch) -> None:
        for content in self._contents(batch):
            for lane in list(self._lanes.values()):
                if lane.stalled or not lane.has_room(_STALLED_S):
                    lane.stalled = True
                    continue
                lane.offer(content, partial(self._settle, lane.store))

    def _contents(self, batch: MicroBatch) -> Iterator[Content]:
        """A batch as it is read, a slice at a time."""
        engine, started_s = self._engine, self._engine.clock.monotonic()
        if engine.fits_driver(batch):
            for piece, records in batch.slices(engine.slice_bytes):
                yield self._content(piece, started_s, records=records)
            return
        stores = [lane.store for lane in self._lanes.values()]
        for piece, report in collected(engine, batch, stores, None, "compact"):
            yield self._content(piece, started_s, events=report.winners, before=report.outcome)

    def _content(
        self,
        piece: MicroBatch,
        started_s: float,
        *,
        records: pa.Table | None = None,
        events: pa.Table | None = None,
        before: Outcome | None = None,
    ) -> Content:
        return Content(
            starts=piece.begun,
            ends=piece.offsets,
            records=records,
            events=events,
            before=before or Outcome(),
            read_at_s=self._engine.clock.monotonic(),
            started_s=started_s,
            history=partial(history_of, self._engine, piece),
        )

    def _settle(self, store: Store, content: Content) -> None:
        _refuse_gap(store, content.starts)
        store.require_same(grown(content.starts, content.ends) & store.topics.ids.keys())
        ends = {topic: parts for topic, parts in content.ends.items() if topic in store.topics.ids}
        at = Claim(highest(ends, store.offsets), content.read_at_s)
        if content.records is not None:
            outcome = store.settle(unseen(content.records, content.starts, store), at)
        else:
            events = content.events if content.events is not None else pa.table({})
            fresh = unseen(events, content.starts, store)
            own = tuple(letter for letter in content.before.letters if letter.topic in store.topics.ids)
            outcome = store.settle_events(fresh, replace(content.before, letters=own), at, content.history)
        tell(self._engine, store, outcome, content.started_s)


def _refuse_gap(store: Store, starts: Offsets) -> None:
    """Behind when the store is not as far as a batch's start: its watermark would claim what failed before."""
    own = {topic: parts for topic, parts in starts.items() if topic in store.topics.ids}
    if not covers(store.offsets, own):
        raise Behind(f"the store of {store.name} is behind the batches that are queued for it")


def starts_of(stores: list[Store]) -> Offsets:
    """Where a query for several stores starts: for each partition, at the one that is furthest behind."""
    topics = {topic for store in stores for topic in store.topics.ids}
    return {
        topic: lowest([{topic: store.starts[topic]} for store in stores if topic in store.topics.ids])[topic]
        for topic in sorted(topics)
    }


def unseen(table: pa.Table, starts: Offsets, store: Store) -> pa.Table:
    """Those records that the store reads and does not show yet.

    Repeating an older record of a position that two share would put it over the newer one.
    """
    foreign = [topic for topic in starts if topic not in store.topics.ids]
    if not foreign and covers(starts, store.offsets):
        return table
    seen = pc.is_in(table["topic"], value_set=pa.array(foreign, pa.string()))
    for topic, parts in store.offsets.items():
        for partition, offset in parts.items():
            if offset > starts.get(topic, {}).get(partition, 0):
                here = pc.and_(pc.equal(table["topic"], topic), pc.equal(table["partition"], partition))
                seen = pc.or_(seen, pc.and_(here, pc.less(table["offset"], offset)))
    return table.filter(pc.invert(seen))
