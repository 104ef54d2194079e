"""A MySQL or a MariaDB that a connector follows: which it is, and where its binlog ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import sqlalchemy as sa

from cdc.errors import ConfigError
from connectors.mysql.gtid import mariadb_covers, mysql_covers


class CutSession(Protocol):
    """The part of :class:`connectors.mysql.session.MysqlSession` that is used here."""

    def run(self, name: str) -> None:
        """Run a named statement that returns nothing. SourceError when the server refuses it."""

    def rows(self, name: str, **parameters: str) -> Sequence[Any]:
        """The rows of a named query. SourceError when the server refuses it."""

    def stream(self, statement: sa.Select[Any], batch_rows: int) -> Any:
        """The rows of a query, ``batch_rows`` fetched at a time."""

    def rollback(self) -> None:
        """End the snapshot that is open."""

    def close(self) -> None:
        """End the session."""


class MysqlServer(NamedTuple):
    """The server's kind and version. ``mariadb``: else it is a MySQL."""

    mariadb: bool
    version: tuple[int, ...]

    def covers(self, passed: str, wanted: str) -> bool:
        """Whether a set of GTIDs holds another. ValueError for what is none."""
        return (mariadb_covers if self.mariadb else mysql_covers)(passed, wanted)


def place(file: str, pos: int) -> int:
    """A place in the binlog as the log position of :mod:`cdc.wire.debezium.order`. ValueError for another file name.

    >>> hex(place("binlog.000003", 0x100))
    '0x1800000800'
    """
    return (int(file.rpartition(".")[2]) << 32 | pos) << 3


def server_of(session: CutSession) -> MysqlServer:
    """The identity of the server. ConfigError where it has no GTIDs, which show how far the connector is."""
    (found,) = session.rows("version")
    text = str(found.version)
    mariadb = "mariadb" in text.lower()
    version = tuple(int(part) for part in text.split("-", maxsplit=1)[0].split(".") if part.isdecimal())
    if not int(found.log_bin):
        raise ConfigError("the server writes no binlog: no connector follows it", hint="start it with log_bin")
    if not mariadb:
        (mode,) = session.rows("mysql_gtid_mode")
        if str(mode.gtid_mode).upper() != "ON":
            raise ConfigError(
                f"the server's gtid_mode is {mode.gtid_mode}: without GTIDs nobody knows what the connector has passed",
                hint="set gtid_mode=ON and enforce_gtid_consistency=ON on the server, step by step as its manual says",
            )
    return MysqlServer(mariadb, version)


class BinlogEnd:
    """Where the binlog of a server ends now. Every method raises what the session raises."""

    def __init__(self, session: CutSession) -> None:
        self._session = session
        self.server = server_of(session)

    def covers(self, passed: str, wanted: str) -> bool:
        """As :meth:`MysqlServer.covers`."""
        return self.server.covers(passed, wanted)

    def gtids(self) -> str:
        """Of a MariaDB, all that it has logged. Of a MySQL those that other sessions see."""
        (found,) = self._session.rows("mariadb_written" if self.server.mariadb else "mysql_executed")
        return "".join(str(found.gtids or "").split())

    def file(self) -> tuple[str, int]:
        """The file that is written, and where the next event goes in it."""
        newer = not self.server.mariadb and self.server.version >= (8, 2)
        (found,) = self._session.rows("end_place_84" if newer else "end_place")
        return str(found[0]), int(found[1])

    def beyond(self, file: str, pos: int, gtids: str) -> str:
        """Where the log ends, if a place that was noted before lies behind that. Empty where it does not."""
        end, end_pos = self.file()
        known = self.gtids()
        if place(file, pos) <= place(end, end_pos) and self.covers(known, gtids):
            return ""
        return f"GTID {known or 'none'}, {end}:{end_pos}"
