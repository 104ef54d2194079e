"""The source's WAL as a walsender gives it: how much of it, when it is not to be had, and when nobody says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from cdc.process.clock import SYSTEM_CLOCK
from cdc.process.errors import SourceError
from connectors.postgres.server.connections import Connection, WatchedConnection, connect
from connectors.postgres.server.failover import read_history, read_wal
from connectors.postgres.server.transport import LibpqLink, SocketCopyStream
from connectors.session.session_stream import open_stream
from tests.golden.direct import settings_of
from tests.unit.cdc.checks.test_postgres import KNOWN
from tests.unit.connectors.postgres.server.wal_server import COPY_BOTH, Enough, WalServer, given_up, refusal

WAL = bytes(range(1, 251)) * 8
START = b"START_REPLICATION"


@contextmanager
def walsender(server: WalServer, turn: Callable[[], None] = lambda: None) -> Iterator[Connection]:
    with server, closing(connect(server.source, replication=True, turn=lambda: None)) as session:
        assert isinstance(session, WatchedConnection)
        session.turn, session.limit_s = turn, 0.3
        yield session


@pytest.mark.parametrize(("lsn", "size"), [(0, 128), (len(WAL) - 88, 88), (len(WAL), 0), (len(WAL) + 5000, 0)])
def test_as_much_is_read_as_there_is(lsn: int, size: int) -> None:
    with walsender(WalServer(WAL)) as session:
        assert read_wal(session, 1, lsn, 128) == WAL[lsn : lsn + size]


@pytest.mark.parametrize(
    "begins", [COPY_BOTH + refusal("58P01"), refusal("58P01"), refusal("42501"), refusal("0A000"), refusal("XX000")]
)
def test_h249_removed_or_refused_wal_is_nothing_to_compare(begins: bytes) -> None:
    with walsender(WalServer(WAL, begins=begins)) as session:
        assert read_wal(session, 1, 0, 128) == b""


@pytest.mark.parametrize(
    "faults",
    [
        {"begins": COPY_BOTH},
        {"silent": START},
        {"closes": START},
        {"begins": COPY_BOTH + refusal("57P01")},
        {"begins": refusal("57P03")},
        {"begins": refusal("53300")},
    ],
    ids=["copies nothing", "silent", "closes", "shuts down", "starts up", "full"],
)
def test_h249_no_answer_is_no_reason_to_go_on(faults: dict[str, Any]) -> None:
    with walsender(WalServer(WAL, **faults)) as session, pytest.raises(SourceError):
        read_wal(session, 1, 1000, 128)


@pytest.mark.parametrize("begins", [b"", COPY_BOTH], ids=["where it begins", "where WAL is to come"])
def test_h252_a_stop_is_heard_while_wal_is_waited_for(begins: bytes) -> None:
    server = WalServer(WAL, begins=begins, silent=b"\0" if begins else START)
    with walsender(server, given_up) as session, pytest.raises(Enough):
        read_wal(session, 1, 0, 128)


def test_h252_a_stop_is_heard_while_a_history_is_waited_for() -> None:
    with walsender(WalServer(silent=b"TIMELINE_HISTORY"), given_up) as session, pytest.raises(Enough):
        read_history(session, 2)


@pytest.mark.parametrize("link", [SocketCopyStream, LibpqLink])
def test_h252_a_stop_is_heard_while_the_stream_begins(link: type[SocketCopyStream] | type[LibpqLink]) -> None:
    server = WalServer(silent=START)
    with walsender(server, given_up) as session, closing(link(session, 1 << 20, print)) as line, pytest.raises(Enough):
        line.start(START)


def test_h252_a_stop_is_heard_while_the_source_is_named() -> None:
    server = WalServer(WAL, silent=b"IDENTIFY_SYSTEM")
    settings = settings_of("s", server.source.dsn, "readable")
    with walsender(server) as side, pytest.raises(Enough):
        open_stream(settings, side, KNOWN, 0, SYSTEM_CLOCK, given_up)
