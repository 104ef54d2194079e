"""Tables that wait: their records are kept apart, in order, while all other tables flow (H95).

A row's missing values are read from its table. Where that table is locked, or the commit does not become visible, its
records wait here: in memory, then in a temporary file. What the log holds is acknowledged up to the oldest of them and
no further, so a restart brings them again.
"""

from __future__ import annotations

import pickle
import tempfile
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import IO

from cdc.crash import crash_point, declare
from cdc.errors import Retry, SourceError
from cdc.ports import Record
from cdc.topic import TableName
from connectors.postgres.encoder import TableEncoder
from connectors.postgres.held import HELD_ROWS, Entry, Pending, Reselect, ask, completed, is_later, lane_of, size_of

declare("table_waits", "waiting_spilled", "table_follows")

_PORTION = 1000
"""Records of one table that one :meth:`WaitingTables.resume` takes at most, so that others flow meanwhile."""
_COMMIT = slice(8, 24)
"""Where the commit LSN stands in a position's text."""


class WaitingTables:
    """All of them. ``memory_bytes``: of all records, before the newer ones go to a file in ``folder``; ``limit_bytes``:
    of all records, see :attr:`full`. ``tell``: called when a table
    begins to wait (true) and when it follows again. SourceError when the file cannot be written."""

    def __init__(
        self,
        reselect: Reselect,
        memory_bytes: int,
        limit_bytes: int,
        folder: str | None,
        tell: Callable[[TableName, bool], None],
    ) -> None:
        self._reselect = reselect
        self._tell = tell
        self._memory_bytes = memory_bytes
        self._limit_bytes = limit_bytes
        self._folder = folder
        self._by_lane: dict[int, _Queue] = {}
        self._queues: list[_Queue] = []

    def __bool__(self) -> bool:
        return bool(self._queues)

    def __contains__(self, lane: int) -> bool:
        return lane in self._by_lane

    @property
    def full(self) -> bool:
        """Whether the limit is reached: the stream itself has to wait then."""
        return sum(queue.size_bytes for queue in self._queues) > self._limit_bytes

    @property
    def oldest(self) -> int | None:
        """The lowest commit LSN that waits."""
        return min((queue.oldest for queue in self._queues), default=None)

    def counts(self) -> dict[TableName, int]:
        return {queue.table: len(queue) for queue in self._queues}

    def begin(self, entry: Entry, example: Pending) -> None:
        """A table begins to wait with ``entry``, or goes on waiting."""
        if example.lane not in self._by_lane:
            queue = _Queue(example.encoder.schema.table, self._memory_bytes, self._folder)
            self._queues.append(queue)
            self._by_lane.update(dict.fromkeys(example.lanes, queue))
            self._tell(queue.table, True)
            crash_point("table_waits")
        self.add(entry)

    def add(self, entry: Entry) -> None:
        """A record of a table that waits."""
        self._by_lane[lane_of(entry)].add(entry)

    def resume(self, emit: Callable[[Record], None], *, patiently: bool = False) -> None:
        """Emit what can be had now, at most some of each table; ``patiently``: all of it, however long it takes."""
        for queue in list(self._queues):
            queue.release(self._reselect, emit, brief=not patiently)
            while patiently and queue:
                queue.release(self._reselect, emit, brief=False)
            if not queue:
                self._end(queue)

    def _end(self, queue: _Queue) -> None:
        queue.close()
        self._queues.remove(queue)
        self._by_lane = {lane: other for lane, other in self._by_lane.items() if other is not queue}
        self._tell(queue.table, False)
        crash_point("table_follows")


class _Queue:
    """One table's records: the oldest in memory, the newer ones in a file once memory is full."""

    def __init__(self, table: TableName, memory_bytes: int, folder: str | None) -> None:
        self.table = table
        self.size_bytes = 0
        self._memory_bytes = memory_bytes
        self._folder = folder
        self._head: deque[Entry] = deque()
        self._head_bytes = 0
        self._encoders: list[TableEncoder] = []
        self._file: IO[bytes] | None = None
        self._spilled = 0
        self._read_at = 0
        self._asked = 0

    def __len__(self) -> int:
        return len(self._head) + self._spilled

    @property
    def oldest(self) -> int:
        entry = self._head[0]
        headers = entry.headers if isinstance(entry, Pending) else entry[3]
        return int(headers[0][1][_COMMIT], 16)

    def add(self, entry: Entry) -> None:
        size_bytes = size_of(entry)
        self.size_bytes += size_bytes
        if self._spilled or (self._head_bytes + size_bytes > self._memory_bytes and self._head):
            self._spill(entry)
        else:
            self._head.append(entry)
            self._head_bytes += size_bytes

    def release(self, reselect: Reselect, emit: Callable[[Record], None], *, brief: bool) -> None:
        """Emit the next records, if the source can say what they lack."""
        part = self._next()
        answers = ask(reselect, [entry for entry in part if isinstance(entry, Pending)], brief=brief)
        if any(is_later(entry, answers) for entry in part):
            return
        self._asked = 0
        for entry in part:
            emit(completed(entry, answers))
            self._head.popleft()
            size_bytes = size_of(entry)
            self._head_bytes -= size_bytes
            self.size_bytes -= size_bytes
        if not self._head:
            self._refill()

    def close(self) -> None:
        if self._file is not None:
            # What is still in its buffer is of no use, and a full disk would refuse it once more.
            with suppress(OSError):
                self._file.close()

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
        stored: object = entry
        if isinstance(entry, Pending):
            if entry.encoder not in self._encoders:
                self._encoders.append(entry.encoder)
            # Encoders are compiled functions, which stay here.
            number = self._encoders.index(entry.encoder)
            stored = (number, replace(entry, encoder=None))  # type: ignore[arg-type]
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - closed by close()
                crash_point("waiting_spilled")
            self._file.seek(0, 2)
            pickle.dump(stored, self._file, pickle.HIGHEST_PROTOCOL)
        except OSError as error:
            raise self._failed(error) from None
        self._spilled += 1

    def _refill(self) -> None:
        """Read what memory takes of the file."""
        if self._file is None:
            return
        try:
            self._file.seek(self._read_at)
            while self._spilled and (self._head_bytes < self._memory_bytes or not self._head):
                stored = pickle.load(self._file)
                entry: Entry = stored
                if isinstance(stored[1], Pending):
                    entry = replace(stored[1], encoder=self._encoders[stored[0]])
                self._head.append(entry)
                self._head_bytes += size_of(entry)
                self._spilled -= 1
            self._read_at = self._file.tell()
            if not self._spilled:
                self._read_at = 0
                self._file.seek(0)
                self._file.truncate()
        except OSError as error:
            raise self._failed(error) from None

    def _failed(self, error: OSError) -> SourceError:
        return SourceError(
            f"records of {self.table}, which waits, cannot be kept in {self._folder or tempfile.gettempdir()}: "
            f"{error.strerror}",
            hint="make room there, or name another folder: [capture] spill_path",
            retry=Retry.LATER,
        )
