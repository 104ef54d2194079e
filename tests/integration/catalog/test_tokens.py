"""A token from real connections: of a role without any rights, of each driver that is here, and after a promotion."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from psycopg.conninfo import make_conninfo
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row, namedtuple_row, scalar_row
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker

from cdc.process.errors import SourceError, UsageError
from cdc.record.tokens import Token
from connectors.postgres.server.connection_token import SQL, async_token, token


class Base(DeclarativeBase):
    """The tables of an application."""


class Thing(Base):
    """One of its rows."""

    __tablename__ = "thing"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]


@pytest.fixture
def unprivileged(database: str) -> Iterator[str]:
    """A role that may log in and nothing else, in a database from which PUBLIC has no rights but to connect."""
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute("create role token_reader login password 'reads' nosuperuser noreplication")
        owner.execute("revoke all on schema public from public")
        yield make_conninfo(database, user="token_reader", password="reads")
        owner.execute("drop role token_reader")


def server(dsn: str) -> tuple[str, int]:
    # A walsender names no encoding, and without one text comes as bytes.
    with psycopg.connect(make_conninfo(dsn, replication="true"), autocommit=True) as walsender:
        row = walsender.execute("IDENTIFY_SYSTEM").fetchone()
    assert row is not None
    return row[0].decode(), int(row[1])


def insert_lsn(dsn: str) -> int:
    with psycopg.connect(dsn) as session:
        row = session.execute("select (pg_current_wal_insert_lsn() - '0/0')::int8").fetchone()
    assert row is not None
    return int(row[0])


def test_a_role_without_rights_gets_what_the_server_says(unprivileged: str, database: str) -> None:
    before = insert_lsn(database)
    with psycopg.connect(unprivileged) as session:
        found = token(session)
        assert session.info.transaction_status == TransactionStatus.IDLE
    assert (found.system, found.timeline) == server(database)
    assert before <= found.lsn <= insert_lsn(database)
    assert Token.parse(str(found)) == found


def test_it_covers_the_commit_before_it(database: str) -> None:
    with psycopg.connect(database) as session:
        session.execute("create table written (id int primary key)")
        session.execute("set synchronous_commit = off")
        session.execute("insert into written values (1)")
        with pytest.raises(UsageError, match="a transaction is open"):
            token(session)
        session.commit()
        first = token(session)
        session.execute("insert into written values (2)")
        session.commit()
        assert token(session).lsn > first.lsn


@pytest.mark.parametrize("row_factory", [dict_row, namedtuple_row, scalar_row])
def test_it_reads_the_same_under_every_row_factory(database: str, row_factory: Any) -> None:
    with psycopg.connect(database, row_factory=row_factory) as session:
        session.execute("set search_path = nowhere")
        session.commit()
        assert token(session).system == server(database)[0]


def test_sqlalchemy_connections_and_sessions_give_it(database: str) -> None:
    engine = sa.create_engine(
        "postgresql+psycopg://", creator=partial(psycopg.connect, database), poolclass=sa.NullPool
    )
    with engine.connect() as connection:
        found = token(connection)
        assert not connection.in_transaction()
        connection.execute(sa.text("select 1"))
        with pytest.raises(UsageError, match="a transaction is open"):
            token(connection)
    with Session(engine) as session:
        again = token(session)
        assert not session.in_transaction()
    assert (found.system, found.timeline) == (again.system, again.timeline) == server(database)
    assert again.lsn >= found.lsn


class Silent:
    """A DBAPI connection that does not say whether a transaction is open, as pg8000's and Django's."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def cursor(self) -> Any:
        return self._connection.cursor()


def test_h267_a_silent_driver_gets_none_before_its_commit(database: str) -> None:
    with psycopg.connect(database) as session:
        session.execute("create table written (id int primary key)")
        with pytest.raises(UsageError, match="a transaction is open"):
            token(Silent(session))
        session.execute("select 1")
        session.commit()
        assert token(Silent(session)).system == server(database)[0]


def test_h267_a_scoped_session_gets_none_before_its_commit(database: str) -> None:
    engine = sa.create_engine(
        "postgresql+psycopg://", creator=partial(psycopg.connect, database), poolclass=sa.NullPool
    )
    session = scoped_session(sessionmaker(engine))
    session.execute(sa.text("create table written (id int primary key)"))
    with pytest.raises(UsageError, match="a transaction is open"):
        token(session)
    session.commit()
    assert token(session).system == server(database)[0]
    session.remove()


def test_a_session_keeps_what_it_has_loaded(database: str) -> None:
    engine = sa.create_engine(
        "postgresql+psycopg://", creator=partial(psycopg.connect, database), poolclass=sa.NullPool
    )
    Base.metadata.create_all(engine)
    with Session(engine, expire_on_commit=False) as session:
        thing = Thing(id=1, name="a")
        session.add(thing)
        with pytest.raises(UsageError, match="a transaction is open"):
            token(session)
        session.commit()
        token(session)
        assert thing.__dict__["name"] == "a"


