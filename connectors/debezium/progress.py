"""How far Debezium's topics hold the source: asked of Kafka Connect, as the native capture's progress topic says it.

Kafka Connect stores an offset when the records before it are acknowledged. In Postgres' offsets ``lsn_commit`` is where
the last commit ended, so every change of a transaction that committed below it lies below the topics' ends. It
moves with each record and heartbeat, as often as the worker's ``offset.flush.interval.ms`` lets it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cdc.clock import SYSTEM_CLOCK, Clock
from cdc.errors import CdcError
from cdc.progress import Offsets, Progress

log = logging.getLogger(__name__)

_ASK_S = 1.0

Ask = Callable[[], Iterable[Mapping[str, Any]]]
"""The stored offsets, as :meth:`connectors.debezium.client.ConnectClient.offsets` gives them."""


def shown_lsn(stored: Iterable[Mapping[str, Any]]) -> int | None:
    """The LSN below which every commit is in the topics; None while a snapshot is read, or before anything is.

    >>> shown_lsn([{"partition": {"server": "shop"}, "offset": {"lsn_proc": 90, "lsn_commit": 80, "lsn": 90}}])
    80
    >>> shown_lsn([{"offset": {"lsn": 70, "snapshot": "INITIAL"}}]), shown_lsn([{"offset": {"lsn": 70}}])
    (None, 70)
    """
    for entry in stored:
        offset = entry.get("offset") or {}
        if offset.get("snapshot") or offset.get("snapshot_completed") is False:
            return None
        # After the snapshot and before the first commit there is the snapshot's own LSN alone.
        lsn = offset.get("lsn_commit") or offset.get("lsn")
        return int(lsn) if lsn is not None else None
    return None


class ConnectProgress:
    """:class:`spark.ports.ProgressFeed` of a Debezium connector. One thread at a time.

    ``ends``: where the table topics end now; asked after the offsets, so that it covers them. While Kafka Connect
    cannot be asked nothing is reported, and the stores go on.
    """

    def __init__(
        self, ask: Ask, ends: Callable[[], Offsets], epoch: Callable[[], int], clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._ask = ask
        self._ends = ends
        self._epoch = epoch
        self._clock = clock
        self._last: int | None = None
        self._due_s = clock.monotonic()

    def poll(self, timeout_s: float) -> list[Progress]:
        """A record if it has moved since the last call; asks about once a second and waits so long at most."""
        now_s = self._clock.monotonic()
        if now_s < self._due_s:
            self._clock.sleep(min(timeout_s, self._due_s - now_s))
            return []
        self._due_s = now_s + _ASK_S
        try:
            lsn = shown_lsn(self._ask())
        except CdcError as error:
            log.warning("connect_away", extra={"reason": error.message})
            return []
        if lsn is None or lsn == self._last:
            return []
        ends = self._ends()
        self._last = lsn
        return [Progress(epoch=self._epoch(), lsn=lsn, offsets=ends)]

    def close(self) -> None:
        """Nothing is held."""
