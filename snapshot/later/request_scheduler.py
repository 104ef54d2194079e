"""Later snapshots: requests from the state topic, carried out by the running capture in windows of its stream.

One thread decides, a few read. It reads requests, looks at the catalog (see :mod:`snapshot.later.watch_rules`),
plans, hands parts to readers and notes in the state topic what the brokers hold. :mod:`cdc.windows` and the capture
loop decide where in the stream the rows go, and which of them. Everything that counts is in the state topic: killed
anywhere, the next session goes on with what is not done.
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

from cdc.clock import Clock
from cdc.crash import crash_point, declare
from cdc.errors import CdcError, ConfigError, SourceError
from cdc.metrics import Rereads
from cdc.position import Position
from cdc.state import RereadState
from cdc.windows import Closed, Windows, Written
from snapshot.chunks import Chunk
from snapshot.edges import LaterEdges, Session
from snapshot.later.catalog_watch import Watching
from snapshot.later.planner import Planner
from snapshot.later.reader_pool import GivenUp, Readers
from snapshot.later.state_view import Heard
from snapshot.later.table_reading import (
    CANCELLED,
    DONE,
    FAILED,
    PAUSED,
    RUNNING,
    WAITING,
    Job,
    Pace,
    forgettable,
    fresh,
    next_job,
)
from snapshot.queries import first_line, sqlstate
from snapshot.read_transaction import Blocked, Changed, insert_lsn

log = logging.getLogger(__name__)

declare("reread_noted", "reread_swept")

_TURN_S = 0.1
_NOTE_S = 1.0
_AGAIN_S = 1.0
_END_S = 15.0
_FORGET_S = 60.0


@dataclass(frozen=True, slots=True)
class _Result:
    """What came of a part: ``error`` None, and what was written; part None for a sweep mark."""

    job: Job
    part: Chunk | None
    written: tuple[Written, Position] | None
    error: Exception | None


class LaterSnapshots:
    """One session's. ``start`` it once; ``close`` ends it, and waits for its threads."""

    def __init__(self, edges: LaterEdges, windows: Windows, *, epoch: int, clock: Clock) -> None:
        self._edges = edges
        self._windows = windows
        self._epoch = epoch
        self._clock = clock
        settings = edges.settings.snapshot
        self._settings = settings
        self._pace = Pace(settings.rows_per_second)
        self._jobs: dict[str, Job] = {}
        self._over: dict[str, int] = {}
        self._heard = Heard()
        self._results: SimpleQueue[_Result] = SimpleQueue()
        self._wake = threading.Event()
        self._noted: dict[str, RereadState] = {}
        self._note_s = 0.0
        self._forget_s = 0.0
        self._rows = self._left_out = self._turn = 0
        self.figures = Rereads()
        """How far all requests are; replaced as a whole, for whoever asks."""
        self._readers = Readers(edges, windows, clock)
        self._planner = Planner(edges, windows, clock, self._look)
        self._thread = threading.Thread(target=self._run, name="cdc-snapshots", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End it; never raises."""
        self._windows.close()
        self._wake.set()
        self._readers.cancel()
        if self._thread.ident is not None:
            self._thread.join(_END_S)
        self._readers.close()
        self.figures = Rereads()

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
            watching = Watching(self._edges, session, self._windows.gate, self._clock)
            while not self._windows.closed:
                for key, value in feed.poll(0):
                    self._hear(key, value)
                if feed.caught_up:
                    self._look(watching, now=False)
                    self._take_up()
                    self._take_back(session)
                    for job in list(self._jobs.values()):
                        self._advance(session, job, watching)
                    self._deal()
                    self._note()
                    self._forget()
                    self.figures = self._figures()
                self._wake.wait(_TURN_S)
                self._wake.clear()

    def _look(self, watching: Watching, *, now: bool) -> None:
        self._write(watching.look(self._heard.records, now=now))

    def _hear(self, key: bytes, value: bytes | None) -> None:
        if removed := self._heard.hear(key, value):
            self._noted.pop(removed, None)
            self._over.pop(removed, None)

    def _take_up(self) -> None:
        """Requests as they are in the state topic now: new ones, and wishes on those that are under way."""
        for request in self._heard.wished():
            name = request.id
            job = self._jobs.get(name)
            if job is not None and job.request.serial == request.serial:
                job.request = request
            elif job is not None and job.out:
                job.request = replace(job.request, state="cancelled")
            elif self._over.get(name) != request.serial:
                before = self._heard.states.get(name)
                same = before is not None and (before.serial, before.epoch) == (request.serial, self._epoch)
                if before is not None and same and before.over:
                    # Its end was noted, and its wish written again since.
                    self._over[name] = request.serial
                    self._write([(request.key(), None)])
                    continue
                state = before if same and before is not None else fresh(request, self._epoch, self._clock.now_ns())
                self._jobs[name] = Job(request, state, after_lsn=request.after_lsn)

    def _advance(self, session: Session, job: Job, watching: Watching) -> None:
        """One step with one request, up to its being ready to be read."""
        job.ready = False
        match job.request.state:
            case "cancelled":
                if not job.out:
                    self._finish(job, CANCELLED)
                return
            case "paused":
                job.note(PAUSED)
                return
        if self._clock.monotonic() < job.not_before_s:
            return
        try:
            why = self._planner.why_wait(session, job, watching)
        except ConfigError as error:
            self._finish(job, FAILED, error.message)
            return
        job.note(WAITING if why else RUNNING, why)
        job.ready = not why

    def _deal(self) -> None:
        """Give out what there are readers for, in turn; end what has nothing left."""
        paced = self._pace.wait_s(self._clock.monotonic()) > 0
        jobs = list(self._jobs.values())
        for job in jobs:
            job.ready = job.ready and (job.small or not paced)
        while self._free() and (chosen := next_job(jobs)) is not None:
            part = chosen.parts.take() if chosen.parts is not None else None
            if part is None:
                chosen.ready = False
                continue
            self._turn += 1
            chosen.turn = self._turn
            self._give(chosen, part)
            # One that reads at a pace has its rows counted before it gets more.
            chosen.ready = chosen.small or not self._settings.rows_per_second
        for job in jobs:
            if job.state.state == RUNNING and job.parts is not None and not job.parts.left and not job.out:
                self._end(job)

    def _free(self) -> bool:
        return sum(job.out for job in self._jobs.values()) < self._settings.windows

    def _give(self, job: Job, part: Chunk | None) -> None:
        job.out += 1

        def done(future: Future[tuple[Written, Position]]) -> None:
            if future.cancelled():
                return
            error = future.exception()
            written = future.result() if error is None else None
            fault = error if isinstance(error, Exception) else None
            self._results.put(_Result(job, part, written, fault))
            self._wake.set()

        self._readers.submit(job, part).add_done_callback(done)

    def _end(self, job: Job) -> None:
        """Every part is held by the brokers: sweep what was not there, or be done."""
        if job.request.whole and not job.sweeping:
            # Before the mark is written: a crash behind it must find the same floor, and nothing left to read.
            self._note(job)
            job.sweeping = True
            self._give(job, None)
        elif not job.out:
            self._finish(job, DONE)

    def _finish(self, job: Job, state: str, detail: str = "") -> None:
        if self._jobs.get(job.request.id) is not job:
            return
        job.state = replace(job.state, state=state, detail=detail, finished_ns=self._clock.now_ns())
        if state == DONE:
            job.state = replace(job.state, share=1.0)
        log.info(
            "reread_over", extra={"table": job.request.table, "state": state, "rows": job.state.rows, "why": detail}
        )
        self._over[job.request.id] = job.request.serial
        del self._jobs[job.request.id]
        gone = self._heard.over(job.request.id, job.request.serial)
        self._write([(job.state.key(), job.state.to_json()), *gone])
        crash_point("reread_noted")
        self._edges.topics.read(job.state)

    def _take_back(self, session: Session) -> None:
        while True:
            try:
                result = self._results.get_nowait()
            except Empty:
                return
            self._settled(session, result)

    def _settled(self, session: Session, result: _Result) -> None:
        job, part, error = result.job, result.part, result.error
        job.out -= 1
        if isinstance(error, Closed):
            raise error
        if part is None:
            if error is not None:
                raise error
            crash_point("reread_swept")
            return
        if error is None and result.written is not None:
            written, position = result.written
            if job.parts is not None:
                job.written(position)
                job.done(part, written.rows, written.left_out)
            self._rows += written.rows
            self._left_out += written.left_out
            self._pace.took(written.rows + written.left_out, self._clock.monotonic())
            return
        self._unread(session, job, part, error)

    def _unread(self, session: Session, job: Job, part: Chunk, error: Exception | None) -> None:
        """A part was not read: again, or never, but by this request alone; the stream goes on."""
        match error:
            case GivenUp():
                if job.parts is not None:
                    job.parts.again(part, smaller=error.smaller)
            case Blocked():
                self._again(job, part, f"its lock is not to be had: Postgres answers {error}")
                job.not_before_s = self._clock.monotonic() + _AGAIN_S
            case Changed():
                log.info("reread_begins_anew", extra={"table": job.request.table, "why": str(error)})
                job.forget(insert_lsn(session))
                self._failed(job, None, f"the table is not what was planned: {error}")
            case SourceError():
                # No session to be had. The stream's own session finds out whether the server is away.
                self._again(job, part, error.message)
                job.not_before_s = self._clock.monotonic() + _AGAIN_S
            case psycopg.Error():
                self._failed(job, part, f"Postgres answers {sqlstate(error)}")
            case CdcError():
                self._finish(job, FAILED, error.message)
            case None:
                raise AssertionError("a part without a result")
            case _:
                log.error("reread_fault", extra={"table": job.request.table}, exc_info=error)
                self._finish(job, FAILED, f"a fault of Headrace, which the log has: {type(error).__name__}")

    def _failed(self, job: Job, part: Chunk | None, why: str) -> None:
        """Try it again after a while, or say that it has failed."""
        log.warning("reread_failing", extra={"table": job.request.table, "why": why, "attempt": job.failures + 1})
        if job.failed(self._clock.monotonic()):
            self._again(job, part, why)
        else:
            self._finish(job, FAILED, f"{why}, {job.failures} times in a row")

    def _again(self, job: Job, part: Chunk | None, why: str) -> None:
        if part is not None and job.parts is not None:
            job.parts.again(part)
        job.note(WAITING, why)

    def _note(self, job: Job | None = None) -> None:
        """Write what has changed, about once a second; at once for one job."""
        now_s = self._clock.monotonic()
        if job is None and now_s < self._note_s:
            return
        changed = [j for j in ([job] if job else self._jobs.values()) if self._noted.get(j.request.id) != j.state]
        if changed:
            records = [(j.state.key(), j.state.to_json()) for j in changed]
            # A state that names thousands of partitions is written more seldom.
            self._note_s = now_s + max(_NOTE_S, sum(len(value) for _, value in records) / 100_000)
            self._noted.update({j.request.id: j.state for j in changed})
            self._write(list(records))
            crash_point("reread_noted")

    def _forget(self) -> None:
        """Remove what the state topic says of parts that were read long ago; requests of them come without end."""
        now_s = self._clock.monotonic()
        if now_s >= self._forget_s:
            self._forget_s = now_s + _FORGET_S
            old = forgettable(self._heard.states.values(), self._clock.now_ns())
            self._write([(one.key(), None) for one in (*old, *self._heard.void())])

    def _figures(self) -> Rereads:
        jobs = list(self._jobs.values())
        return Rereads(
            states=Counter(job.state.state for job in jobs),
            windows=sum(job.out for job in jobs),
            rows=self._rows,
            left_out=self._left_out,
            shares={job.request.table: job.state.share for job in jobs},
        )

    def _write(self, records: list[tuple[bytes, bytes | None]]) -> None:
        if records:
            self._edges.state.write(records)
            for key, value in records:
                self._hear(key, value)
