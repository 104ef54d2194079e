"""Waiting until a transaction of the stream is visible to a session: its commit is streamed a moment before (H97)."""

from __future__ import annotations

import logging
from collections.abc import Callable

from cdc.clock import Clock
from cdc.sql import load
from cdc.visibility import Visibility
from connectors.postgres.session import Connection

log = logging.getLogger(__name__)

_WAITS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05)
_PATIENCE_S = 10.0


class Visible:
    """Waits on one session. ``waiting`` is called, several times a second, while the commit is not visible; may raise.

    What a transaction's messages speak of, it made itself or saw: where it is visible, so is that. With a synchronous
    standby that does not answer this takes as long as the standby does.
    """

    def __init__(self, connection: Connection, *, clock: Clock, waiting: Callable[[], None]) -> None:
        self._connection = connection
        self._clock = clock
        self._waiting = waiting

    def wait(self, xid: int, why: str) -> None:
        """Return when the transaction (64 bit) is visible; ``why``: for whom, in the log."""
        start_s, turn, told = self._clock.monotonic(), 0, False
        while not self._sees(xid):
            self._waiting()
            self._clock.sleep(_WAITS_S[min(turn, len(_WAITS_S) - 1)])
            turn += 1
            if not told and self._clock.monotonic() - start_s > _PATIENCE_S:
                told = True
                log.warning("catalog_waits", extra={"table": why, "for": "a commit to become visible"})

    def _sees(self, xid: int) -> bool:
        row = self._connection.execute(load(__package__, "reselect.sql")["snapshot"].encode()).fetchone()
        assert row is not None
        return Visibility.parse(row[0]).sees(xid)