def test_connections_without_transactions_give_it(database: str) -> None:
    engine = sa.create_engine(
        "postgresql+psycopg://", creator=partial(psycopg.connect, database), poolclass=sa.NullPool
    )
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sa.text("select 1"))
        assert connection.in_transaction()
        assert token(connection).system == server(database)[0]


def test_a_connection_that_cannot_commit_says_why(database: str) -> None:
    closed = psycopg.connect(database)
    closed.close()
    with pytest.raises(SourceError, match="the connection is closed"):
        token(closed)
    with psycopg.connect(database) as session:
        with pytest.raises(psycopg.errors.SyntaxError):
            session.execute("selec")
        with pytest.raises(UsageError, match="has failed"):
            token(session)
        session.rollback()


def wrote_to(session: psycopg.Connection[Any], goal: int, page: int) -> int:
    """Write until the WAL's last record ends where its page of this size does. The insert LSN there: ``goal`` bytes
    into the next page."""

    def padded(size: int) -> int:
        session.execute("select pg_logical_emit_message(true, 'pad', repeat('a', %s))", [size])
        session.commit()
        return insert_lsn(session.info.dsn)

    start = insert_lsn(session.info.dsn)
    between = padded(400) - start - 400
    for number in range(300):
        start = insert_lsn(session.info.dsn)
        left = page - start % page
        if left < 1500:
            padded(left + 200)
            continue
        # More than a page holds headers, and what the server writes by itself comes between.
        headers = (left // 8192) * 24
        end = padded(left - headers - between - (number // 3) % 20 * 8 + 64)
        if end % page == goal:
            return end
    raise AssertionError("no record ended with its page")


def test_h268_a_commit_that_ends_with_its_page(database: str) -> None:
    with psycopg.connect(database) as session:
        end = wrote_to(session, 24, 8192)
        assert (found := token(session)).lsn in (end - 24, insert_lsn(database)), "the page's start, if nothing came"
        assert found.lsn % 8192 != 24
        session.execute("select pg_logical_emit_message(true, 'pad', 'a')")
        session.commit()
        before = insert_lsn(database)
        assert before <= token(session).lsn <= insert_lsn(database)


def test_h268_a_commit_that_ends_with_its_segment(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as session:
        # A switch leaves the rest of a segment empty: the next record goes behind the next one's long header.
        session.execute("select pg_switch_wal()")
        found = token(session)
        assert found.lsn % 2**24 != 40
        assert found.lsn <= insert_lsn(database)


@pytest.mark.parametrize(
    ("lsn", "said"),
    [
        ("2A/6B002018", "2A/6B002000"), ("2A/6B000028", "2A/6B000000"), ("2A/6B000018", "2A/6B000018"),
        ("2A/6B002028", "2A/6B002028"), ("2A/6B002020", "2A/6B002020"), ("2A/6B002000", "2A/6B002000"),
        ("2B/18", "2B/18"), ("2B/28", "2B/0"),
    ],
)  # fmt: skip
def test_h268_the_start_of_a_page_is_the_same_place(database: str, lsn: str, said: str) -> None:
    statement = SQL.replace("pg_catalog.pg_current_wal_insert_lsn()", f"'{lsn}'::pg_catalog.pg_lsn")
    with psycopg.connect(database) as session:
        row = session.execute(statement.encode()).fetchone()
    assert row is not None
    assert row[0].partition(":")[2] == said


class AsyncpgLike:
    """The two methods of a connection of asyncpg that count here."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection

    def is_in_transaction(self) -> bool:
        return self._connection.info.transaction_status != TransactionStatus.IDLE

    async def fetchrow(self, statement: bytes) -> Any:
        return await (await self._connection.execute(statement)).fetchone()


def test_asynchronous_connections_give_it(database: str) -> None:
    async def take() -> tuple[Token, Token, TransactionStatus]:
        async with await psycopg.AsyncConnection.connect(database) as session:
            own = await async_token(session)
            status = session.info.transaction_status
            await session.set_autocommit(True)
            return own, await async_token(AsyncpgLike(session)), status

    own, other, status = asyncio.run(take())
    assert (own.system, own.timeline) == (other.system, other.timeline) == server(database)
    assert status == TransactionStatus.IDLE


def test_a_server_that_ends_the_session_gives_none(database: str) -> None:
    with psycopg.connect(database) as session, psycopg.connect(database, autocommit=True) as owner:
        owner.execute("select pg_terminate_backend(%s)", [session.info.backend_pid])
        with pytest.raises(SourceError, match="Postgres gives no token") as refused:
            token(session)
    assert "on the primary" in refused.value.hint


def test_a_session_that_ends_while_it_is_awaited_gives_none(database: str) -> None:
    async def take() -> None:
        async with await psycopg.AsyncConnection.connect(database) as session:
            with psycopg.connect(database, autocommit=True) as owner:
                owner.execute("select pg_terminate_backend(%s)", [session.info.backend_pid])
            with pytest.raises(SourceError, match="Postgres gives no token"):
                await async_token(session)

    asyncio.run(take())
