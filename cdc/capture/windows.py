"""Windows: rows of a later snapshot, put between the stream's changes where they belong.

A reader asks for a window and is granted one between two transactions: its position lies above everything that was
streamed and below everything to come. A change of the same table that the stream brings from then on is newer than the
rows read, with any values. So its key is noted and the row left out. A row that a window of a higher position writes
is newer as well, whichever reading it belongs to. It is noted in windows of lower positions in the same way. So a key's
last record in the topic is always its newest, and no record of a window ever stands behind one that is above it:
compaction keeps the last record, and a sweep's floor may lie between the two.

Two threads meet here: readers ask, read and offer. The capture loop grants, notes, writes and settles. The loop's
part does no I/O of its own but ``produce``.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from queue import Empty, SimpleQueue
from typing import NamedTuple, TypeVar

from cdc.capture.transaction_visibility import Gate
from cdc.process.errors import CdcError
from cdc.record.ports import Headers, Record
from cdc.record.position import CHUNK_SEQ, Position
from cdc.wire.format import TRUNCATE_OP

T = TypeVar("T")

PIECE_ROWS = 500
"""Rows written in one go, so that the stream is not delayed."""
TOUCHED_KEYS = 200_000
"""Keys noted for one window. One that outlives more changes of its table is given up, and read in smaller parts."""
_ALIGNMENT = 7
_FLOOR_OP = TRUNCATE_OP.encode()


class Closed(Exception):
    """The session is over: nothing of what is on its way counts."""


class Moment(NamedTuple):
    """Where the loop is. ``reached``: lsn below which everything has been streamed, None inside a transaction.

    ``position``: lsn of the newest progress record. ``acked``: newest group that the broker holds. ``waiting``: lanes
    of tables that wait, which hold ``position`` back. ``stored``: what the broker holds of all others.
    """

    reached: int | None
    position: int
    acked: int
    stored: int = 0
    waiting: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Written:
    """A window's rows are stored by the broker. ``left_out``: rows whose keys the stream has changed since."""

    rows: int
    left_out: int


class Overrun:
    """More changes of the table came while the window was open than can be noted: read it again, in smaller parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowPairs:
    """The records that a window writes: (key, value) pairs, all with the same ``headers``.

    A value is what stands between ``prefix`` and ``suffix``. None writes a record without a value. Each pair goes to
    its key's partition, unless ``everywhere``: then to every partition.
    """

    pairs: Sequence[tuple[bytes, bytes | None]]
    headers: Headers
    prefix: bytes = b""
    suffix: bytes = b""
    everywhere: bool = False


@dataclass(slots=True, eq=False)
class Window:
    """``position`` of its rows and ``awaited``, what their read has to see: known once granted."""

    topic: str
    position: Position | None = None
    awaited: frozenset[int] = frozenset()
    outcome: Written | Overrun | None = None
    lane: int = 0
    lane_count: int = 0
    touched: set[bytes] = field(default_factory=set)
    emptied: bool = False
    overrun: bool = False
    ended: bool = False

    def touch(self, record: Record) -> None:
        """The stream is about to change this key. A TRUNCATE changes every key."""
        if record[3][1][1] == _FLOOR_OP:
            self.emptied = True
        else:
            self.touched.add(record[1])
        if len(self.touched) > TOUCHED_KEYS:
            self.overrun = True
            self.touched.clear()


class _Emission:
    """A window's rows on their way out."""

    def __init__(self, window: Window, parts: Sequence[WindowPairs], partition: Callable[[bytes, int], int]) -> None:
        self.window = window
        self.group = 0
        self.rows = 0
        self.left_out = 0
        self.whole = False
        self._records = self._made(parts, partition)

    def piece(self) -> list[Record]:
        """The next records. Rows that the stream has changed by now are left out."""
        taken = list(islice(self._records, PIECE_ROWS))
        self.whole = len(taken) < PIECE_ROWS
        window = self.window
        kept = [] if window.emptied else [record for record in taken if record[1] not in window.touched]
        self.rows += len(kept)
        self.left_out += len(taken) - len(kept)
        return kept

    def _made(self, parts: Sequence[WindowPairs], partition: Callable[[bytes, int], int]) -> Iterator[Record]:
        lane, count = self.window.lane, self.window.lane_count
        for rows in parts:
            before, after, headers = rows.prefix, rows.suffix, rows.headers
            for key, inner in rows.pairs:
                value = None if inner is None else before + inner + after
                if rows.everywhere:
                    for each in range(lane, lane + count):
                        yield each, key, value, headers
                else:
                    yield lane + partition(key, count), key, value, headers


