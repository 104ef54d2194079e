"""What the experiments on size share: memory as the kernel counts it, and the pipeline that is watched."""

from __future__ import annotations

import os
from pathlib import Path

from cdc.process.clock import SYSTEM_CLOCK
from tests.faults.lab import Found, Lab
from tests.faults.lives import Life
from tests.faults.rig import Rig
from tests.waiting import wait_until

LIMIT_MB = 300
"""For the capture, whatever it is given."""


def peak_mb(life: Life) -> float:
    """The most memory that a life has had resident; 0 for one that just ended."""
    status = Path(f"/proc/{life.pid}/status").read_text(encoding="ascii")
    return next((int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM")), 0.0)


def held(life: Life) -> tuple[float, int]:
    """(MB resident, open descriptors)"""
    pages = int(Path(f"/proc/{life.pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024**2, len(os.listdir(f"/proc/{life.pid}/fd"))


def caught_up(lab: Lab, rig: Rig, life: Life, records: int, deadline_s: float, table: str = "t") -> float:
    """Wait until the table's topic has so many records and the log says it holds all; the seconds it took."""
    start = SYSTEM_CLOCK.monotonic()

    def reached() -> bool:
        if life.exit is not None:
            raise Found(f"the capture ended with {life.exit}: {life.stderr[-2000:]}")
        return rig.count(table) >= records

    wait_until(reached, deadline_s, lambda: f"{rig.count(table)} of {records}")
    rig.settle(deadline_s)
    took_s = SYSTEM_CLOCK.monotonic() - start
    require_lean(lab, life)
    return took_s


def require_lean(lab: Lab, life: Life) -> None:
    """Found when it ever needed more memory than it may, or lost its session."""
    lab.peak(memory_mb=round(peak_mb(life)))
    if peak_mb(life) > LIMIT_MB:
        raise Found(f"{peak_mb(life):.0f} MB, and {LIMIT_MB} MB is the limit")
    if life.said("reconnecting"):
        raise Found(f"it lost its session: {next(iter(life.events('reconnecting')))}")
