"""The readers of later snapshots: threads, each with a session of its own, that see one chunk after the other in."""

from __future__ import annotations

import logging
import os
import socket
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress

import psycopg

from cdc.capture.windows import Closed, Overrun, Windows, Written
from cdc.process.clock import Clock
from cdc.process.errors import CdcError
from cdc.record.position import Position
from snapshot.later.chunk_queue import MOST_RECORDS, NotComparable, RowDifferences
from snapshot.later.table_reading import Differing, TableReading
from snapshot.later.window_read import TooWide, Unseen, WindowTask, read, sweep_rows, window_rows
from snapshot.source.planned_tables import Chunk
from snapshot.source.ports import LaterEdges, Session
from snapshot.source.read_transaction import SQL, insert_lsn

log = logging.getLogger(__name__)

_UNSEEN_S = 0.05
_NUDGE_S = 0.25
_RETRY_S = 0.2
_END_S = 5.0


def cut_off(session: Session) -> None:
    """Shut the connection's socket, so that a thread that waits at it wakes up. From any thread."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(session.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)


class GivenUp(Exception):
    """A chunk was not read. ``smaller``: it is too large for one window."""

    def __init__(self, why: str, *, smaller: bool = False) -> None:
        super().__init__(why)
        self.smaller = smaller


class ReaderPool:
    """``[snapshot] windows`` threads. Sessions are opened when they are needed first."""

    def __init__(self, edges: LaterEdges, windows: Windows, clock: Clock) -> None:
        self._edges = edges
        self._windows = windows
        self._clock = clock
        self._sessions = threading.local()
        self._opened: list[Session] = []
        self._given: list[Future[tuple[Written, Position]]] = []
        self._pool = ThreadPoolExecutor(edges.settings.snapshot.windows, thread_name_prefix="cdc-window")

    def submit(self, reading: TableReading, chunk: Chunk | None) -> Future[tuple[Written, Position]]:
        """Read a chunk. Without one end the reading."""
        given = self._pool.submit(self.end, reading) if chunk is None else self._pool.submit(self.read, reading, chunk)
        self._given = [*(one for one in self._given if not one.done()), given]
        return given

    def cancel(self) -> None:
        """Break off what is being read."""
        for session in list(self._opened):
            with suppress(psycopg.Error):
                session.cancel_safe(timeout=2)

    def close(self) -> None:
        """End the threads and their sessions, within seconds, also while they wait.

        A statement may begin behind one cancellation, so they are repeated. A server that does not hear them is cut
        off. A thread that is left would keep the process alive.
        """
        self._pool.shutdown(wait=False, cancel_futures=True)
        until_s = self._clock.monotonic() + _END_S
        while not self._ended(_RETRY_S):
            if self._clock.monotonic() > until_s:
                log.warning("readers_cut_off", extra={"sessions": len(self._opened)})
                for session in self._opened:
                    cut_off(session)
                if not self._ended(_END_S):
                    return
                break
            self.cancel()
        for session in self._opened:
            session.close()

    def _ended(self, timeout_s: float) -> bool:
        """Whether no thread reads any more. wait() never counts a chunk as done that was cancelled before its turn."""
        return not wait([one for one in self._given if not one.cancelled()], timeout=timeout_s).not_done

    def read(self, reading: TableReading, chunk: Chunk) -> tuple[Written, Position]:
        """Read one chunk and see it into the log. GivenUp, LockTimeout, Changed or ConfigError when it is not to be."""
        inspected, encoder = reading.inspected, reading.encoder
        if inspected is None or encoder is None:
            raise GivenUp("the plan is void")
        task = WindowTask(
            chunk=chunk,
            schema=inspected.schema,
            partitioned=reading.partitioned,
            condition=inspected.condition,
            wanted=reading.wanted,
            most_bytes=self._most_bytes(reading),
        )
        window = self._windows.ask(inspected.form.topic)
        position = self._windows.granted(window)
        try:
            gate, awaited = self._windows.gate, window.awaited | reading.awaited
            while True:
                if self._windows.closed:
                    raise Closed
                if window.overrun:
                    raise GivenUp("too many changes meanwhile", smaller=chunk.divisible)
                try:
                    found = read(self._session(), task, encoder, lambda sees: gate.passes(awaited, sees))
                    break
                except Unseen:
                    self._clock.sleep(_UNSEEN_S)
            gate.saw(found.seen)
            self._await_kept(found.insert_lsn)
        except TooWide:
            self._windows.give_up(window)
            raise GivenUp("too wide", smaller=True) from None
        except BaseException:
            self._windows.give_up(window)
            raise
        rows = window_rows(found, encoder, position, self._clock.now_ns())
        self._windows.offer(window, *rows)
        outcome = self._windows.outcome(window)
        if isinstance(outcome, Overrun):
            raise GivenUp("too many changes meanwhile", smaller=chunk.divisible)
        return outcome, position

    def _most_bytes(self, reading: TableReading) -> int | None:
        """How large a record may be, if a larger one would stop capture."""
        settings = self._edges.settings.log
        policy = settings.oversized_tables.get(reading.request.table, settings.oversized)
        return settings.max_message_bytes if policy == "stop" else None

    def end(self, reading: TableReading) -> tuple[Written, Position]:
        """Sweep where the whole table was read, then find out how much the reading has changed. Raises Closed."""
        ended = self.sweep(reading) if reading.request.whole else (Written(0, 0), Position(0, 0, 0))
        if not reading.request.first:
            reading.compared = self._compared(reading)
        return ended

    def _compared(self, reading: TableReading) -> Differing:
        """The reading's rows against the log as it was before."""
        log, inspected = self._edges.settings.log, reading.inspected
        assert inspected is not None
        try:
            columns = [column.name for column in inspected.schema.columns]
            state = reading.state
            differences = RowDifferences(state.floor, columns, state.begun, state.started_ns)
            records = self._edges.records(inspected.form.topic, MOST_RECORDS)
            if records is None:
                return Differing(None, f"its topic has more than {MOST_RECORDS:,} records")
            count = differences.take(records)
        except CdcError as error:
            return Differing(None, error.message)
        except NotComparable as why:
            return Differing(None, str(why))
        except ValueError:
            # A mark or a header that none of ours can be.
            return Differing(None, "its topic has records of another writer")
        if self._clock.now_ns() - reading.state.started_ns >= log.min_compaction_lag.total_seconds() * 10**9:
            return Differing(None, "it took longer than [log] min_compaction_lag")
        return Differing(count)

    def sweep(self, reading: TableReading) -> tuple[Written, Position]:
        """Write the marks that end a reading of the whole table, in a window of their own.

        Returns what was written and the marks' position. Raises Closed when the session ends meanwhile.
        """
        encoder = reading.encoder
        assert encoder is not None
        assert reading.inspected is not None
        window = self._windows.ask(reading.inspected.form.topic)
        position = self._windows.granted(window)
        seen_lsn = insert_lsn(self._session())
        rows = sweep_rows(encoder, position, reading.state.floor, window.lane_count, self._clock.now_ns(), seen_lsn)
        self._windows.offer(window, rows)
        outcome = self._windows.outcome(window)
        # A mark is no row: however much the stream changes meanwhile, it is written. But a full window is given up.
        return (outcome, position) if isinstance(outcome, Written) else self.sweep(reading)

    def _await_kept(self, lsn: int) -> None:
        """Wait until the commits that were read are on the server's disk: a crash may undo the others. With a
        failover slot, until the standbys have them too: one that takes over undoes the others."""
        session, slot = self._session(), self._edges.settings.slot
        since_s = self._clock.monotonic()
        while not self._windows.closed:
            if int(SQL.one(session, "kept_lsn", slot=slot)[0]) >= lsn:
                return
            if self._clock.monotonic() - since_s > _NUDGE_S:
                since_s = self._clock.monotonic()
                nudge(session)
            self._clock.sleep(0.01)

    def _session(self) -> Session:
        session: Session | None = getattr(self._sessions, "one", None)
        if session is None or session.closed:
            limit_s = self._edges.settings.snapshot.lock_timeout.total_seconds()
            session = self._edges.source.session("cdc capture window", lock_timeout_s=min(limit_s, 5))
            self._sessions.one = session
            self._opened.append(session)
        return session


def nudge(session: Session) -> None:
    """Commit something that is no change: the server's log is flushed, and the stream passes it."""
    with session.transaction():
        session.execute(b"set local synchronous_commit = local")
        session.execute(SQL.text("nudge"))
