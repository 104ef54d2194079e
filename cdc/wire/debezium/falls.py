"""Positions that fall: re-sent records, or an order that has begun anew under another server. Pure.

Kafka Connect stores offsets now and then, and a worker that was killed begins again behind the last one. It then
sends changes a second time: positions fall, and climb to where they were, because the newest record of the
partition is sent again, too. Positions that do not climb back are another server's, or of a connector that began
anew. A store that went on would take each of those changes for an old one.

Three facts prove it: a row of a first snapshot below streamed changes. A server that was not heard of before. A
transaction that its server numbers above every one that was read. Else time does: positions that stay below for
:data:`BOUND_MS` of the topic's own time.

Another server whose positions lie above breaks no order: every store takes its changes for newer, and they are. The
database has failed over all the same, or the connector was led to another one, so it is reported (:class:`ServerMove`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from cdc.errors import CdcError, Exit
from cdc.position import Position

BOUND_MS = 300_000
"""Longer than a worker takes to send again what it sent since its last stored offset."""
_MOST_ORIGINS = 256

Source = Mapping[str, Any]


class PositionsFell(CdcError):
    """The connector's positions are in no order any more: a reader that goes on takes each change for an old one."""

    exit = Exit.IDENTITY


class TransactionOrigin(NamedTuple):
    """The connector that wrote a transaction, and the transaction's number. 0 where it has none."""

    server: str
    number: int


def origin_of(source: Source) -> TransactionOrigin | None:
    """The server that wrote the change of a MySQL or MariaDB, by its GTID or its ``server_id``. None for others.

    >>> origin_of({"connector": "mysql", "gtid": "db58b0ae-2c10-11e6-b284-0242ac110002:199", "server_id": 1})
    TransactionOrigin(server='db58b0ae-2c10-11e6-b284-0242ac110002', number=199)
    >>> origin_of({"connector": "mariadb", "gtid": "0-7-41", "server_id": 7}), origin_of({"connector": "mysql"})
    (TransactionOrigin(server='0-7', number=41), None)
    >>> origin_of({"connector": "mysql", "gtid": "db58b0ae-2c10-11e6-b284-0242ac110002:billing:7"})
    TransactionOrigin(server='db58b0ae-2c10-11e6-b284-0242ac110002', number=0)
    """
    connector, gtid = source.get("connector"), source.get("gtid")
    if connector not in ("mysql", "mariadb"):
        return None
    if isinstance(gtid, str):
        server, _, number = gtid.rpartition(":" if connector == "mysql" else "-")
        if server and number.isdigit():
            uuid, tag, _ = server.partition(":")
            # The transactions of each tag (MySQL 8.3) are numbered by themselves.
            return TransactionOrigin(uuid, 0 if tag else int(number))
    return TransactionOrigin(str(source["server_id"]), 0) if source.get("server_id") else None


class ServerMove(NamedTuple):
    """Changes are of another server from here on, and still in order. ``before`` and ``now``: as
    :class:`TransactionOrigin` names them. A MariaDB's name begins with its GTID domain."""

    before: str
    now: str


class _Fall(NamedTuple):
    """Since when (the topic's time) positions are below one that was there."""

    highest: Position
    at_ms: int


class Falls:
    """The positions of one partition, in the order of its offsets. Only streamed changes raise the mark."""

    def __init__(self) -> None:
        self.highest: Position | None = None
        self.moved: ServerMove | None = None
        """That the change noted last is of a server not heard of before, in order. None for every other."""
        self._last = ""
        self._numbers: dict[str, int] = {}
        self._fall: _Fall | None = None

    def streamed(self, pos: Position, source: Source, time_ms: int) -> str:
        """Note a streamed change. Returns why its order is none any more, as a clause. Empty where it is one."""
        origin = origin_of(source)
        self.moved = None
        fault = ""
        if self.highest is None or pos >= self.highest:
            if self.highest is not None and pos.epoch != self.highest.epoch:
                self._numbers = {}
            elif origin is not None and self._numbers and origin.server not in self._numbers:
                self.moved = ServerMove(self._last, origin.server)
            self.highest, self._fall = pos, None
        else:
            fault = self._below(self.highest, origin, time_ms)
        self._heard(origin)
        return fault

    def first_snapshot(self, pos: Position) -> str:
        """Note a row of a snapshot that reads whole tables. Returns as :meth:`streamed`."""
        if self.highest is None or pos[:2] >= self.highest[:2]:
            return ""
        return "a new snapshot lies below changes that were streamed before it"

    def _below(self, highest: Position, origin: TransactionOrigin | None, time_ms: int) -> str:
        if origin is not None and self._numbers:
            known = self._numbers.get(origin.server)
            if known is None:
                return f"its positions fell, and the changes are of another server ({origin.server})"
            if origin.number > known:
                return f"its positions fell, and the transactions are newer (of {origin.server})"
        if self._fall is None:
            self._fall = _Fall(highest, time_ms)
        elif time_ms - self._fall.at_ms > BOUND_MS:
            return f"its positions fell, and are below where they were after {BOUND_MS // 60_000} minutes"
        return ""

    def _heard(self, origin: TransactionOrigin | None) -> None:
        if origin is None:
            return
        if len(self._numbers) >= _MOST_ORIGINS and origin.server not in self._numbers:
            self._numbers.clear()
        self._last = origin.server
        self._numbers[origin.server] = max(origin.number, self._numbers.get(origin.server, 0))
