"""How far Debezium's topics hold the source: asked of Kafka Connect, as the native capture's progress topic says it.

Kafka Connect stores an offset when the records before it are acknowledged. In Postgres' offsets ``lsn_commit`` is where
the last commit ended, so every change of a transaction that committed below it lies below the topics' ends. It
moves with each record and heartbeat, as often as the worker's ``offset.flush.interval.ms`` lets it. Other databases'
offsets hold no LSN: there a record says LSN 0, once the first snapshot is over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.errors import CdcError
from cdc.process.logs import LoggedCauses
from cdc.record.position import Lsn
from cdc.record.progress import Offsets, Progress
from connectors.debezium.client import answering, entry

log = logging.getLogger(__name__)

_ASK_S = 1.0
_STORED = "the connector's stored offset"

Ask = Callable[[], Iterable[Mapping[str, Any]]]
"""The stored offsets, as :meth:`connectors.debezium.client.ConnectClient.offsets` gives them."""


def shown_lsn(stored: Iterable[Mapping[str, Any]]) -> int | None:
    """The LSN below which every commit is in the topics. None while a snapshot is read, or before anything is.

    >>> shown_lsn([{"partition": {"server": "shop"}, "offset": {"lsn_proc": 90, "lsn_commit": 80, "lsn": 90}}])
    80
    >>> shown_lsn([{"offset": {"lsn": 70, "snapshot": "INITIAL"}}]), shown_lsn([{"offset": {"lsn": 70}}])
    (None, 70)

    ConfigError where the answer has another form.
    """
    for offset in _offsets(stored):
        if offset.get("snapshot") or offset.get("snapshot_completed") is False:
            return None
        # After the snapshot and before the first commit there is the snapshot's own LSN alone.
        lsn = offset.get("lsn_commit") or offset.get("lsn")
        return _lsn(lsn) if lsn is not None else None
    return None


def snapshot_state(stored: Iterable[Mapping[str, Any]]) -> str:
    """``none`` before the connector has written, ``running`` while it reads its first snapshot, else ``complete``.

    >>> [snapshot_state(one) for one in ([], [{"offset": {"snapshot": "INITIAL"}}], [{"offset": {"lsn": 7}}])]
    ['none', 'running', 'complete']
    """
    offsets = _offsets(stored)
    if not any(offsets):
        return "none"
    running = any(one.get("snapshot") or one.get("snapshot_completed") is False for one in offsets)
    return "running" if running else "complete"


_POSITIONS = ("gtids", "lsn_commit", "lsn", "commit_scn", "scn", "commit_lsn", "change_lsn", "sec")


def shown_position(stored: Iterable[Mapping[str, Any]]) -> str:
    """Where the connector is, in its source's own words. Empty where its offsets say nothing that a person knows.

    >>> shown_position([{"offset": {"file": "binlog.000003", "pos": 77, "gtids": "0-1-9"}}])
    'GTID 0-1-9, binlog.000003:77'
    >>> shown_position([{"offset": {"lsn": 80}}]), shown_position([])
    ('0/50', '')
    """
    for offset in _offsets(stored):
        found = [f"{offset['file']}:{offset['pos']}"] if {"file", "pos"} <= offset.keys() else []
        name = next((name for name in _POSITIONS if offset.get(name)), None)
        if name is None:
            return "".join(found)
        value = str(Lsn(_lsn(offset[name]))) if name in ("lsn_commit", "lsn") else str(offset[name])
        return ", ".join([f"GTID {value}" if name == "gtids" else value, *found])
    return ""


def is_streaming(stored: Iterable[Mapping[str, Any]]) -> bool:
    """Whether the connector has read every snapshot it began, and stored an offset behind them: of any database.

    >>> is_streaming([{"offset": {"file": "bin.01", "pos": 4}}]), is_streaming([])
    (True, False)
    >>> is_streaming([{"offset": {"commit_lsn": "NULL", "snapshot": "INITIAL", "snapshot_completed": False}}])
    False
    """
    offsets = _offsets(stored)
    reading = any(o.get("snapshot") or o.get("initsync") or o.get("snapshot_completed") is False for o in offsets)
    return bool(offsets) and all(offsets) and not reading


def reads_incrementally(stored: Iterable[Mapping[str, Any]]) -> bool:
    """Whether an incremental snapshot is under way.

    >>> reads_incrementally([{"offset": {"lsn": 7, "incremental_snapshot_primary_key": "ac"}}])
    True
    >>> reads_incrementally([{"offset": {"lsn": 7}}])
    False
    """
    return any(name.startswith("incremental_snapshot") for offset in _offsets(stored) for name in offset)


def _offsets(stored: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    with answering(_STORED):
        return [entry(entry(one).get("offset") or {}) for one in stored]


def _lsn(value: object) -> int:
    """A number of 64 bits. ConfigError for anything else."""
    with answering(_STORED):
        number = int(value) if isinstance(value, int | str) and not isinstance(value, bool) else -1
        if not 0 <= number < 1 << 64:
            raise ValueError("a log position was expected")
        return number


class ConnectProgress:
    """:class:`spark.records.ports.ProgressFeed` of a Debezium connector. One thread at a time.

    ``ends``: where the table topics end now. Asked after the offsets, so that it covers them. ``epoch``: that of the
    pipeline. ``has_lsn``: whether the database is Postgres. While Kafka Connect cannot be asked nothing is reported,
    and the stores go on.
    """

    def __init__(
        self,
        ask: Ask,
        ends: Callable[[], Offsets],
        epoch: Callable[[], int],
        *,
        has_lsn: bool = True,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._ask = ask
        self._ends = ends
        self._epoch = epoch
        self._has_lsn = has_lsn
        self._clock = clock
        self._last: tuple[int, int] | None = None
        self._due_s = clock.monotonic()
        self._logged = LoggedCauses()

    def poll(self, timeout_s: float) -> list[Progress]:
        """A record if it has moved since the last call. Asks about once a second and waits so long at most."""
        now_s = self._clock.monotonic()
        if now_s < self._due_s:
            self._clock.sleep(min(timeout_s, self._due_s - now_s))
            return []
        self._due_s = now_s + _ASK_S
        try:
            found = self._look()
        except CdcError as error:
            if self._logged.is_new("connect", error.message):
                log.warning("connect_away", extra={"reason": error.message})
            return []
        self._logged.over("connect")
        return found

    def _look(self) -> list[Progress]:
        lsn = self._shown(list(self._ask()))
        if lsn is None or (now := (self._epoch(), lsn)) == self._last:
            return []
        ends = self._ends()
        self._last = now
        return [Progress(epoch=now[0], lsn=lsn, offsets=ends)]

    def _shown(self, stored: list[Mapping[str, Any]]) -> int | None:
        if self._has_lsn:
            return shown_lsn(stored)
        return 0 if is_streaming(stored) else None

    def close(self) -> None:
        """Nothing is open."""
