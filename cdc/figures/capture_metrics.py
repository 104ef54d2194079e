"""Capture's figures, and whether it is well.

The loop writes plain attributes of :class:`CaptureFigures`. They are worked out into figures only when somebody asks:
:mod:`cdc.figures.capture_server` does.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from cdc.figures.measures import FreshnessTimes, SourceAhead, Trend, UnheldCommits, age_s, left_s
from cdc.process.clock import Clock
from cdc.record.server_facts import SlotFacts
from cdc.record.tables_aside import AsideState

TICK_S = 60.0
"""A loop that has not come round for so long is stuck."""
STALL_S = 30.0
"""A broker that owes an answer for so long is not there."""
PACE_S = 300.0
"""A reading's pace is that of so many seconds."""
SLOT_PACE_S = 600.0
"""The pace at which a slot loses its room is that of so many seconds."""


TRANSACTION_ROWS = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
"""Upper bounds of the buckets of cdc_transaction_rows."""


class Flow(NamedTuple):
    """The session's work so far: records handed over, bytes of their values, records unanswered, rows re-selected."""

    records: int = 0
    value_bytes: int = 0
    queued: int = 0
    reselected: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RereadFigures:
    """Tables that are read again. ``states``: how many requests wait, run or are paused. ``windows``: parts being read.
    ``rows`` written, ``left_out`` because the stream had newer ones, and ``differing`` from the log. ``shares``: by
    table, how much is done, 0 to 1.
    """

    states: Mapping[str, int] = field(default_factory=dict)
    windows: int = 0
    rows: int = 0
    left_out: int = 0
    differing: int = 0
    shares: Mapping[str, float] = field(default_factory=dict)


class Stages:
    """How far something is that has an end: a table that is read again, or the first snapshot."""

    def __init__(self) -> None:
        self._pace = Trend(PACE_S)
        self._stand: tuple[float, float] | None = None

    def note(self, now_s: float, stand: tuple[float, float] | None) -> None:
        """So much is done, of so much. None where it does not run."""
        if stand is None or (self._stand is not None and stand[1] != self._stand[1]):
            self._pace.forget()
        self._stand = stand
        if stand is not None:
            self._pace.note(now_s, stand[0])

    def over(self) -> None:
        """It does not run any more."""
        self.note(0.0, None)

    @property
    def share(self) -> float | None:
        """How much is done, 0 to 1. None where nothing runs, or nothing is planned yet."""
        return self._stand[0] / self._stand[1] if self._stand is not None and self._stand[1] else None

    def left_s(self) -> float | None:
        """Seconds until it is done, at the pace of the last minutes. None where that is not known."""
        if self._stand is None or not self._stand[1]:
            return None
        return left_s(self._stand[1] - self._stand[0], self._pace.per_s())


@dataclass
class CaptureFigures:
    """Written by the loop, read by the pages. Times in seconds of the monotonic clock unless noted otherwise.

    ``phase``: starting, waiting, streaming, reconnecting or stopping. ``waiting_for``: why, in words, and
    ``waiting_cure`` what ends that.
    ``unheld``: what the broker lacks of the session. ``open_commit_us``: when the transaction was committed of which
    more is to come, in us since 1970. ``ahead``: since when the source is ahead of what it has sent. ``noted_s``: when
    the loop last wrote down where stream and broker are. ``looked_s``: when the server last answered for slot and WAL.
    ``room``: how the WAL grows less that may still be written. ``snapshot``: the first one, while it is waited for.
    ``stuck_since_s``: since when the source is ahead and nothing moves. ``not_followed``: captured tables that the
    stream says nothing of, and why.
    ``waiting``: records of each table that waits. ``waiting_since_s``: since when one does. ``asides``: by table, what
    is noted of those that are set aside or wait. ``outbox``: events so far, updates of its table, what was refused.
    """

    phase: str = "starting"
    waiting_for: str = ""
    waiting_cure: str = ""
    ticked_s: float = 0.0
    noted_s: float | None = None
    looked_s: float | None = None
    feedback_s: float | None = None
    stalled_since_s: float | None = None
    received_lsn: int = 0
    produced_lsn: int = 0
    acked_lsn: int = 0
    flushed_lsn: int = 0
    unheld: UnheldCommits = field(default_factory=UnheldCommits)
    open_commit_us: int | None = None
    ahead: SourceAhead = field(default_factory=SourceAhead)
    freshness: FreshnessTimes = field(default_factory=FreshnessTimes)
    room: Trend = field(default_factory=lambda: Trend(SLOT_PACE_S))
    snapshot: Stages = field(default_factory=Stages)
    readings: dict[str, Stages] = field(default_factory=dict)
    started_s: float = 0.0
    transactions: int = 0
    transaction_rows: int = 0
    transaction_buckets: list[int] = field(default_factory=lambda: [0] * (len(TRANSACTION_ROWS) + 1))
    reconnects: int = 0
    flow: Callable[[], Flow] = Flow
    rereads: Callable[[], RereadFigures] = RereadFigures
    errors: Counter[str] = field(default_factory=Counter)
    events: Callable[[], Counter[tuple[str, str]]] = Counter
    outbox: Callable[[], Mapping[str, int]] = dict
    lost_values: Callable[[], Counter[tuple[str, str]]] = Counter
    waiting: Callable[[], Mapping[str, int]] = dict
    asides: Callable[[], Mapping[str, AsideState]] = dict
    waiting_since_s: float | None = None
    waiting_ready_s: float = 600.0
    slot: SlotFacts | None = None
    wal_lsn: int | None = None
    stuck_since_s: float | None = None
    not_followed: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.started_s = self.started_s or self.ticked_s

    def committed(self, rows: int) -> None:
        """Count a transaction."""
        self.transactions += 1
        self.transaction_rows += rows
        self.transaction_buckets[bisect_left(TRANSACTION_ROWS, rows)] += 1

    def flows(self, now_s: float) -> bool:
        """Whether what is written here of stream and broker is so now."""
        return self.phase == "streaming" and self.noted_s is not None and now_s - self.noted_s <= STALL_S

    def looked(self, now_s: float, slot: SlotFacts | None, wal_lsn: int | None) -> None:
        """The server answered for slot and WAL."""
        self.looked_s = now_s
        if wal_lsn is not None:
            self.ahead.look(now_s, wal_lsn)
        if slot is not None and slot.safe_wal_bytes is not None:
            self.room.note(now_s, slot.safe_wal_bytes)
        else:
            self.room.forget()
        shares = self.rereads().shares
        self.readings = {table: self.readings.get(table, Stages()) for table in shares}
        for table, stages in self.readings.items():
            stages.note(now_s, (shares[table], 1.0))

    def knows_server(self, now_s: float) -> bool:
        """Whether what is written here of slot and WAL is so now."""
        return self.looked_s is not None and now_s - self.looked_s <= STALL_S

    def lag_s(self, clock: Clock) -> float | None:
        """How old the oldest change is that the broker lacks, in seconds. 0 when it lacks none. None while nothing
        flows or the server does not answer."""
        now_s = clock.monotonic()
        if not (self.flows(now_s) and self.knows_server(now_s)):
            return None
        now_us = clock.now_ns() / 1e3
        since_s = self.ahead.since_s(self.received_lsn)
        ages = [age_s(now_us, self.unheld.oldest_us()), age_s(now_us, self.open_commit_us)]
        return max(*ages, 0.0 if since_s is None else now_s - since_s)

    def loss_s(self) -> float | None:
        """Seconds until the slot can be lost, at the pace of the last minutes. None without a limit, or a pace."""
        slot, per_s = self.slot, self.room.per_s()
        if slot is None or slot.safe_wal_bytes is None or per_s is None:
            return None
        return left_s(slot.safe_wal_bytes, -per_s)


