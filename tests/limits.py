"""Time limits: of a test, so that one that waits for ever fails with its stack and does not take the suite with it,
and of a run.

A test gets ``LIMIT_S`` with its fixtures, ``slow`` and ``long`` ones more, each times ``CDC_TEST_TIME_SCALE``. What
Python cannot interrupt ends the process ``_GRACE_S`` later, with the stacks of all threads on stderr.

A run ends at ``CDC_TEST_UNTIL``, a time in seconds since 1970, if that is set: a test that would begin later is
skipped.
"""

from __future__ import annotations

import faulthandler
import math
import os
import signal
import sys
import time
from collections.abc import Iterator
from types import FrameType

import pytest

from tests.waiting import TIME_SCALE

LIMIT_S = 300.0
SLOW_S = 900.0
LONG_S = 3600.0
BEHIND_S = 600.0
UNTIL_S = float(os.environ.get("CDC_TEST_UNTIL", "inf"))
_GRACE_S = 60.0
_STDERR = sys.__stderr__


class TooLong(BaseException):
    """The test's time is over. No ``except Exception`` takes it."""


def limit_of(item: pytest.Item, scale: float = TIME_SCALE, left_s: float = math.inf) -> float:
    """Seconds that the test may take, with its fixtures. ``left_s``: until the run's end. Shortly behind that a test
    that hangs fails by itself, before whoever called the run ends it without a word."""
    marks = {mark.name for mark in item.iter_markers()}
    own_s = scale * (LONG_S if "long" in marks else SLOW_S if "slow" in marks else LIMIT_S)
    return min(own_s, max(0.0, left_s) + BEHIND_S)


def require_time(now_s: float, until_s: float = UNTIL_S) -> None:
    """Skip the test where the run's time is over."""
    if now_s > until_s:
        pytest.skip("not run: this run's time is over")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Before any fixture of the test: a server that is started for nothing takes time as well."""
    require_time(time.time())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """The alarm is set while the test runs, its fixtures among it."""
    limit_s = limit_of(item, left_s=UNTIL_S - time.time())

    def over(_signal: int, _frame: FrameType | None) -> None:
        raise TooLong(f"not done in {limit_s:g} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    if _STDERR is not None:
        faulthandler.dump_traceback_later(limit_s + _GRACE_S, exit=True, file=_STDERR)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
