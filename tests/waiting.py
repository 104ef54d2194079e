"""Waiting in tests: for a state, with a deadline; never for a time."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TypeVar

from cdc.process.clock import SYSTEM_CLOCK, Clock

T = TypeVar("T")

TIME_SCALE = float(os.environ.get("CDC_TEST_TIME_SCALE", "1"))
"""Every deadline times this: for slow machines."""


def wait_until(
    state: Callable[[], T],
    deadline_s: float = 10.0,
    describe: str | Callable[[], object] = "",
    *,
    clock: Clock = SYSTEM_CLOCK,
) -> T:
    """Return the first true value of ``state``.

    AssertionError past ``deadline_s``, naming the caller's line, the last value and ``describe`` (text, or a
    function that is asked then). An AssertionError or LookupError inside ``state`` means "not yet"; anything
    else is raised at once.
    """
    deadline = clock.monotonic() + deadline_s * TIME_SCALE
    pause_s = 0.005
    last: object = None
    while True:
        begun = clock.monotonic()
        try:
            value = state()
            if value:
                return value
            last = value
        except (AssertionError, LookupError) as not_yet:
            last = repr(not_yet)
        if clock.monotonic() > deadline:
            caller = sys._getframe(1)
            what = describe() if callable(describe) else describe
            where = f"{caller.f_code.co_filename}:{caller.f_lineno}"
            raise AssertionError(f"{where}: not reached in {deadline_s * TIME_SCALE:g} s: {what} (last: {last!r})")
        # A look that costs takes a fifth of the time at most: what is waited for needs the machine.
        looked_s = clock.monotonic() - begun
        clock.sleep(max(pause_s, min(4 * looked_s, 1.0)))
        pause_s = min(pause_s * 1.5, 0.1)
