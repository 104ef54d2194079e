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
from sqlalchemy.orm import Session

from cdc.errors import SourceError, UsageError
from cdc.tokens import Token
from connectors.postgres.taken_tokens import async_token, token


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
