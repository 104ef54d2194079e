"""How far the log holds the source, and when to say so: pure, the only place that decides what may be acknowledged.

Three marks move one after the other, and never back: what was handed to the log, what the broker holds of it,
and what a progress record that the broker holds says. The last one is our position: Postgres may forget what
lies below it, and nothing else.
"""

from __future__ import annotations

from collections import deque

QUICK_S = 0.05
"""Shortest time between progress records while little happens: a reader waits for its own write."""
IDLE_S = 0.5
"""The same while nothing but the WAL of others moves."""
BUSY_S = 1.0
"""The same under load."""
_BUSY_RECORDS = 1_000
_NOTHING = 1 << 64
"""Above every LSN."""
_BYTES_PER_S = 200_000
"""Progress records name every partition. A pipeline of thousands writes them more seldom."""


class CommitTimes:
    """The running maximum of the stream's commit times, in us: those of Postgres are not in the order of the LSNs.

    An event's header and the progress record have it, so it is kept in progress: a record that stands behind a cut has
    none below the cut's. ``at_us``: as the newest progress record has it.
    """

    __slots__ = ("_open", "_reached", "at_us")

    def __init__(self, at_us: int = 0) -> None:
        self.at_us = at_us
        self._reached = at_us
        self._open: dict[int, int] = {}

    def open(self, commit_lsn: int, committed_us: int) -> None:
        """A transaction comes, in the order of the LSNs."""
        self.at_us = self._open[commit_lsn] = max(self.at_us, committed_us)

    def of(self, commit_lsn: int) -> int:
        """The maximum at a transaction that the log does not hold whole yet, as of now for any other."""
        return self._open.get(commit_lsn, self.at_us)

    def reached(self, lsn: int) -> int:
        """The maximum over the transactions below an LSN that the log holds. They are forgotten."""
        while self._open and next(iter(self._open)) < lsn:
            self._reached = self._open.pop(next(iter(self._open)))
        return self._reached


class ProgressMarks:
    """The marks of one session.

    Groups are numbered by the log, in order of production. ``position``: lsn of the newest progress record
    that the broker holds. All lsns are exclusive: every change with commit_lsn < lsn.
    """

    def __init__(self, position: int, now_s: float) -> None:
        self.position = position
        self.durable = position
        """What the broker holds of the source. The next progress record says this."""
        self._stored = position
        self._floor = self._oldest = _NOTHING
        self._floors: deque[tuple[int, int]] = deque()
        self._reached = position
        self._marks: deque[tuple[int, int]] = deque()
        self._writing: tuple[int, int] | None = None
        self._written_s = now_s - BUSY_S
        self._written_bytes = 0
        self._rows_since = 0
        self._commit_held = False

    @property
    def settled(self) -> bool:
        """Whether nothing is on its way: no group, no progress record, and nothing left to say."""
        return not self.waiting and self.durable <= self.position

    @property
    def stored(self) -> int:
        """How far the broker has the source, tables that wait left out."""
        return max(self._stored, self.durable)

    @property
    def reached(self) -> int:
        """How far changes were handed to the log. Outside a transaction all that was streamed."""
        return self._reached

    @property
    def waiting(self) -> bool:
        """Whether the broker owes us an answer."""
        return bool(self._marks or self._floors) or self._writing is not None

    @property
    def idle(self) -> bool:
        """Whether no transaction was handed over since the newest progress record."""
        return not self._commit_held

    def quiet_s(self, now_s: float) -> float:
        """Since the newest progress record was written. 0 while the broker owes an answer, or there is more to say."""
        if self.waiting or self.durable > self.position:
            return 0.0
        return now_s - self._written_s

    def commit(self, end_lsn: int, group: int, rows: int) -> None:
        """A transaction is handed over: its last record is in ``group`` or an earlier one."""
        self._reach(end_lsn, group)
        self._rows_since += rows
        self._commit_held = True

    def keepalive(self, wal_end: int, group: int) -> None:
        """The server has nothing for us below ``wal_end``. Only to be called outside a transaction: what came
        before is in ``group`` or an earlier one, and the mark waits for it like any other."""
        self._reach(wal_end, group)

    def acked(self, group: int) -> None:
        """The broker holds every group up to this one."""
        marks = self._marks
        while marks and marks[0][0] <= group:
            self._stored = marks.popleft()[1]
        floors = self._floors
        while floors and floors[0][0] <= group:
            # The ones behind it are of groups that the broker does not hold yet.
            _, last = floors.popleft()
            self._floor = min(last, *(oldest for _, oldest in floors), _NOTHING)
        self.durable = max(self.durable, min(self._stored, self._floor))
        if self._writing is not None and self._writing[0] <= group:
            self.position = self._writing[1]
            self._writing = None

    def waits(self, oldest: int | None, group: int) -> None:
        """Records that were streamed wait with the capture, from commit LSN ``oldest`` on (None: no more). Those that
        waited before and do no more are in ``group`` or an earlier one. No mark of the log passes ``oldest``. To be
        called before the transactions that they belong to are marked by :meth:`commit`."""
        found = _NOTHING if oldest is None else oldest
        if found != self._oldest:
            self._oldest = found
            self._floor = min(self._floor, found)
            self._floors.append((group, found))

    def due_s(self, now_s: float) -> float | None:
        """Seconds until the next progress record is due, 0 for now, None when there is nothing to say."""
        if self._writing is not None or self.durable <= self.position:
            return None
        busy = self._rows_since > _BUSY_RECORDS
        pace_s = (BUSY_S if busy else QUICK_S) if self._commit_held else IDLE_S
        interval = max(pace_s, self._written_bytes / _BYTES_PER_S)
        return max(0.0, self._written_s + interval - now_s)

    def writing(self, group: int, size_bytes: int, now_s: float) -> None:
        """A progress record that says :attr:`durable` is handed over in ``group``."""
        self._writing = (group, self.durable)
        self._written_s = now_s
        self._written_bytes = size_bytes
        self._rows_since = 0
        self._commit_held = False

    def _reach(self, lsn: int, group: int) -> None:
        if lsn <= self._reached:
            return
        self._reached = lsn
        if self._marks and self._marks[-1][0] == group:
            self._marks[-1] = (group, lsn)
        else:
            self._marks.append((group, lsn))
