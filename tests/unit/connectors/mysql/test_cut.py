"""Cuts of both servers on a double of their sessions: what is read in which order, and what is proven by it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from cdc.clock import ManualClock
from cdc.cuts import VerifiedTable
from cdc.errors import ConfigError, SourceError
from connectors.mysql.binlog_cut import Converter, MySqlCut, Passed
from connectors.mysql.binlog_end import BinlogEnd, MysqlServer, place, server_of
from connectors.mysql.columns import Readings, SourceColumn, readings_of
from tests.unit.connectors.mysql.test_columns import ID, TABLE, source, stored

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


@dataclass
class Result:
    rows: Sequence[Sequence[Any]]
    closed: bool = False

    def partitions(self) -> Iterator[Sequence[Sequence[Any]]]:
        yield self.rows

    def close(self) -> None:
        self.closed = True


@dataclass
class Session:
    """Answers by a query's name; ``executed``: one set of GTIDs for each time that it is asked for."""

    version: str
    gtid_mode: str = "ON"
    log_bin: int = 1
    at: tuple[str | None, str | None] = ("binlog.000003", "256")
    executed: list[str] = field(default_factory=lambda: ["0-1-9"])
    held: Sequence[Sequence[Any]] = ()
    done: list[str] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)

    def run(self, name: str) -> None:
        self.done.append(name)

    def rows(self, name: str, **parameters: str) -> Sequence[Any]:
        self.done.append(name)
        gtids = self.executed[0]
        if name in ("mysql_executed", "mariadb_written") and len(self.executed) > 1:
            self.executed.pop(0)
        answers: dict[str, Any] = {
            "version": SimpleNamespace(version=self.version, log_bin=self.log_bin, server_id=1),
            "mysql_gtid_mode": SimpleNamespace(gtid_mode=self.gtid_mode),
            "mariadb_snapshot_place": SimpleNamespace(file=self.at[0], pos=self.at[1]),
            "mysql_executed": SimpleNamespace(gtids=gtids),
            "mariadb_written": SimpleNamespace(gtids=gtids),
            "end_place": ("binlog.000003", 512, "", ""),
            "end_place_84": ("binlog.000003", 768, "", ""),
        }
        return [answers[name]]

    def stream(self, statement: Any, batch_rows: int) -> Any:
        self.statements.append(str(statement))
        return Result(self.held)

    def rollback(self) -> None:
        self.done.append("rollback")

    def close(self) -> None:
        self.done.append("close")


def cut_of(session: Session, passed: Passed = Passed("", 0, "")) -> MySqlCut:  # noqa: B008
    return MySqlCut(session, session, lambda: passed, ManualClock(), settle_s=1)


def test_h131_mariadb_names_the_binlog_position_of_a_snapshot() -> None:
    session = Session("10.11.6-MariaDB-log")
    cut = cut_of(session).cut()
    assert (cut.settled, cut.certain, cut.place) == (place("binlog.000003", 256) + 1, True, "0-1-9")
    assert cut.fence == place("binlog.000003", 512)
    # The GTIDs are asked for behind the snapshot: what it shows lies at or below them.
    assert session.done.index("snapshot") < session.done.index("mariadb_written")


def test_h131_mysql_is_cut_once_the_connectors_place_is_visible() -> None:
    session = Session("8.0.36", executed=[f"{UUID}:1-4", f"{UUID}:1-4", f"{UUID}:1-5", f"{UUID}:1-6"])
    cut = cut_of(session, Passed("binlog.000002", 77, f"{UUID}:1-5")).cut()
    assert (cut.settled, cut.certain, cut.place) == (place("binlog.000002", 77) + 1, True, f"{UUID}:1-6")
    assert session.done.index("snapshot") > session.done.index("mysql_executed")


@pytest.mark.parametrize("passed", [Passed("", 0, ""), Passed("binlog.000002", 77, f"{UUID}:1-5")])
def test_h131_what_never_gets_visible_is_not_certain(passed: Passed) -> None:
    assert not cut_of(Session("8.4.1", executed=[f"{UUID}:1-4"]), passed).cut().certain


def test_newer_servers_are_asked_for_their_place_in_new_words() -> None:
    session = Session("8.4.1", executed=[""])
    assert cut_of(session).insert_lsn() == place("binlog.000003", 768)


@pytest.mark.parametrize(
    ("file", "pos", "gtids", "beyond"),
    [
        ("binlog.000003", 512, "0-1-9", ""),
        ("binlog.000002", 9999, "0-1-9", ""),
        ("binlog.000003", 513, "0-1-9", "GTID 0-1-9, binlog.000003:512"),
        ("binlog.000004", 4, "0-1-1", "GTID 0-1-9, binlog.000003:512"),
        ("binlog.000001", 4, "0-1-10", "GTID 0-1-9, binlog.000003:512"),
    ],
)
def test_h153_a_place_behind_the_end_of_the_log_is_known(file: str, pos: int, gtids: str, beyond: str) -> None:
    assert BinlogEnd(Session("10.11.6-MariaDB-log")).beyond(file, pos, gtids) == beyond


def test_h131_a_server_without_gtids_or_binlog_is_refused() -> None:
    with pytest.raises(ConfigError, match="gtid_mode is OFF"):
        server_of(Session("8.0.36", gtid_mode="OFF"))
    with pytest.raises(ConfigError, match="no binlog"):
        server_of(Session("10.11.6-MariaDB", log_bin=0))
    with pytest.raises(SourceError, match="does not say where its binlog stood"):
        cut_of(Session("10.11.6-MariaDB", at=(None, None))).cut()
    assert server_of(Session("8.0.36")) == MysqlServer(mariadb=False, version=(8, 0, 36))


def table(*columns: SourceColumn) -> tuple[VerifiedTable, Readings]:
    shape = stored(v="text")
    found = readings_of(TABLE, "t", [ID, *columns], shape, ["id"])
    assert isinstance(found, Readings)
    return VerifiedTable(shape=found.shape, stored=shape, rows=2), found


def test_rows_are_read_whole_or_by_key() -> None:
    session = Session("10.11.6-MariaDB", held=[(1, "a"), (2, None)])
    reader = cut_of(session)
    verified, found = table(source("text"))
    reader.know(TABLE, found.readings)
    assert list(reader.rows(verified)) == [(["1", "2"], [b'[1,"a"]', b"[2,null]"])]
    assert reader.rows_of(verified, ["2", "x", "1:1"]) == {"2": b"[2,null]"}
    (records,) = reader.records_of(verified, ["1"])
    assert records["1"] == (b'{"id":1}', b'{"id":1,"v":"a"}')
    whole, keyed, _ = session.statements
    assert "WHERE" not in whole
    assert "WHERE (id) IN" in keyed


def test_a_value_of_another_form_is_a_sentence_without_the_value() -> None:
    verified, found = table(source("text"))
    with pytest.raises(SourceError, match="column id") as refused:
        Converter(verified.shape, found.readings)([("secret", "a")])
    assert "secret" not in refused.value.message