class Windows:
    """All windows of one session.

    ``lanes``: a topic's first lane and how many. ``partition``: (key, count) -> partition. ``produce``: hands records
    to the log, returns the group's number. ``after_lsn``: commits up to this one may stand in the log although this
    session has not come to them yet, so no window opens before it has.
    """

    def __init__(
        self,
        *,
        epoch: int,
        after_lsn: int,
        gate: Gate,
        lanes: Callable[[str], tuple[int, int]],
        partition: Callable[[bytes, int], int],
        produce: Callable[[Sequence[Record]], int],
    ) -> None:
        self._epoch = epoch
        self.after_lsn = after_lsn
        self.gate = gate
        self._lanes = lanes
        self._partition = partition
        self._produce = produce
        self._changed = threading.Condition()
        self._asked: SimpleQueue[Window] = SimpleQueue()
        self._offered: SimpleQueue[_Emission] = SimpleQueue()
        self._ended: SimpleQueue[Window] = SimpleQueue()
        self._waiting: list[Window] = []
        self._open: dict[int, list[Window]] = {}
        self._emitting: deque[_Emission] = deque()
        self._settling: deque[_Emission] = deque()
        self._failure: CdcError | None = None
        self._closed = False
        self.reached = 0
        """Everything below has been streamed in this session."""

    # Readers, in any thread.

    def ask(self, topic: str) -> Window:
        """Ask for a window on a topic."""
        window = Window(topic)
        self._asked.put(window)
        return window

    def granted(self, window: Window) -> Position:
        """Wait until a window is granted. The position of its rows. Raises Closed."""
        self._await(lambda: window.position is not None)
        assert window.position is not None
        return window.position

    def offer(self, window: Window, *parts: WindowPairs) -> None:
        """Hand over what was read for a window, to its end."""
        self._offered.put(_Emission(window, parts, self._partition))

    def outcome(self, window: Window) -> Written | Overrun:
        """Wait until the broker holds what was offered, or it is clear that it will not. Raises Closed."""
        self._await(lambda: window.outcome is not None)
        assert window.outcome is not None
        return window.outcome

    def give_up(self, window: Window) -> None:
        """Nothing was read after all."""
        self._ended.put(window)

    def fail(self, failure: CdcError) -> None:
        """The loop raises errors of the reading as a whole."""
        self._failure = self._failure or failure

    def close(self) -> None:
        """The session is over: everybody who waits is woken."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def closed(self) -> bool:
        """Whether the session is over. No window will open any more."""
        return self._closed

    def require_open(self) -> None:
        """Closed when the session is over."""
        if self._closed:
            raise Closed

    def _await(self, state: Callable[[], bool]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or state())
        self.require_open()

    # The loop.

    @property
    def busy(self) -> bool:
        """Whether the next turn has something to do."""
        return bool(self._waiting or self._emitting or self._settling) or not (
            self._asked.empty() and self._offered.empty()
        )

    def touch(self, records: Sequence[Record]) -> None:
        """The stream is about to write these. Call before they are produced."""
        if not self._open:
            return
        found = self._open
        for record in records:
            for window in found.get(record[0], ()):
                window.touch(record)

    def turn(self, moment: Moment) -> None:
        """Grant, write and settle what can be. Between two batches of the stream."""
        if self._failure is not None:
            raise self._failure
        if moment.reached is not None:
            self.reached = moment.reached
        self._take_in()
        if self._waiting and moment.reached is not None and moment.reached > self.after_lsn:
            self._grant(moment)
        self._emit(moment)
        self._settle(moment.acked)

    def _take_in(self) -> None:
        for window in _drained(self._ended):
            self._end(window)
        self._waiting.extend(_drained(self._asked))
        self._emitting.extend(_drained(self._offered))

    def _grant(self, moment: Moment) -> None:
        # Every commit below ``reached`` was streamed and every one to come lies at it or above. Commits are aligned.
        assert moment.reached is not None
        position = Position(self._epoch, (moment.reached - 1) & ~_ALIGNMENT, CHUNK_SEQ)
        awaited = self.gate.awaited()
        for window in self._waiting:
            window.lane, window.lane_count = self._lanes(window.topic)
            for lane in range(window.lane, window.lane + window.lane_count):
                self._open.setdefault(lane, []).append(window)
            window.awaited = awaited
            # Older records of a table that waits would come behind the window's rows.
            window.overrun = window.lane in moment.waiting
        with self._changed:
            for window in self._waiting:
                window.position = position
            self._changed.notify_all()
        self._waiting.clear()

    def _emit(self, moment: Moment) -> None:
        """One piece of the first window whose changes are surely stored, up to its position.

        A table that waits holds the progress record back, and windows of no other: what the stream brought of these is
        with the broker, and a restart finds it at the end of their partitions.
        """
        position = max(moment.position, moment.stored) if moment.waiting else moment.position
        for emission in self._emitting:
            window = emission.window
            assert window.position is not None
            if window.overrun or window.lane in moment.waiting:
                self._finish(emission, Overrun())
                return
            if position > window.position.commit_lsn:
                records = emission.piece()
                if records:
                    self._outdate(window, records)
                    emission.group = self._produce(records)
                if emission.whole:
                    self._emitting.remove(emission)
                    self._end(window)
                    self._settling.append(emission)
                return

    def _outdate(self, newer: Window, records: Sequence[Record]) -> None:
        """Windows of lower positions leave these keys out. A mark is no row, and makes none older."""
        assert newer.position is not None
        opened = self._open.get(newer.lane, ())
        older = [one for one in opened if one.position is not None and one.position < newer.position]
        for window in older:
            for record in records:
                if record[3][1][1] != _FLOOR_OP:
                    window.touch(record)

    def _finish(self, emission: _Emission, outcome: Overrun) -> None:
        self._emitting.remove(emission)
        self._end(emission.window)
        self._tell(emission.window, outcome)

    def _settle(self, acked: int) -> None:
        while self._settling and self._settling[0].group <= acked:
            done = self._settling.popleft()
            self._tell(done.window, Written(done.rows, done.left_out))

    def _tell(self, window: Window, outcome: Written | Overrun) -> None:
        with self._changed:
            window.outcome = outcome
            self._changed.notify_all()

    def _end(self, window: Window) -> None:
        if window.ended:
            return
        window.ended = True
        for lane in range(window.lane, window.lane + window.lane_count):
            left = [other for other in self._open.get(lane, ()) if other is not window]
            if left:
                self._open[lane] = left
            else:
                self._open.pop(lane, None)


def _drained(queue: SimpleQueue[T]) -> Iterator[T]:
    while True:
        try:
            yield queue.get_nowait()
        except Empty:
            return
