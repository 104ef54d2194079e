"""``cdc.outbox`` and ``cdc.inbox`` on real connections: of psycopg and SQLAlchemy, to be awaited and not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import orjson
import psycopg
import pytest
import sqlalchemy as sa
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.orm import Session

from cdc import inbox, outbox
from cdc.process.errors import UsageError

TABLE = (
    "create table outbox (id uuid primary key, aggregatetype text, aggregateid text, type text, payload jsonb, "
    "at timestamptz default now())"
)
EVENT = ("Order", 7, "Paid", {"amount": "10.50"})
WRITTEN = ("Order", "7", "Paid", {"amount": "10.50"})


@pytest.fixture
def session(database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database, autocommit=True) as opened:
        opened.execute(TABLE)
        opened.execute(inbox.create_sql().encode())
        yield opened


def url(database: str) -> sa.URL:
    place = {name: str(value) for name, value in conninfo_to_dict(database).items()}
    return sa.URL.create(
        "postgresql+psycopg",
        username=place["user"],
        host=place["host"],
        port=int(place["port"]),
        database=place["dbname"],
        query={"passfile": place["passfile"]},
    )


def written(session: psycopg.Connection[Any]) -> list[Any]:
    return session.execute("select aggregatetype, aggregateid, type, payload from outbox").fetchall()


def test_a_row_is_written_with_every_kind_of_connection(session: psycopg.Connection[Any], database: str) -> None:
    with session.transaction():
        identity = outbox.emit(session, *EVENT, table="public.outbox")
    assert session.execute("select id::text from outbox").fetchall() == [(identity,)]
    engine = sa.create_engine(url(database))
    with engine.begin() as connection:
        outbox.emit(connection, *EVENT, table="public.outbox")
    with Session(engine) as orm, orm.begin():
        outbox.emit(orm, *EVENT, table="public.outbox")
    engine.dispose()

    async def awaited() -> None:
        async with await psycopg.AsyncConnection.connect(database) as connection:
            await outbox.async_emit(connection, *EVENT, table="public.outbox")

    asyncio.run(awaited())
    assert written(session) == [WRITTEN] * 4


def test_a_message_carries_the_payload_as_it_is(session: psycopg.Connection[Any]) -> None:
    statements: list[Any] = []

    class Noting:
        def execute(self, statement: str, values: tuple[str, ...]) -> None:
            statements.append(values)
            session.execute(statement.encode(), values)

    with session.transaction():
        outbox.emit(Noting(), "Order", "7", 'Pa"id', b'{"n": 1.10}', prefix="events")
    ((prefix, content),) = statements
    assert prefix == "events"
    assert content.endswith('"payload": {"n": 1.10}}')
    assert orjson.loads(content)["type"] == 'Pa"id'


def test_an_event_without_a_transaction_is_refused(session: psycopg.Connection[Any], database: str) -> None:
    with pytest.raises(UsageError, match="no transaction is open"):
        outbox.emit(session, *EVENT)
    with pytest.raises(UsageError, match="aggregateid, and it is empty"), session.transaction():
        outbox.emit(session, "Order", None, "Paid", {})

    with pytest.raises(UsageError, match="no transaction is open"):
        inbox.first(session, "billing", ("t", "1"))
    engine = sa.create_engine(url(database), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection, pytest.raises(UsageError, match="no transaction is open"):
        outbox.emit(connection, *EVENT)
    engine.dispose()
    for payload in (float("nan"), b"", b"{", b'1, "id": 2', object()):
        with pytest.raises(UsageError, match="no JSON"), session.transaction():
            outbox.emit(session, "Order", 7, "Paid", payload)

    async def awaited() -> None:
        async with await psycopg.AsyncConnection.connect(database) as connection:
            outbox.emit(connection, *EVENT)

    with pytest.raises(UsageError, match="asynchronous"):
        asyncio.run(awaited())


def test_an_event_is_met_first_once_for_each_consumer(session: psycopg.Connection[Any], database: str) -> None:
    event = ("shop.outbox.Order", "1")
    engine = sa.create_engine(url(database))
    with session.transaction():
        assert inbox.first(session, "billing", event)
    with engine.begin() as connection:
        assert not inbox.first(connection, "billing", event)
        assert inbox.first(connection, "mail", event)
    with Session(engine) as orm, orm.begin():
        assert not inbox.first(orm, "mail", event)
    engine.dispose()
    with session.transaction(force_rollback=True):
        assert inbox.first(session, "third", event)

    async def awaited() -> list[bool]:
        async with await psycopg.AsyncConnection.connect(database) as connection:
            return [await inbox.async_first(connection, "third", event) for _ in range(2)]

    assert asyncio.run(awaited()) == [True, False]
    engine = sa.create_engine(url(database))
    with engine.begin() as connection:
        assert inbox.trim(connection, timedelta(hours=1)) == 0
    engine.dispose()
    assert inbox.trim(session, timedelta(hours=-1)) == 3


def test_another_transaction_with_the_event_is_waited_for(session: psycopg.Connection[Any], database: str) -> None:
    event = ("shop.outbox.Order", "1")
    with psycopg.connect(database) as other:
        assert inbox.first(other, "billing", event)
        session.execute("set lock_timeout = '50ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable), session.transaction():
            inbox.first(session, "billing", event)
        other.rollback()
    with session.transaction():
        assert inbox.first(session, "billing", event)


def test_a_record_without_an_id_is_no_event() -> None:
    class Plain:
        def headers(self) -> list[tuple[str, bytes]]:
            return [("pos", b"1")]

    with pytest.raises(UsageError, match="no header id"):
        inbox.event_id(Plain())
