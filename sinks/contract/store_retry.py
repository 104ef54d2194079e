"""Trying again while a store is out of reach: longer and longer, for a bounded time, then one sentence."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import tenacity

from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.errors import CdcError, Exit, Retry, SinkError
from cdc.process.logs import LoggedCauses
from cdc.process.untrusted_text import quoted
from sinks.contract.port import StoreAway
from sinks.contract.tries import tries

T = TypeVar("T")
log = logging.getLogger("headrace.sinks")

_FIRST_S = 0.1
_LONGEST_S = 5.0
_ATTEMPTS = 10
"""About 25 seconds in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRetry:
    """How often a store is tried. ``store``: what to call it in messages. Never with a secret in it.

    ``passing``: exceptions that may pass by themselves. ``explain``: the SinkError that any exception of the
    client stands for.
    """

    store: str
    passing: tuple[type[Exception], ...]
    explain: Callable[[Exception], SinkError]
    clock: Clock = SYSTEM_CLOCK
    attempts: int = _ATTEMPTS
    logged: LoggedCauses = field(default_factory=LoggedCauses, compare=False, repr=False)

    def call(self, act: Callable[[], T], *, again: Callable[[], object] | None = None) -> T:
        """``act``'s result. ``again`` is called before each repetition. SinkError when it goes on failing."""

        def before(state: tenacity.RetryCallState) -> None:
            failure = state.outcome.exception() if state.outcome is not None else None
            error = type(failure).__name__
            if self.logged.is_new(self.store, error):
                log.warning("store_unreachable", extra={"store": self.store, "error": error})
            if again is not None:
                again()

        retrying = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(tries(self.attempts)),
            wait=tenacity.wait_random_exponential(multiplier=_FIRST_S, max=_LONGEST_S),
            retry=tenacity.retry_if_exception_type(self.passing),
            sleep=self.clock.sleep,
            before_sleep=before,
            reraise=True,
        )
        try:
            done = retrying(act)
        except CdcError:
            raise
        except Exception as error:
            raise self.explain(error) from None
        self.logged.over(self.store)
        return done


def unreachable(store: str, why: str, *, setting: str = "url") -> SinkError:
    """The server does not answer."""
    return StoreAway(
        f"{store} cannot be reached: {brief(why)}",
        hint=f"check the sink's {setting}, and that the server runs and can be reached from here",
    )


def login_refused(store: str, why: str, *, retry: Retry = Retry.SECRET) -> SinkError:
    """The server answers and does not let us in. ``retry``: NEVER where it knows us, and a right is missing."""
    return SinkError(
        f"{store} refuses the login: {brief(why)}",
        hint='check the sink\'s user, and its password = "env:NAME", "file:PATH" or "command:PROGRAM"',
        retry=retry,
        exit=Exit.CONFIG,
    )


def brief(reason: str) -> str:
    """The first line of what a client says, and not much of it. See :func:`cdc.process.untrusted_text.quoted`."""
    return quoted(reason)
