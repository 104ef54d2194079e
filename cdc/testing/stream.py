"""A source's changes in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from cdc.clock import ManualClock
from cdc.ports import StreamBatch


class MemoryStream:
    """:class:`cdc.ports.ChangeStream` over batches that are given. Each read returns the next one.

    ``at_end`` is called by each read behind the last batch, and may raise. ``clock`` moves by what a read waits.
    """

    def __init__(
        self,
        batches: Iterable[StreamBatch] = (),
        *,
        at_end: Callable[[], None] = lambda: None,
        clock: ManualClock | None = None,
    ) -> None:
        self.batches = deque(batches)
        self.at_end = at_end
        self.received = 0
        self.last_feedback_s = 0.0
        self.acknowledged: list[int] = []
        """Every acknowledgement, in order."""
        self.closed = False
        self._clock = clock or ManualClock()

    def read(self, timeout_s: float) -> StreamBatch:
        self.last_feedback_s = self._clock.monotonic()
        if not self.batches:
            self._clock.advance(timeout_s or 0.001)
            self.at_end()
            return StreamBatch([], None)
        self._clock.advance(0.001)
        batch = self.batches.popleft()
        self.received = max(self.received, batch.wal_end or 0)
        return batch

    def acknowledge(self, lsn: int) -> None:
        self.acknowledged.append(lsn)

    def close(self) -> None:
        self.closed = True
