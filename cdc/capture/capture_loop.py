"""The capture loop: read frames, assemble records, hand them to the log, note the progress, acknowledge.

One :class:`Capture` is one session with the source. It starts from what the log says and ends by an error,
or when a stop is asked for. :func:`keep_capturing` opens the next one. Nothing is kept between two sessions: after a
broken connection, a killed process or a new machine the start is the same.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Protocol

from cdc.capture.advance import CommitTimes, ProgressMarks
from cdc.capture.windows import Moment, Windows
from cdc.figures.capture_metrics import CaptureFigures
from cdc.figures.measures import UnheldCommits
from cdc.process.clock import Clock
from cdc.process.crash_points import crash_point, declare
from cdc.process.errors import ActiveError, CdcError, LogError, PoisonError, Retry
from cdc.record.ports import Assembles, ChangeStream, CompleteTransaction, Record, StreamLog
from cdc.record.position import Lsn
from cdc.record.progress import PROGRESS_KEY, Progress
from cdc.record.server_facts import SlotFacts
from cdc.record.source_lineage import SourceLineage
from cdc.settings.secret_reference import RefusedLogin

log = logging.getLogger(__name__)

declare(
    "after_read",
    "after_assemble",
    "after_produce",
    "before_progress",
    "after_progress",
    "before_acknowledge",
    "after_acknowledge",
    "while_draining",
)

_AWAITED_S = 0.005
"""How long a read waits while the broker owes an answer."""
_IDLE_S = 0.1
_LOOK_S = 1.0
"""How often the newest answers about slot, publication and topics are taken."""
_TIDY_S = 4.0
"""How often memory is tidied."""
_RESUME_S = 0.25
"""How often a table that waits is tried again."""
_BACKOFF_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_ACTIVE_TIMEOUT_S = 120.0
_BEAT_S = 10.0
"""How often an idle source gets a heartbeat record."""
_HEARD_S = 3.0
"""A keepalive that is older says nothing of the source as it is."""


class AsideLoop(Protocol):
    """Tables that are set aside, or wait."""

    @property
    def lacking(self) -> Mapping[str, str]:
        """Topics of tables of which the log lacks changes, each with the sentence about the table."""

    def turn(self, reached: int | None, now_s: float) -> None:
        """Follow what may be followed again. ``reached``: as in :class:`cdc.capture.windows.Moment`. Raises
        LogError."""


class Stopped(Exception):
    """A stop was asked for before there was anything to stop."""


class CaptureStop:
    """A wish to stop, and until when it may be granted in order. Set by a signal, read by the loop."""

    def __init__(self, clock: Clock, drain_s: float) -> None:
        self._clock = clock
        self._drain_s = drain_s
        self._deadline: float | None = None

    @property
    def wanted(self) -> bool:
        """Whether somebody has asked for the end."""
        return self._deadline is not None

    def wanted_s(self) -> float:
        """For how long. 0 while it is not."""
        if self._deadline is None:
            return 0.0
        return self._clock.monotonic() - (self._deadline - self._drain_s)

    def want(self) -> None:
        """Ask for the end. The time for draining begins with the first call."""
        if self._deadline is None:
            self._deadline = self._clock.monotonic() + self._drain_s

    def check(self) -> None:
        """LogError when the time for stopping in order is over."""
        if self._deadline is not None and self._clock.monotonic() > self._deadline:
            raise LogError(
                f"the broker did not take everything within {self._drain_s:g} s",
                hint="nothing is lost: what it lacks is sent again at the next start",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class StartingPoint:
    """Where a session begins. ``position``: lsn of the newest progress record. The next ones go to ``lane``, which is
    the only partition of ``topic``, and name ``lineage``, the server's."""

    epoch: int
    position: int
    topic: str
    lane: int
    lineage: SourceLineage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSession:
    """The parts of one session, opened and checked.

    ``look``: the slot and the server's WAL position as last known, at once. Raises what was found to be wrong.
    ``close``: releases everything but the stream. Its argument says whether the log works. ``times``: of the commits.
    ``windows``: where rows of later snapshots enter. ``asides``: tables that are set aside.
    """

    stream: ChangeStream
    assembler: Assembles
    log: StreamLog
    start: StartingPoint
    look: Callable[[], tuple[SlotFacts | None, int | None]]
    close: Callable[[bool], None]
    times: CommitTimes = field(default_factory=CommitTimes)
    windows: Windows | None = None
    asides: AsideLoop | None = None


