"""The clock is stepped, by an hour back and forth and to 1971: order, progress and sessions do not depend on it."""

from __future__ import annotations

import random
import threading

from cdc.capture.capture_loop import CaptureStop, keep_capturing
from cdc.figures.capture_metrics import CaptureFigures
from cdc.process.clock import SYSTEM_CLOCK
from cdc.wiring.pipeline import open_capture
from tests.faults import oracle
from tests.faults.lab import Found, Lab
from tests.faults.rig import fresh_rig
from tests.faults.workload import Load
from tests.waiting import wait_until

STEPS = 10
_HOUR_NS = 3_600 * 10**9


class SteppedClock:
    """The system's clock; its stamps are ``step_ns`` off, its durations are true."""

    step_ns = 0

    def now_ns(self) -> int:
        return max(10**9, SYSTEM_CLOCK.now_ns() + self.step_ns)

    def monotonic(self) -> float:
        return SYSTEM_CLOCK.monotonic()

    def sleep(self, seconds: float) -> None:
        SYSTEM_CLOCK.sleep(seconds)


def run(lab: Lab) -> None:
    """Seeds until the time is over."""
    for seed in lab.seeds():
        one(lab, seed, STEPS)


def one(lab: Lab, seed: int, steps: int) -> None:
    """One pipeline under so many steps."""
    pick = random.Random(seed)
    with fresh_rig(lab, log={"min_compaction_lag": "1h"}) as rig:
        rig.prepare()
        clock = SteppedClock()
        figures, stop = CaptureFigures(ticked_s=clock.monotonic()), CaptureStop(clock, 60)
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
            with Load(rig.dsn, seed, clients=2, pause_s=0.05) as load:
                for _ in range(steps):
                    clock.step_ns = pick.choice([-_HOUR_NS, _HOUR_NS, 0, -60 * 365 * 24 * _HOUR_NS, 24 * _HOUR_NS])
                    SYSTEM_CLOCK.sleep(pick.uniform(0.5, 2))
                    lab.count(steps=1)
            oracle.settled(rig.settings, rig.dsn, 60, lambda: failures)
            if figures.reconnects:
                raise Found(f"{figures.reconnects} sessions were lost over steps of the clock")
            rig.judge(lab)
            lab.count(transactions=load.transactions)
        finally:
            stop.want()
            thread.join(90)
        if thread.is_alive() or failures:
            raise Found(f"it did not stop in order: {failures}")
