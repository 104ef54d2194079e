"""How long a refused login is tried again, with its secret read anew each time.

Passwords and tokens rotate: a server may know the next one before its file is written, or only some time after.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from cdc.clock import Clock
from cdc.errors import CdcError, Retry

T = TypeVar("T")
_AGAIN_S = 1.0

SHORT_S = 15.0
"""Of a command, and of a process that starts: somebody waits for it."""
LONG_S = 300.0
"""Of a process that has worked before: the secret was right then."""


class RefusedLogin:
    """The refusals since a login was last accepted."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._limit_s = SHORT_S
        self._since_s: float | None = None

    def may_pass(self, error: CdcError) -> bool:
        """Whether the login that failed with this error is to be tried again."""
        if error.retry is not Retry.SECRET:
            return False
        now_s = self._clock.monotonic()
        self._since_s = now_s if self._since_s is None else self._since_s
        return now_s - self._since_s <= self._limit_s

    def over(self) -> None:
        """A login was accepted."""
        self._since_s, self._limit_s = None, LONG_S


def patiently(act: Callable[[], T], clock: Clock) -> T:
    """The result of ``act``, which reads its secret itself: again for :data:`SHORT_S` while a login is refused."""
    login = RefusedLogin(clock)
    while True:
        try:
            return act()
        except CdcError as error:
            if not login.may_pass(error):
                raise
        clock.sleep(_AGAIN_S)