class Capture:
    """The loop of one session."""

    def __init__(self, session: CaptureSession, *, figures: CaptureFigures, stop: CaptureStop, clock: Clock) -> None:
        self._session = session
        self._figures = figures
        self._stop = stop
        self._clock = clock
        self._advance = ProgressMarks(session.start.position, clock.monotonic())
        self._acked = 0
        self._unheld = figures.unheld = UnheldCommits()
        self._heard = (0, 0)
        self._beat: tuple[int, int] | None = None
        self._look_s = self._tidy_s = 0.0
        self._resume_s = 0.0

    def run(self) -> None:
        """Return when a stop is asked for and everything handed over is acknowledged. Raise what went wrong."""
        figures = self._figures
        figures.phase, figures.waiting_for = "streaming", ""
        start = self._session.start
        log.info("streaming", extra={"from": str(Lsn(start.position)), "epoch": start.epoch})
        try:
            while not self._stop.wanted:
                self._turn(self._wait_s())
        except Stopped:
            # The source was waited for. Of what was on its way nothing was noted: the next start begins with it.
            log.info("stopped_waiting", extra={"why": "the source had not answered"})
        self._drain()

    @property
    def progressed(self) -> bool:
        """Whether the session has come any further than where it began."""
        return self._advance.position > self._session.start.position

    def _hand_over(self, records: Sequence[Record]) -> None:
        if records:
            if self._session.windows is not None:
                self._session.windows.touch(records)
            self._session.log.produce(records)

    def _turn(self, timeout_s: float) -> None:
        session, advance = self._session, self._advance
        frames, wal_end = session.stream.read(timeout_s)
        if frames:
            crash_point("after_read")
            assembled = session.assembler.feed(frames, self._clock.now_ns())
            crash_point("after_assemble")
            self._hand_over(assembled.records)
            crash_point("after_produce")
            commits = assembled.commits
            self._keep_back()
            if commits:
                self._committed(commits)
                if session.windows is not None:
                    session.windows.gate.streamed(commit.xid for commit in commits)
        if wal_end is not None and not session.assembler.in_transaction:
            advance.keepalive(wal_end, session.log.newest)
            self._heard = (wal_end, self._clock.now_ns())
        self._resume()
        self._settle_accounts()
        if session.windows is not None:
            reached = None if session.assembler.in_transaction else advance.reached
            lanes = session.assembler.waiting_lanes
            session.windows.turn(Moment(reached, advance.position, self._acked, advance.stored, lanes))
        if session.asides is not None:
            reached = None if session.assembler.in_transaction else advance.reached
            session.asides.turn(reached, self._clock.monotonic())

    def _resume(self) -> None:
        """Write what waited and can be had now."""
        assembler, now_s = self._session.assembler, self._clock.monotonic()
        if assembler.oldest_waiting is not None and now_s >= self._resume_s:
            records = assembler.resume()
            # At once again while it goes on. Else the table is still locked.
            self._resume_s = now_s if records else now_s + _RESUME_S
            self._hand_over(records)
            self._keep_back()

    def _keep_back(self) -> None:
        self._advance.waits(self._session.assembler.oldest_waiting, self._session.log.newest)

    def _committed(self, commits: Sequence[CompleteTransaction]) -> None:
        last, group = commits[-1], self._session.log.newest
        rows = 0
        for commit in commits:
            rows += commit.rows
            self._figures.committed(commit.rows)
        self._advance.commit(last.end_lsn, group, rows)
        self._figures.produced_lsn = last.end_lsn
        waits = self._session.assembler.oldest_waiting is not None
        self._unheld.handed(group, last.end_lsn, [commit.committed_us for commit in commits], waits=waits)

    def _settle_accounts(self) -> None:
        """Count the records that the broker has stored. Write progress and acknowledge, each if it is due."""
        session, advance = self._session, self._advance
        acked = session.log.acked()
        position = advance.position
        advance.acked(acked)
        if advance.position > position:
            crash_point("before_acknowledge")
            session.stream.acknowledge(advance.position)
            crash_point("after_acknowledge")
        now_s = self._clock.monotonic()
        if advance.due_s(now_s) == 0 or self._beats(now_s):
            self._write_progress(now_s)
        self._note(acked, now_s)

    def _beats(self, now_s: float) -> bool:
        """Whether to report once more that the source is idle: so the lag of a change that comes now is seen."""
        if self._advance.quiet_s(now_s) < _BEAT_S or self._stop.wanted:
            return False
        heard_lsn, heard_ns = self._heard
        return heard_lsn >= self._advance.position > 0 and self._clock.now_ns() - heard_ns < _HEARD_S * 1e9

    def _write_progress(self, now_s: float) -> None:
        session = self._session
        start = session.start
        lsn, (heard_lsn, heard_ns) = self._advance.durable, self._heard
        beats = self._advance.idle and 0 < lsn <= heard_lsn
        progress = Progress(
            epoch=start.epoch,
            lsn=lsn,
            offsets={topic: parts for topic, parts in session.log.offsets().items() if topic != start.topic},
            ahead=session.log.ahead(lsn),
            aside=session.asides.lacking if session.asides is not None else {},
            heartbeat_ms=heard_ns // 1_000_000 if beats else 0,
            lineage=start.lineage,
            xid=session.assembler.newest_xid,
            at_us=session.times.reached(lsn),
        )
        value = progress.to_json()
        crash_point("before_progress")
        group = session.log.produce([(start.lane, PROGRESS_KEY, value, [])])
        self._advance.writing(group, len(value), now_s)
        self._beat = (group, heard_ns) if beats else None
        crash_point("after_progress")

    def _wait_s(self) -> float:
        windows = self._session.windows
        if self._advance.waiting or (windows is not None and windows.busy):
            return _AWAITED_S
        due_s = self._advance.due_s(self._clock.monotonic())
        return _IDLE_S if due_s is None else min(_IDLE_S, due_s)

    def _drain(self) -> None:
        """Wait for the broker, note the last progress, and let the source know (measured: nothing is sent again)."""
        self._figures.phase = "stopping"
        log.info("stopping", extra={"queued": self._figures.flow().queued})
        while not self._advance.settled:
            crash_point("while_draining")
            self._settle_accounts()
            if self._advance.durable > self._advance.position and not self._advance.waiting:
                self._write_progress(self._clock.monotonic())
            self._session.log.acked(_AWAITED_S)
            self._stop.check()
        log.info("stopped", extra={"position": str(Lsn(self._advance.position))})

    def _note(self, acked: int, now_s: float) -> None:
        """Figures for the pages. Cheap, because it happens at every turn."""
        figures, advance = self._figures, self._advance
        figures.ticked_s = figures.noted_s = now_s
        figures.received_lsn = self._session.stream.received
        figures.acked_lsn = advance.durable
        figures.flushed_lsn = advance.position
        assembler = self._session.assembler
        if acked > self._acked:
            self._arrived(acked, now_s)
        self._unheld.waits(assembler.oldest_waiting)
        figures.open_commit_us = assembler.open_commit_us
        figures.feedback_s = self._session.stream.last_feedback_s
        if self._session.assembler.oldest_waiting is None:
            figures.waiting_since_s = None
        elif figures.waiting_since_s is None:
            figures.waiting_since_s = now_s
        if not advance.waiting:
            figures.stalled_since_s = None
        elif figures.stalled_since_s is None or acked > self._acked:
            figures.stalled_since_s = now_s
        self._acked = acked
        if now_s >= self._look_s:
            self._look_s = now_s + _LOOK_S
            figures.slot, figures.wal_lsn = self._session.look()
        if now_s >= self._tidy_s:
            self._tidy_s = now_s + _TIDY_S
            # The loop makes no cycles, so the collector's frequent rounds are turned off (see cli/run).
            # This round collects what errors and callbacks leave behind.
            gc.collect()

    def _arrived(self, acked: int, now_s: float) -> None:
        """The broker holds more than before: how long that took."""
        freshness, now_ns = self._figures.freshness, self._clock.now_ns()
        times_us = self._unheld.acked(acked)
        if times_us:
            freshness.arrived(times_us, now_ns / 1e3, now_s)
        if self._beat is not None and self._beat[0] <= acked:
            freshness.add((now_ns - self._beat[1]) / 1e9, now_s, origin="heartbeat")
            self._beat = None