class Health:
    """Two questions. Alive: would a restart help? Ready: do changes flow? Neither asks a server anything."""

    def __init__(self, figures: CaptureFigures, clock: Clock) -> None:
        self._figures = figures
        self._clock = clock

    def alive(self) -> tuple[bool, str]:
        """Not while the loop stands still. A Postgres or Kafka that is down is no reason: it would restart for ever."""
        age = self._clock.monotonic() - self._figures.ticked_s
        return age < TICK_S, f"the loop came round {age:.1f} s ago"

    def ready(self) -> tuple[bool, str]:
        """Do changes of every table flow? Returns a verdict, and a sentence that says what is in the way."""
        if self._figures.phase != "streaming":
            return False, f"{self._figures.phase} {self._figures.waiting_for}".strip()
        why = self._hindrance() or self._tables()
        return not why, why or "streaming"

    def trouble(self) -> tuple[str, str]:
        """Why changes do not flow, and what ends that, as far as it is not of single tables. Empty where they do, and
        while a start or an end takes its time."""
        figures, (alive, _) = self._figures, self.alive()
        if not alive:
            return f"its loop has stood still for {self._clock.monotonic() - figures.ticked_s:.0f} s", "start it again"
        if figures.phase == "streaming":
            return self._hindrance(), ""
        waits = figures.phase in ("waiting", "reconnecting")
        return (f"{figures.phase}: {figures.waiting_for}", figures.waiting_cure) if waits else ("", "")

    def _hindrance(self) -> str:
        """The hindrance of every table. Empty for none."""
        figures = self._figures
        stalled = figures.stalled_since_s
        if stalled is not None and self._clock.monotonic() - stalled > STALL_S:
            return f"the broker has not answered for {self._clock.monotonic() - stalled:.0f} s"
        if figures.slot is not None and figures.slot.wal_status == "lost":
            return "the slot is lost"
        stuck = figures.stuck_since_s
        if stuck is not None and figures.waiting_since_s is None:
            behind = max(0, (figures.wal_lsn or 0) - figures.flushed_lsn)
            return f"no progress for {self._clock.monotonic() - stuck:.0f} s, {behind:,} bytes behind the source"
        return ""

    def _tables(self) -> str:
        """The faults of single tables. Empty for nothing."""
        figures, now_s = self._figures, self._clock.monotonic()
        wrong = sorted(figures.not_followed.values())
        since_s = figures.waiting_since_s
        if since_s is not None and now_s - since_s > figures.waiting_ready_s:
            wrong.append(f"{', '.join(figures.waiting())} has waited for {now_s - since_s:.0f} s: is it locked?")
        since_ms = self._clock.now_ns() // 1_000_000 - figures.waiting_ready_s * 1000
        for table, state in figures.asides().items():
            if state.due and state.since_ms <= since_ms and table not in figures.not_followed:
                wrong.append(state.sentence())
        return "; ".join(wrong)
