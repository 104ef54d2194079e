"""Tables that wait: their records are kept apart, in order, while all other tables flow.

A row's missing values are read from its table. Where that table is locked, or the commit does not become visible, its
records wait here: in memory, then in temporary files. The log is acknowledged up to the oldest of them and no further,
so a restart brings them again. Where they are more than may be kept, the table with the most of them is set aside,
see :mod:`cdc.record.tables_aside`.
"""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

from cdc.process.crash_points import crash_point, declare
from cdc.process.errors import Retry, SourceError
from cdc.record.ports import Record
from cdc.record.tables_aside import CannotFollow, Cause
from cdc.record.topic_names import TableName
from connectors.postgres.assembly.pending_records import (
    HELD_ROWS,
    Entry,
    Pending,
    Reselect,
    ask,
    commit_of,
    completed,
    is_later,
    lane_of,
    size_of,
)
from connectors.postgres.assembly.spill_files import Spilled

declare("table_waits", "waiting_spilled", "table_follows")

_PORTION = 1000
"""Records of one table that one :meth:`WaitingTables.resume` takes at most, so that others flow meanwhile."""
_REFUSALS = 3
"""So many tables that still cannot be read end a :meth:`WaitingTables.resume`: each takes as long as a brief
lock_timeout, 20 ms, and nothing flows meanwhile."""


class Bounds(NamedTuple):
    """``memory_bytes``: of a table's records, before the newer ones go to files in ``folder``. ``limit_bytes``: of all
    tables' records, in memory and on disk."""

    memory_bytes: int
    limit_bytes: int
    folder: str | None = None


class Largest(NamedTuple):
    """The largest consumer of the buffer: its bytes, how many records, of which tables."""

    size_bytes: int
    records: int
    tables: Sequence[TableName]


class Keeps(Protocol):
    """Keeps what tables wait with."""

    @property
    def size_bytes(self) -> int:
        """The bytes kept, in memory and in files."""

    def largest(self) -> Largest:
        """The tables that are kept together with the most bytes."""


class WaitingLimit:
    """The room that all tables that wait share. ``cannot``: called with what has to be set aside."""

    def __init__(self, limit_bytes: int, cannot: Callable[[CannotFollow], None]) -> None:
        self._limit_bytes = limit_bytes
        self._cannot = cannot
        self._keepers: list[Keeps] = []

    def let(self, keeper: Keeps) -> None:
        """One more keeps its part here."""
        self._keepers.append(keeper)

    def require(self) -> None:
        """Something was added: past the limit the largest goes, one that waits for long, or changes much."""
        if sum(keeper.size_bytes for keeper in self._keepers) > self._limit_bytes:
            found = max((keeper.largest() for keeper in self._keepers), key=lambda one: one.size_bytes)
            self._cannot(
                CannotFollow(
                    f"its rows could not be read for {found.records:,} records, more than is kept: it is locked, or a "
                    "standby does not answer",
                    hint="end what locks it; raise [capture] waiting_limit to outlast longer locks",
                    cause=Cause.LOCKED,
                    tables=found.tables,
                )
            )


class WaitingTables:
    """All of them. ``tell``: called when a table begins to wait (true) and when it follows again. ``cannot``: called
    with a table that has to be set aside, it calls :meth:`leave`. SourceError when a file cannot be written."""

    def __init__(
        self,
        reselect: Reselect,
        bounds: Bounds,
        tell: Callable[[TableName, bool], None],
        cannot: Callable[[CannotFollow], None],
    ) -> None:
        self._reselect = reselect
        self._bounds = bounds
        self._tell = tell
        self._cannot = cannot
        self._by_lane: dict[int, _Queue] = {}
        self._queues: list[_Queue] = []
        self.size_bytes = 0
        self.room = WaitingLimit(bounds.limit_bytes, cannot)
        self.room.let(self)
        self.left: set[int] = set()
        """Lanes of tables that were set aside while records of theirs may still be on their way here."""

    def __bool__(self) -> bool:
        return bool(self._queues or self.left)

    def __contains__(self, lane: int) -> bool:
        return lane in self._by_lane or lane in self.left

    @property
    def lanes(self) -> frozenset[int]:
        """Those of the tables that wait."""
        return frozenset(self._by_lane)

    @property
    def oldest(self) -> int | None:
        """The lowest commit LSN that waits."""
        return min((queue.oldest for queue in self._queues), default=None)

    def oldest_of(self, lanes: Iterable[int]) -> int | None:
        """The same of one table."""
        return next((self._by_lane[lane].oldest for lane in lanes if lane in self._by_lane), None)

    def counts(self) -> dict[TableName, int]:
        """How many records of each table wait."""
        return {queue.table: len(queue) for queue in self._queues}

    def largest(self) -> Largest:
        """The table with the most records."""
        queue = max(self._queues, key=lambda one: one.size_bytes, default=None)
        return Largest(0, 0, ()) if queue is None else Largest(queue.size_bytes, len(queue), [queue.table])

    def begin(self, entry: Entry, example: Pending) -> None:
        """A table begins to wait with ``entry``, or goes on waiting."""
        if example.lane in self.left:
            return
        if example.lane not in self._by_lane:
            queue = _Queue(example.encoder.schema.table, self._bounds)
            self._queues.append(queue)
            self._by_lane.update(dict.fromkeys(example.lanes, queue))
            queue.add(entry)
            self.size_bytes += queue.size_bytes
            self._tell(queue.table, True)
            crash_point("table_waits")
        else:
            self.add(entry)

    def add(self, entry: Entry) -> None:
        """A record of a table that waits."""
        queue = self._by_lane.get(lane_of(entry))
        if queue is None:
            return  # it was set aside
        before = queue.size_bytes
        queue.add(entry)
        self.size_bytes += queue.size_bytes - before
        self.room.require()

    def resume(self, emit: Callable[[Record], None]) -> None:
        """Emit what can be had now, at most some of each table. Those that were not asked come first next time."""
        refused = 0
        for queue in list(self._queues):
            if refused >= _REFUSALS:
                break
            self._queues.remove(queue)
            self._queues.append(queue)
            try:
                refused += not queue.release(self._reselect, emit)
            except CannotFollow as why:
                self._cannot(why)
                continue
            if not queue:
                self._end(queue)
        self.size_bytes = sum(queue.size_bytes for queue in self._queues)

    def leave(self, lanes: range) -> None:
        """Drop what is kept of a table, and what comes until :meth:`arrived`: it is set aside."""
        self.left.update(lanes)
        for queue in {id(q): q for lane in lanes if (q := self._by_lane.get(lane)) is not None}.values():
            self._end(queue)
        self.size_bytes = sum(queue.size_bytes for queue in self._queues)

    def arrived(self) -> None:
        """Nothing of a table that was set aside is on its way any more."""
        self.left.clear()

    def _end(self, queue: _Queue) -> None:
        queue.close()
        self._queues.remove(queue)
        self._by_lane = {lane: other for lane, other in self._by_lane.items() if other is not queue}
        self._tell(queue.table, False)
        crash_point("table_follows")


