"""Whether a transaction of the stream is visible to a session: its commit is streamed a moment before."""

from __future__ import annotations

from collections.abc import Callable

from cdc.clock import Clock
from cdc.sql import load
from cdc.visibility import Visibility
from connectors.postgres.connections import Connection

_WAITS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05)


class Visible:
    """Asks on one session. ``waiting`` is called, several times a second, while the commit is not visible. May raise.

    A transaction's messages are about rows that it made itself or saw: where it is visible, they are too. With a
    synchronous standby that does not answer this takes as long as the standby does.
    """

    def __init__(self, connection: Connection, *, clock: Clock, waiting: Callable[[], None]) -> None:
        self._connection = connection
        self._clock = clock
        self._waiting = waiting

    def within(self, xid: int, timeout_s: float) -> bool:
        """Whether the transaction (64 bit) is visible, or becomes so in this time."""
        start_s, turn = self._clock.monotonic(), 0
        while not self._sees(xid):
            if self._clock.monotonic() - start_s >= timeout_s:
                return False
            self._waiting()
            self._clock.sleep(_WAITS_S[min(turn, len(_WAITS_S) - 1)])
            turn += 1
        return True

    def _sees(self, xid: int) -> bool:
        row = self._connection.execute(load(__package__, "reselect.sql")["snapshot"].encode()).fetchone()
        assert row is not None
        return Visibility.parse(row[0]).sees(xid)


def newest_xid(connection: Connection) -> int:
    """The next transaction id, 64 bit: what 32-bit ids of the stream are near to."""
    row = connection.execute("select pg_snapshot_xmax(pg_current_snapshot())::text").fetchone()
    assert row is not None
    return int(row[0])
