"""The source's WAL as a walsender gives it: how much of it, when it is not to be had, and when nobody says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from cdc.clock import SYSTEM_CLOCK
from cdc.errors import IdentityError, SourceError
from cdc.wal_witness import WalWitness
from connectors.postgres.connections import Connection, connect
from connectors.postgres.lineage import LEAST_BYTES, WITNESS_BYTES, read_last_written, read_noted, read_wal
from connectors.postgres.link import LibpqLink, SocketLink
from connectors.postgres.watched import WatchedConnection
from connectors.postgres.witnessed import require_witnessed
from connectors.session.replication import open_stream
from tests.golden.direct import settings_of
from tests.unit.cdc.checks.test_postgres import KNOWN
from tests.unit.connectors.postgres.wal_server import COPY_BOTH, Enough, WalServer, given_up, refusal

WAL = bytes(range(1, 251)) * 8
START = b"START_REPLICATION"


@contextmanager
def walsender(server: WalServer, turn: Callable[[], None] = lambda: None) -> Iterator[Connection]:
    with server, closing(connect(server.source, replication=True, turn=lambda: None)) as session:
        assert isinstance(session, WatchedConnection)
        session.turn, session.limit_s = turn, 0.3
        yield session


@pytest.mark.parametrize(("lsn", "size"), [(0, WITNESS_BYTES), (len(WAL) - 88, 88), (len(WAL) - LEAST_BYTES, 64)])
def test_h247_as_much_is_read_as_there_is(lsn: int, size: int) -> None:
    with walsender(WalServer(WAL)) as session:
        assert read_wal(session, 1, lsn) == WAL[lsn : lsn + size].hex()


def test_h247_two_promoted_at_a_segments_begin_differ() -> None:
    """The segment's header and the head of the first record are the same on both. Its time is not."""
    alike, found = bytes(range(1, 49)), []
    for own in (b"a", b"b"):
        with walsender(WalServer(alike + own * 40)) as session:
            found.append(read_wal(session, 1, 0))
    assert found[0] != found[1]
    assert {len(wal or "") for wal in found} == {2 * 88}


@pytest.mark.parametrize("size", [48, 88, 128])
def test_h247_a_note_is_compared_over_its_own_length(size: int) -> None:
    witness = WalWitness(epoch=1, timeline=1, lsn=100, wal=WAL[100 : 100 + size].hex())
    with walsender(WalServer(WAL)) as session:
        assert read_noted(session, witness) == witness.wal


@pytest.mark.parametrize("lsn", [len(WAL) - LEAST_BYTES + 1, len(WAL), len(WAL) + 5000])
def test_h249_what_is_not_written_is_told_from_silence(lsn: int) -> None:
    with walsender(WalServer(WAL)) as session:
        assert read_wal(session, 1, lsn) is None


@pytest.mark.parametrize(
    "begins", [COPY_BOTH + refusal("58P01"), refusal("58P01"), refusal("42501"), refusal("0A000"), refusal("XX000")]
)
def test_h249_removed_or_refused_wal_is_nothing_to_compare(begins: bytes) -> None:
    with walsender(WalServer(WAL, begins=begins)) as session:
        assert read_wal(session, 1, 0) == ""


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
@pytest.mark.parametrize("read", [read_wal, read_last_written])
def test_h249_no_answer_is_no_reason_to_go_on(
    faults: dict[str, Any], read: Callable[[Connection, int, int], object]
) -> None:
    with walsender(WalServer(WAL, **faults)) as session, pytest.raises(SourceError):
        read(session, 1, 1000)


def test_h248_what_was_noted_is_compared_once_written() -> None:
    """A server that was put back, and has written as far as the note lies."""
    other = WalWitness(epoch=1, timeline=1, lsn=1000, wal="ff" * 128)
    behind = WalWitness(epoch=1, timeline=1, lsn=1900, wal="ff" * 128)
    with WalServer(WAL) as server, closing(connect(server.source)) as session:
        server.inserted = 5000
        with pytest.raises(IdentityError, match="has other WAL"):
            require_witnessed(session, server.source, KNOWN, other)
        with pytest.raises(SourceError, match="not have its WAL up to 0/7EC on its disk yet"):
            require_witnessed(session, server.source, KNOWN, behind)


@pytest.mark.parametrize("begins", [b"", COPY_BOTH], ids=["where it begins", "where WAL is to come"])
def test_h252_a_stop_is_heard_while_wal_is_waited_for(begins: bytes) -> None:
    server = WalServer(WAL, begins=begins, silent=b"\0" if begins else START)
    with walsender(server, given_up) as session, pytest.raises(Enough):
        read_wal(session, 1, 0)


@pytest.mark.parametrize("link", [SocketLink, LibpqLink])
def test_h252_a_stop_is_heard_while_the_stream_begins(link: type[SocketLink] | type[LibpqLink]) -> None:
    server = WalServer(silent=START)
    with walsender(server, given_up) as session, closing(link(session, 1 << 20, print)) as line, pytest.raises(Enough):
        line.start(START)


def test_h252_a_stop_is_heard_while_the_source_is_named() -> None:
    witness = WalWitness(epoch=1, timeline=1, lsn=1000, wal=WAL[1000:1128].hex())
    server = WalServer(WAL, silent=b"IDENTIFY_SYSTEM")
    settings = settings_of("s", server.source.dsn, "readable")
    with walsender(server) as side:
        with pytest.raises(Enough):
            open_stream(settings, side, KNOWN, 0, SYSTEM_CLOCK, given_up)
        with pytest.raises(Enough):
            require_witnessed(side, server.source, KNOWN, witness, given_up)