class _Queue:
    """One table's records: the oldest in memory, the newer ones on disk once memory is full."""

    def __init__(self, table: TableName, bounds: Bounds) -> None:
        self.table = table
        self._bounds = bounds
        self._head: deque[Entry] = deque()
        self._head_bytes = 0
        self._spilled: Spilled | None = None
        self._asked = 0

    def __len__(self) -> int:
        return len(self._head) + (len(self._spilled) if self._spilled else 0)

    @property
    def size_bytes(self) -> int:
        return self._head_bytes + (self._spilled.size_bytes if self._spilled else 0)

    @property
    def oldest(self) -> int:
        return commit_of(self._head[0])

    def add(self, entry: Entry) -> None:
        size_bytes = size_of(entry)
        if self._spilled or (self._head_bytes + size_bytes > self._bounds.memory_bytes and self._head):
            self._spill(entry)
        else:
            self._head.append(entry)
            self._head_bytes += size_bytes

    def release(self, reselect: Reselect, emit: Callable[[Record], None]) -> bool:
        """Emit the next records, if the source can say what they lack. Whether it can."""
        part = self._next()
        answers = ask(reselect, [entry for entry in part if isinstance(entry, Pending)], brief=True)
        if any(is_later(entry, answers) for entry in part):
            return False
        self._asked = 0
        for entry in part:
            for record in completed(entry, answers):
                emit(record)
            self._head.popleft()
            self._head_bytes -= size_of(entry)
        if not self._head:
            self._refill()
        return True

    def close(self) -> None:
        if self._spilled is not None:
            self._spilled.close()
            self._spilled = None

    def _next(self) -> list[Entry]:
        """The oldest entries, up to so many rows that lack values: the same ones until they are released."""
        if self._asked:
            return list(islice(self._head, self._asked))
        part: list[Entry] = []
        lacking = 0
        for entry in self._head:
            lacking += isinstance(entry, Pending)
            if lacking > HELD_ROWS or len(part) >= _PORTION:
                break
            part.append(entry)
        self._asked = len(part)
        return part

    def _spill(self, entry: Entry) -> None:
        try:
            if self._spilled is None:
                self._spilled = Spilled(self._bounds.folder)
                crash_point("waiting_spilled")
            self._spilled.append(entry)
        except OSError as error:
            raise self._failed(error) from None

    def _refill(self) -> None:
        """Read what memory takes of the files."""
        try:
            while self._spilled and (self._head_bytes < self._bounds.memory_bytes or not self._head):
                entry = self._spilled.pop()
                self._head.append(entry)
                self._head_bytes += size_of(entry)
        except OSError as error:
            raise self._failed(error) from None

    def _failed(self, error: OSError) -> SourceError:
        return unkept(self.table, self._bounds.folder, error)


def unkept(table: TableName, folder: str | None, error: OSError) -> SourceError:
    """The sentence for a table whose records cannot be kept while it waits."""
    return SourceError(
        f"records of {table}, which waits, cannot be kept in {folder or tempfile.gettempdir()}: {error.strerror}",
        hint="make room there, or name another folder: [capture] spill_path",
        retry=Retry.LATER,
    )
