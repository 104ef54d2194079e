"""A session whose answers are waited for with an eye on the clock.

Timeouts of the server end what the server does. One whose process stands still ends nothing, and keeps its connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import psycopg
from psycopg import waiting
from psycopg.abc import PQGen

from cdc.clock import SYSTEM_CLOCK

LIMIT_S = 120.0
"""The longest silence. Statements of such a session take seconds at most, and an answer of many rows comes in parts."""
_TURN_S = 0.1
_ASK_S = 0.5
"""How often ``turn`` is called while bytes come."""
_Answer = TypeVar("_Answer")


class WatchedConnection(psycopg.Connection[Any]):
    """``turn`` is called several times a second while the server is waited for, and may raise. Behind that the session
    is of no use, nor is it where nothing came for ``limit_s``."""

    turn: Callable[[], None] | None = None
    limit_s = LIMIT_S

    def wait(self, gen: PQGen[_Answer], interval: float = _TURN_S, timeout: float | None = None) -> _Answer:
        """The answer, as psycopg has it. psycopg.OperationalError when nothing of it came for ``limit_s``."""
        watched = gen if self.turn is None else self._watched(gen, self.turn)
        return waiting.wait_selector(watched, self.pgconn.socket, interval=interval, timeout=timeout)

    def _watched(self, gen: PQGen[_Answer], turn: Callable[[], None]) -> PQGen[_Answer]:
        heard_s = asked_s = SYSTEM_CLOCK.monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                now_s = SYSTEM_CLOCK.monotonic()
                if ready:
                    # A part of an answer. Over a slow link all of one may take longer than the limit.
                    heard_s = now_s
                if not ready or now_s - asked_s > _ASK_S:
                    asked_s = now_s
                    turn()
                if now_s - heard_s > self.limit_s:
                    raise psycopg.OperationalError(f"the server has not answered for {self.limit_s:g} s")
                wanted = gen.send(ready)
        except StopIteration as end:
            found: _Answer = end.value
            return found