def keep_capturing(
    open_session: Callable[[], CaptureSession], *, figures: CaptureFigures, stop: CaptureStop, clock: Clock
) -> None:
    """Capture until a stop is asked for. Open a new session when one broke for a reason that passes.

    The first session has to open: an error of its start is raised at once, but for a login's (RefusedLogin). Later a
    source or broker is waited for, however long it is down. It ends with what waiting cannot cure.
    """
    attempt, streamed, login = 0, False, RefusedLogin(clock)
    active_since: float | None = None
    while not stop.wanted:
        session, capture = None, None
        try:
            session = open_session()
            streamed, active_since = True, None
            login.over()
            capture = Capture(session, figures=figures, stop=stop, clock=clock)
            capture.run()
            session.stream.close()
            session.close(True)
            return
        except CdcError as error:
            if session is not None:
                _abandon(session, log_works=not isinstance(error, LogError | PoisonError))
            figures.errors[type(error).__name__] += 1
            passes = login.may_pass(error) or (streamed and error.retry not in (Retry.NEVER, Retry.SECRET))
            if not passes or stop.wanted:
                raise
            if capture is not None and capture.progressed:
                # Opening alone is none: what ends every session at the same change would be met without pause.
                attempt = 0
            if isinstance(error, ActiveError):
                active_since = clock.monotonic() if active_since is None else active_since
                if clock.monotonic() - active_since > _ACTIVE_TIMEOUT_S:
                    raise
            _wait_before_next(error, attempt, figures, stop, clock)
            attempt += 1
        except BaseException:
            if session is not None:
                _abandon(session, log_works=False)
            raise


def _abandon(session: CaptureSession, *, log_works: bool) -> None:
    """Records on their way to a broker that works may arrive. The next session then finds it there."""
    with closing(session.stream), suppress(CdcError):
        session.close(log_works)


def _wait_before_next(error: CdcError, attempt: int, figures: CaptureFigures, stop: CaptureStop, clock: Clock) -> None:
    wait_s = _BACKOFF_S[min(attempt, len(_BACKOFF_S) - 1)]
    figures.phase, figures.waiting_for, figures.waiting_cure = "reconnecting", error.message, error.hint
    figures.reconnects += 1
    log.warning("reconnecting", extra={"error": error.message, "wait_s": wait_s, "attempt": attempt + 1})
    until = clock.monotonic() + wait_s
    while clock.monotonic() < until and not stop.wanted:
        figures.ticked_s = clock.monotonic()
        clock.sleep(_IDLE_S)
