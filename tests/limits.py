"""A time limit of each test, so that one that waits for ever fails with its stack and does not take the suite with it.

A test gets ``LIMIT_S`` with its fixtures, ``slow`` and ``long`` ones more, each times ``CDC_TEST_TIME_SCALE``. What
Python cannot interrupt ends the process ``_GRACE_S`` later, with the stacks of all threads on stderr.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
from collections.abc import Iterator
from types import FrameType

import pytest

from tests.waiting import TIME_SCALE

LIMIT_S = 300.0
SLOW_S = 900.0
LONG_S = 3600.0
_GRACE_S = 60.0
_STDERR = sys.__stderr__


class TooLong(BaseException):
    """The test's time is over. No ``except Exception`` takes it."""


def limit_of(item: pytest.Item, scale: float = TIME_SCALE) -> float:
    """Seconds that the test may take, with its fixtures."""
    marks = {mark.name for mark in item.iter_markers()}
    return scale * (LONG_S if "long" in marks else SLOW_S if "slow" in marks else LIMIT_S)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """The alarm is set while the test runs, its fixtures among it."""
    limit_s = limit_of(item)

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
