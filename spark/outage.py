"""Waiting for a store or the log that is away: longer each time, and no longer than asked."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    sleep_using_event,
    stop_after_delay,
    stop_when_event_set,
    wait_random_exponential,
)

from cdc.errors import CdcError, Exit, Retry

T = TypeVar("T")
TIMEOUT_S = 3600.0
"""How long one call into a store is tried. Its query is started anew then, and goes on waiting."""
_LONGEST_WAIT_S = 15.0
GRACE_S = 20.0
"""The time that the batch in hand may take once the application is to stop."""


class Halted(CdcError):
    """A stop was asked for while waiting: the batch in hand is given up and comes again."""

    exit = Exit.OK


def persist(
    action: Callable[[], T],
    *,
    halt: threading.Event,
    timeout_s: float = TIMEOUT_S,
    away: Callable[[CdcError], None] = lambda error: None,
) -> T:
    """The action's result, trying again while it fails with an error that passes with time.

    ``away`` hears of each failure before the wait. Halted when ``halt`` is set meanwhile. The last error after
    ``timeout_s``. Any other error at once.
    """

    def before_sleep(state: RetryCallState) -> None:
        failure = state.outcome.exception() if state.outcome is not None else None
        if isinstance(failure, CdcError):
            away(failure)

    retrying = Retrying(
        retry=retry_if_exception(mendable),
        wait=wait_random_exponential(multiplier=0.2, max=_LONGEST_WAIT_S),
        stop=stop_after_delay(timeout_s) | stop_when_event_set(halt),
        sleep=sleep_using_event(halt),
        before_sleep=before_sleep,
        reraise=True,
    )
    try:
        return retrying(action)
    except CdcError as error:
        if mendable(error) and halt.is_set():
            raise Halted("told to stop while the store was away") from error
        raise


def mendable(error: BaseException) -> bool:
    """Whether waiting can help."""
    return isinstance(error, CdcError) and error.retry is Retry.LATER
