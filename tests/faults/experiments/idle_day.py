"""Twenty-four hours in which nothing happens, in ninety seconds: no memory, no WAL, no session is lost on the way.

The capture runs on a clock that is a thousand times as fast. Other databases of the server write meanwhile; at the end
a change arrives as quickly as ever.
"""

from __future__ import annotations

import threading
from pathlib import Path

from cdc.capture.capture_loop import CaptureStop, keep_capturing
from cdc.figures.capture_metrics import CaptureFigures
from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.wiring.pipeline import open_capture
from tests.faults.lab import Found, Lab
from tests.faults.oracle import RETAINED_BYTES
from tests.faults.rig import Rig, fresh_rig
from tests.waiting import wait_until

DAY_S = 86_400.0
SPEED = 1_000.0
_GROWTH_MB = 20.0


class QuickClock:
    """The system's clock, so many times as fast; a sleep takes as much less."""

    def __init__(self, speed: float, clock: Clock = SYSTEM_CLOCK) -> None:
        self._speed = speed
        self._clock = clock
        self._start = clock.monotonic()

    def now_ns(self) -> int:
        return self._clock.now_ns()

    def monotonic(self) -> float:
        return self._start + (self._clock.monotonic() - self._start) * self._speed

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds / self._speed)


def run(lab: Lab) -> None:
    """A run for each seed."""
    for _ in lab.seeds():
        one(lab, DAY_S, SPEED)


def one(lab: Lab, idle_s: float, speed: float) -> None:
    """So many seconds of idleness."""
    with fresh_rig(lab, log={"min_compaction_lag": "1h"}) as rig:
        rig.prepare("create table t (id int primary key)", "create unlogged table others (id int)")
        rig.execute("create table elsewhere (id int)")
        clock = QuickClock(speed)
        figures, stop = CaptureFigures(ticked_s=clock.monotonic()), CaptureStop(clock, 60 * speed)
        opening = open_capture(rig.settings, figures=figures, stop=stop, clock=clock)
        failures: list[BaseException] = []

        def capture() -> None:
            try:
                keep_capturing(opening.open, figures=figures, stop=stop, clock=clock)
            except BaseException as failure:
                failures.append(failure)

        thread = threading.Thread(target=capture, daemon=True)
        thread.start()
        wait_until(lambda: failures or figures.phase == "streaming", 60, lambda: failures)
        try:
            _idle(lab, rig, clock, idle_s, failures)
            if figures.reconnects:
                raise Found(f"{figures.reconnects} sessions were lost while nothing happened")
            rig.execute("insert into t values (1)")
            # A thousand times as many heartbeats and looks as ever run beside it: 12 s were seen.
            rig.settle(60)
            if rig.count("t") != 1:
                raise Found("the change after the idle day is not in the log")
        finally:
            stop.want()
            thread.join(90)
        if thread.is_alive() or failures:
            raise Found(f"it did not stop in order: {failures}")


def _idle(lab: Lab, rig: Rig, clock: Clock, idle_s: float, failures: list[BaseException]) -> None:
    """Nothing of ours changes; tables that are not captured do."""
    before_mb, until = _resident_mb(), clock.monotonic() + idle_s
    while clock.monotonic() < until and not failures:
        with rig.session() as session:
            session.execute("create temporary table busy as select g from generate_series(1, 20000) g")
        SYSTEM_CLOCK.sleep(0.5)
    if failures:
        raise failures[0]
    kept = "select pg_current_wal_insert_lsn() - confirmed_flush_lsn from pg_replication_slots where slot_name = %s"
    wait_until(lambda: int(rig.one(kept, rig.slot)) < RETAINED_BYTES, 20)
    grown_mb = _resident_mb() - before_mb
    lab.peak(grown_mb=round(grown_mb, 1))
    lab.count(idle_s=round(idle_s))
    if grown_mb > _GROWTH_MB:
        raise Found(f"{grown_mb:.0f} MB more after a day of nothing")


def _resident_mb() -> float:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS"))
