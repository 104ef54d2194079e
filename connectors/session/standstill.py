"""Whether capture stands still while the source is ahead: progress against where the server was. Pure."""

from __future__ import annotations

from cdc.metrics import STALL_S, CaptureFigures


class Standstill:
    """Judges one session, by looks at the server. ``now_s``: of the monotonic clock, when the session began."""

    def __init__(self, now_s: float) -> None:
        self._mark = (0, now_s)
        """Where the server was, and when, at the last look that saw progress."""
        self._token: object = None

    def judge(self, figures: CaptureFigures, wal_lsn: int, now_s: float) -> None:
        """Set ``figures.stuck_since_s``. A loop that comes round may well stand still. ``wal_lsn``: the server's."""
        token = (figures.received_lsn, figures.flushed_lsn, figures.flow().records)
        # A table that waits keeps the position back, and has a limit of its own.
        waits = figures.waiting_since_s is not None
        if waits or figures.flushed_lsn >= self._mark[0] or token != self._token:
            self._mark = (wal_lsn, now_s)
        self._token = token
        figures.stuck_since_s = self._mark[1] if now_s - self._mark[1] > STALL_S else None
