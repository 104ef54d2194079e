"""The walsender's line, every way to read it: the same frames, the same refusals, nothing that takes memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from cdc.settings.model import SourceSettings
from connectors.postgres.protocol.frames import KEEPALIVE, ServerNotice, status
from connectors.postgres.protocol.messages import XLOG_DATA, Insert, Omitted
from connectors.postgres.protocol.oversized_fields import Abridged
from connectors.postgres.protocol.pgoutput import decode
from connectors.postgres.server.connections import Connection, connect
from connectors.postgres.server.transport import Broken, CopyStream, LibpqLink, Notice, SocketCopyStream, open_link
from tests.fresh import fresh_name
from tests.tls import encrypted, self_signed
from tests.waiting import wait_until

LIMIT = 1 << 20
MOST = 1000
Make = Callable[[Connection, int, Notice], CopyStream]


@dataclass
class Source:
    """``line``: how the walsender is reached."""

    dsn: str
    slot: str
    line: str

    def execute(self, *statements: str) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as session:
            for statement in statements:
                session.execute(statement.encode())

    def session(self) -> Connection:
        return connect(SourceSettings(dsn=self.line, tables=("a.b",)), replication=True)

    def start(self, slot: str = "", publication: str = "p") -> bytes:
        options = f"proto_version '1', publication_names '{publication}', messages 'true'"
        return f'START_REPLICATION SLOT "{slot or self.slot}" LOGICAL 0/0 ({options})'.encode()


@pytest.fixture
def source(database: str) -> Iterator[Source]:
    made = Source(database, fresh_name(), database)
    made.execute(
        "create table t (id int primary key, v text)",
        "create publication p for table t",
        f"select pg_create_logical_replication_slot('{made.slot}', 'pgoutput')",
    )
    yield made
    with psycopg.connect(database, autocommit=True) as session:
        gone = "select pg_terminate_backend(active_pid) from pg_replication_slots where active_pid is not null"
        session.execute(f"{gone} and slot_name = '{made.slot}'".encode())
        drop = f"select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = '{made.slot}'"

        def dropped() -> bool:
            try:
                session.execute(drop.encode())
            except psycopg.errors.ObjectInUse:
                return False
            return True

        wait_until(dropped, 10)


@pytest.fixture(params=["past libpq", "libpq", "libpq over TLS"])
def make(request: pytest.FixtureRequest, source: Source, tmp_path: Path) -> Iterator[Make]:
    if request.param == "past libpq":
        yield SocketCopyStream
    elif request.param == "libpq":
        yield LibpqLink
    else:
        with encrypted(source.dsn, self_signed(tmp_path)) as source.line:
            yield LibpqLink


def unheard(said: ServerNotice) -> None:
    raise AssertionError(said)


def rows(link: CopyStream, count: int) -> list[bytes]:
    """Frames of rows until there are so many; every frame that is none is passed over."""
    found: list[bytes] = []

    def enough() -> bool:
        while len(found) < count and ((frames := link.receive(MOST)) or link.wait(0.1)):
            assert all(frame[0] == XLOG_DATA for frame in frames[:-1])
            found.extend(frame for frame in frames if frame[0] == XLOG_DATA and frame[25:26] == b"I")
        return len(found) >= count

    wait_until(enough, 30, lambda: f"{len(found)} of {count}")
    return found


@pytest.mark.slow
def test_rows_come_in_order_and_large_ones_without_their_values(source: Source, make: Make) -> None:
    with closing(source.session()) as session, closing(make(session, LIMIT, unheard)) as link:
        assert link.start(source.start()) is None
        source.execute(
            "insert into t select g, repeat('v', g % 300) from generate_series(1, 5000) g",
            f"insert into t values (5001, repeat('w', {LIMIT // 2}))",
            f"insert into t values (5002, repeat('x', {30 * LIMIT}))",
            f"select pg_logical_emit_message(true, 'large', repeat('y', {3 * LIMIT}))",
            "insert into t values (5003, 'behind')",
        )
        found = rows(link, 5003)
    messages = [decode(frame[25:], abridged=isinstance(frame, Abridged)) for frame in found]
    values = [message.new for message in messages if isinstance(message, Insert)]
    assert values[:5000] == [(b"%d" % g, b"v" * (g % 300)) for g in range(1, 5001)]
    assert values[5000] == (b"5001", b"w" * (LIMIT // 2))
    large = values[5001][1]
    assert isinstance(large, Omitted)
    assert large.size_bytes == 30 * LIMIT
    assert values[5002] == (b"5003", b"behind")
    assert [isinstance(frame, Abridged) for frame in found[5000:]] == [False, True, False]


def test_a_refusal_is_told_by_its_state_and_may_be_tried_again(source: Source, make: Make) -> None:
    with closing(source.session()) as session, closing(make(session, LIMIT, unheard)) as link:
        refusal = link.start(source.start(slot="nowhere"))
        assert refusal is not None
        assert refusal.sqlstate == "42704"
        assert "nowhere" in refusal.primary
        assert link.start(source.start()) is None
        source.execute("insert into t values (1, 'a')")
        assert len(rows(link, 1)) == 1


def test_an_error_in_mid_stream_ends_it_and_says_why(source: Source, make: Make) -> None:
    said: list[ServerNotice] = []
    with closing(source.session()) as session, closing(make(session, LIMIT, said.append)) as link:
        assert link.start(source.start()) is None
        source.execute("insert into t values (1, 'a')")
        rows(link, 1)
        source.execute("drop publication p", "insert into t values (2, 'b')")
        wait_until(lambda: not link.receive(MOST) and (link.ended or said), 30)
    told = said[0] if said else link.error
    assert told is not None
    assert "publication" in told.primary


def test_the_server_hears_feedback_and_the_end(source: Source, make: Make) -> None:
    with closing(source.session()) as session, closing(make(session, LIMIT, unheard)) as link:
        assert link.start(source.start()) is None
        source.execute("insert into t values (1, 'a')")
        (frame,) = rows(link, 1)
        reached = int.from_bytes(frame[1:9])
        link.send(status(written=reached, flushed=reached, now_ns=0, reply=True))
        wait_until(lambda: any(f[0] == KEEPALIVE for f in link.receive(MOST)), 10)
        with psycopg.connect(source.dsn, autocommit=True) as owner:
            query = f"select confirmed_flush_lsn - '0/0' from pg_replication_slots where slot_name = '{source.slot}'"

            def confirmed() -> bool:
                row = owner.execute(query.encode()).fetchone()
                return row is not None and int(row[0]) == reached

            wait_until(confirmed, 10)
        link.finish()
        wait_until(lambda: not link.receive(MOST) and link.ended, 10)
        assert link.error is None


def test_a_line_that_is_cut_is_broken(source: Source, make: Make) -> None:
    with closing(source.session()) as session, closing(make(session, LIMIT, unheard)) as link:
        assert link.start(source.start()) is None
        source.execute(
            f"select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = '{source.slot}'"
        )

        def cut() -> bool:
            try:
                link.receive(MOST)
            except Broken:
                return True
            return link.error is not None and link.error.sqlstate == "57P01"

        wait_until(cut, 10)


def test_h58_a_line_in_plain_text_is_read_past_libpq(source: Source) -> None:
    with closing(source.session()) as session, closing(open_link(session, LIMIT, unheard)) as link:
        assert isinstance(link, SocketCopyStream)
