"""Later snapshots: requests from the state topic, carried out by the running capture in windows of its stream.

One thread decides, a few read. It reads requests, looks at the catalog (see :mod:`snapshot.later.watch_rules`),
plans, hands chunks to readers and notes in the state topic what the brokers hold. :mod:`cdc.capture.windows` and the
capture loop decide where in the stream the rows go, and which of them. Everything that counts is in the state topic:
killed anywhere, the next session goes on with what is not done.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue

import psycopg

from cdc.capture.windows import Closed, Windows, Written
from cdc.figures.capture_metrics import RereadFigures
from cdc.process.clock import Clock
from cdc.process.crash_points import crash_point, declare
from cdc.process.errors import CdcError, ConfigError, SourceError
from cdc.record.position import Position
from cdc.record.state import ReadingState
from snapshot.later.catalog_watch import CatalogWatch
from snapshot.later.planner import Planner, StateView
from snapshot.later.reader_pool import GivenUp, ReaderPool
from snapshot.later.table_reading import (
    CANCELLED,
    DONE,
    FAILED,
    PAUSED,
    RUNNING,
    WAITING,
    RateLimit,
    TableReading,
    forgettable,
    fresh,
    next_reading,
)
from snapshot.source.planned_tables import Chunk
from snapshot.source.ports import LaterEdges, Session
from snapshot.source.read_transaction import Changed, LockTimeout, first_line, insert_lsn, sqlstate

log = logging.getLogger(__name__)

declare("reread_noted", "reread_swept")

_TURN_S = 0.1
_NOTE_S = 1.0
_RETRY_S = 1.0
_END_S = 15.0
_FORGET_S = 60.0


@dataclass(frozen=True, slots=True)
class _Result:
    """The result of a chunk: ``error`` None, and what was written. Chunk None for a sweep mark."""

    reading: TableReading
    chunk: Chunk | None
    written: tuple[Written, Position] | None
    error: Exception | None


class RequestScheduler:
    """One session's. ``start`` it once. ``close`` ends it, and waits for its threads."""

    def __init__(self, edges: LaterEdges, windows: Windows, *, epoch: int, clock: Clock) -> None:
        self._edges = edges
        self._windows = windows
        self._epoch = epoch
        self._clock = clock
        settings = edges.settings.snapshot
        self._settings = settings
        self._pace = RateLimit(settings.rows_per_second)
        self._readings: dict[str, TableReading] = {}
        self._over: dict[str, int] = {}
        self._view = StateView()
        self._results: SimpleQueue[_Result] = SimpleQueue()
        self._wake = threading.Event()
        self._noted: dict[str, ReadingState] = {}
        self._note_s = 0.0
        self._forget_s = 0.0
        self._rows = self._left_out = self._differing = self._turn = 0
        self.figures = RereadFigures()
        """How far all requests are. Replaced as a whole, for other threads."""
        self._readers = ReaderPool(edges, windows, clock)
        self._planner = Planner(edges, windows, clock, self._look)
        self._thread = threading.Thread(target=self._run, name="cdc-snapshots", daemon=True)

    def start(self) -> None:
        """Start its thread."""
        self._thread.start()

    def close(self) -> None:
        """End it. Never raises."""
        self._windows.close()
        self._wake.set()
        self._readers.cancel()
        if self._thread.ident is not None:
            self._thread.join(_END_S)
        self._readers.close()
        self.figures = RereadFigures()

    # The deciding thread.

    def _run(self) -> None:
        try:
            with closing(self._edges.source.session("cdc capture snapshots", lock_timeout_s=2)) as session:
                self._work(session)
        except Closed:
            pass
        except CdcError as error:
            self._windows.fail(error)
        except psycopg.Error as error:
            self._windows.fail(SourceError(f"Postgres broke off: {first_line(error)}"))
        except Exception as fault:
            log.exception("snapshots_failed")
            self._windows.fail(CdcError(f"later snapshots failed: {first_line(fault)}"))

    def _work(self, session: Session) -> None:
        with closing(self._edges.feed()) as feed:
            watch = CatalogWatch(self._edges, session, self._windows.gate, self._clock)
            while not self._windows.closed:
                for key, value in feed.poll(0):
                    self._apply(key, value)
                if feed.caught_up:
                    self._look(watch, now=False)
                    self._read_requests()
                    self._settle_results(session)
                    for reading in list(self._readings.values()):
                        self._advance(session, reading, watch)
                    self._deal()
                    self._note()
                    self._forget()
                    self.figures = self._figures()
                self._wake.wait(_TURN_S)
                self._wake.clear()

    def _look(self, watch: CatalogWatch, *, now: bool) -> None:
        self._write(watch.look(self._view.records, now=now))
        watch.noted()

    def _apply(self, key: bytes, value: bytes | None) -> None:
        if removed := self._view.apply(key, value):
            self._noted.pop(removed, None)
            self._over.pop(removed, None)

    def _read_requests(self) -> None:
        """Requests as they are in the state topic now: new ones, and commands on those that are under way."""
        for request in self._view.requests_now():
            name = request.id
            reading = self._readings.get(name)
            if reading is not None and reading.request.serial == request.serial:
                reading.request = request
            elif reading is not None and reading.out:
                reading.request = replace(reading.request, state="cancelled")
            else:
                before = self._view.states.get(name)
                same = before is not None and (before.serial, before.epoch) == (request.serial, self._epoch)
                if self._over.get(name) == request.serial or (before is not None and same and before.over):
                    # Its end was noted, and a command wrote it again since. Left there, who asks later would join it.
                    self._over[name] = request.serial
                    self._write([(request.key(), None)])
                    continue
                state = before if same and before is not None else fresh(request, self._epoch, self._clock.now_ns())
                self._readings[name] = TableReading(request, state, after_lsn=request.after_lsn)

    def _advance(self, session: Session, reading: TableReading, watch: CatalogWatch) -> None:
        """One step with one request, up to its being ready to be read."""
        reading.ready = False
        match reading.request.state:
            case "cancelled":
                if not reading.out:
                    self._finish(reading, CANCELLED)
                return
            case "paused":
                reading.note(PAUSED)
                return
        if self._clock.monotonic() < reading.not_before_s:
            return
        try:
            why = self._planner.why_wait(session, reading, watch)
        except ConfigError as error:
            self._finish(reading, FAILED, error.advice)
            return
        reading.note(WAITING if why else RUNNING, why)
        reading.ready = not why

    def _deal(self) -> None:
        """Give out what there are readers for, in turn. End what has nothing left."""
        paced = self._pace.wait_s(self._clock.monotonic()) > 0
        readings = list(self._readings.values())
        for reading in readings:
            reading.ready = reading.ready and (reading.small or not paced)
        while self._free() and (chosen := next_reading(readings)) is not None:
            chunk = chosen.chunks.take() if chosen.chunks is not None else None
            if chunk is None:
                chosen.ready = False
                continue
            self._turn += 1
            chosen.turn = self._turn
            self._give(chosen, chunk)
            # One that reads at a pace has its rows counted before it gets more.
            chosen.ready = chosen.small or not self._settings.rows_per_second
        for reading in readings:
            if (
                reading.state.state == RUNNING
                and reading.chunks is not None
                and not reading.chunks.left
                and not reading.out
            ):
                self._end(reading)

    def _free(self) -> bool:
        return sum(reading.out for reading in self._readings.values()) < self._settings.windows

    def _give(self, reading: TableReading, chunk: Chunk | None) -> None:
        reading.out += 1

        def done(future: Future[tuple[Written, Position]]) -> None:
            if future.cancelled():
                return
            error = future.exception()
            written = future.result() if error is None else None
            fault = error if isinstance(error, Exception) else None
            self._results.put(_Result(reading, chunk, written, fault))
            self._wake.set()

        self._readers.submit(reading, chunk).add_done_callback(done)

    def _end(self, reading: TableReading) -> None:
        """Every chunk is stored by the brokers: sweep what was not there, find out what differed, or be done."""
        if (reading.request.whole or reading.request.leaves) and not reading.ending:
            # Before the mark is written: a crash behind it must find the same floor, and nothing left to read.
            self._note(reading)
            reading.ending = True
            self._give(reading, None)
        elif not reading.out:
            self._finish(reading, DONE, reading.compared.words)

    def _finish(self, reading: TableReading, state: str, detail: str = "") -> None:
        if self._readings.get(reading.request.id) is not reading:
            return
        reading.state = replace(reading.state, state=state, detail=detail, finished_ns=self._clock.now_ns())
        if state == DONE:
            reading.state = replace(reading.state, share=1.0, differing=reading.compared.rows)
        rows, differing = reading.state.rows, reading.compared.rows if state == DONE else None
        self._differing += differing or 0
        said = {"table": reading.request.table, "state": state, "rows": rows, "differing": differing, "why": detail}
        log.info("reread_over", extra=said)
        self._over[reading.request.id] = reading.request.serial
        del self._readings[reading.request.id]
        gone = self._view.removals(reading.request.id, reading.request.serial)
        self._write([(reading.state.key(), reading.state.to_json()), *gone])
        crash_point("reread_noted")
        self._edges.topics.read(reading.state)

    def _settle_results(self, session: Session) -> None:
        while True:
            try:
                result = self._results.get_nowait()
            except Empty:
                return
            self._settled(session, result)

    def _settled(self, session: Session, result: _Result) -> None:
        reading, chunk, error = result.reading, result.chunk, result.error
        reading.out -= 1
        if isinstance(error, Closed):
            raise error
        if chunk is None:
            if error is not None:
                raise error
            crash_point("reread_swept")
            return
        if error is None and result.written is not None:
            written, position = result.written
            if reading.chunks is not None:
                reading.written(position)
                reading.done(chunk, written.rows, written.left_out)
            self._rows += written.rows
            self._left_out += written.left_out
            self._pace.took(written.rows + written.left_out, self._clock.monotonic())
            return
        self._unread(session, reading, chunk, error)

    def _unread(self, session: Session, reading: TableReading, chunk: Chunk, error: Exception | None) -> None:
        """A chunk was not read: again, or never, but by this request alone. The stream goes on."""
        match error:
            case GivenUp():
                if reading.chunks is not None:
                    reading.chunks.put_back(chunk, smaller=error.smaller)
            case LockTimeout():
                self._retry_later(reading, chunk, f"its lock is not to be had: Postgres answers {error}")
                reading.not_before_s = self._clock.monotonic() + _RETRY_S
            case Changed():
                log.info("reread_begins_anew", extra={"table": reading.request.table, "why": str(error)})
                reading.forget(insert_lsn(session))
                self._failed(reading, None, f"the table is not what was planned: {error}")
            case SourceError():
                # No session to be had. The stream's own session finds out whether the server is away.
                self._retry_later(reading, chunk, error.message)
                reading.not_before_s = self._clock.monotonic() + _RETRY_S
            case psycopg.Error():
                self._failed(reading, chunk, f"Postgres answers {sqlstate(error)}")
            case CdcError():
                self._finish(reading, FAILED, error.advice)
            case None:
                raise AssertionError("a chunk without a result")
            case _:
                log.error("reread_fault", extra={"table": reading.request.table}, exc_info=error)
                self._finish(reading, FAILED, f"a fault of Headrace, which the log has: {type(error).__name__}")

    def _failed(self, reading: TableReading, chunk: Chunk | None, why: str) -> None:
        """Try it again after a while, or say that it has failed."""
        log.warning(
            "reread_failing", extra={"table": reading.request.table, "why": why, "attempt": reading.failures + 1}
        )
        if reading.failed(self._clock.monotonic()):
            self._retry_later(reading, chunk, why)
        else:
            self._finish(reading, FAILED, f"{why}, {reading.failures} times in a row")

    def _retry_later(self, reading: TableReading, chunk: Chunk | None, why: str) -> None:
        if chunk is not None and reading.chunks is not None:
            reading.chunks.put_back(chunk)
        reading.note(WAITING, why)

    def _note(self, reading: TableReading | None = None) -> None:
        """Write what has changed, about once a second. At once for one reading."""
        now_s = self._clock.monotonic()
        if reading is None and now_s < self._note_s:
            return
        changed = [
            j for j in ([reading] if reading else self._readings.values()) if self._noted.get(j.request.id) != j.state
        ]
        if changed:
            records = [(j.state.key(), j.state.to_json()) for j in changed]
            # A state that names thousands of partitions is written more seldom.
            self._note_s = now_s + max(_NOTE_S, sum(len(value) for _, value in records) / 100_000)
            self._noted.update({j.request.id: j.state for j in changed})
            self._write(list(records))
            crash_point("reread_noted")

    def _forget(self) -> None:
        """Remove what the state topic says of chunks that were read long ago. Requests of them come without end."""
        now_s = self._clock.monotonic()
        if now_s >= self._forget_s:
            self._forget_s = now_s + _FORGET_S
            old = forgettable(self._view.states.values(), self._clock.now_ns())
            self._write([(one.key(), None) for one in (*old, *self._view.stale_commands())])

    def _figures(self) -> RereadFigures:
        readings = list(self._readings.values())
        return RereadFigures(
            states=Counter(reading.state.state for reading in readings),
            windows=sum(reading.out for reading in readings),
            rows=self._rows,
            left_out=self._left_out,
            differing=self._differing,
            shares={reading.request.table: reading.state.share for reading in readings},
        )

    def _write(self, records: list[tuple[bytes, bytes | None]]) -> None:
        if records:
            self._edges.state.write(records)
            for key, value in records:
                self._apply(key, value)
