"""A token from a connection of any driver: by its shape, and never within a transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest

from cdc.process.errors import CdcError, SourceError, UsageError
from cdc.record.tokens import Token
from connectors.postgres.server.connection_token import SQL, async_token, token

TEXT = "7301444403801980345/1:0/16B3D48"


class Row(NamedTuple):
    token: str | None


@dataclass
class Info:
    transaction_status: int = 0


@dataclass
class Dbapi:
    """A DBAPI connection. ``info`` is None in a driver that does not say whether a transaction is open."""

    row: Any = (TEXT,)
    info: Info | None = None
    fails: bool = False
    rolled_back: int = 0
    cursors: int = 0

    def cursor(self) -> Dbapi:
        self.cursors += 1
        return self

    def execute(self, statement: str) -> None:
        assert statement == SQL
        if self.fails:
            raise RuntimeError("the server closed the connection")

    def fetchone(self) -> Any:
        return self.row

    def close(self) -> None:
        self.cursors -= 1

    def commit(self) -> None: ...

    def rollback(self) -> None:
        self.rolled_back += 1


@dataclass
class Autocommit:
    """What the pool of SQLAlchemy gives: the driver's connection behind it."""

    autocommit: bool = True


@dataclass
class Alchemy:
    """A Connection of SQLAlchemy."""

    opened: bool = False
    connection: Autocommit | None = None
    rolled_back: int = 0

    def in_transaction(self) -> bool:
        return self.opened

    def exec_driver_sql(self, statement: str) -> Dbapi:
        assert statement == SQL
        return Dbapi()

    def commit(self) -> None: ...

    def rollback(self) -> None:
        self.rolled_back += 1


@dataclass
class Asyncpg:
    """A connection of asyncpg: rows by ``fetchrow``, no commit and no rollback of its own."""

    opened: bool = False
    asked: list[str] = field(default_factory=list)

    def is_in_transaction(self) -> bool:
        return self.opened

    async def fetchrow(self, statement: str) -> tuple[str]:
        self.asked.append(statement)
        return (TEXT,)


@dataclass
class Session:
    """A Session of SQLAlchemy. It is asked for its engine alone: there is nothing else that it could forget by."""

    bind: Any = None
    opened: bool = False

    def in_transaction(self) -> bool:
        return self.opened

    def get_bind(self) -> Any:
        return self.bind or self

    @contextmanager
    def connect(self) -> Iterator[Alchemy]:
        yield Alchemy()

    def commit(self) -> None: ...


@dataclass
class Scoped:
    """A scoped_session of SQLAlchemy, which does not say whether a transaction is open."""

    inside: Session

    def registry(self) -> Session:
        return self.inside


@dataclass
class AsyncAlchemy:
    """An AsyncConnection of SQLAlchemy, or an AsyncSession."""

    session: bool = False
    rolled_back: int = 0

    def in_transaction(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        if name == ("get_bind" if self.session else "exec_driver_sql"):
            return self._answer
        raise AttributeError(name)

    async def _answer(self, statement: str) -> Dbapi:
        assert statement == SQL
        return Dbapi()

    async def run_sync(self, asks: Callable[[Any], Any]) -> Any:
        return asks(Session())

    async def commit(self) -> None: ...

    async def rollback(self) -> None:
        self.rolled_back += 1


@pytest.mark.parametrize("connection", [AsyncAlchemy(), AsyncAlchemy(session=True)])
def test_asynchronous_sqlalchemy_gives_it(connection: AsyncAlchemy) -> None:
    assert str(asyncio.run(async_token(connection))) == TEXT
    assert connection.rolled_back == (0 if connection.session else 1), "it would expire what a session has loaded"
    with pytest.raises(UsageError, match="asynchronous"):
        token(connection)


def test_a_session_is_asked_beside_itself() -> None:
    assert str(token(Session())) == str(token(Scoped(Session()))) == TEXT
    bound = Session(Alchemy())
    assert str(token(bound)) == TEXT
    assert bound.bind.rolled_back == 1
    for open_one in (Session(opened=True), Scoped(Session(opened=True)), Session(Alchemy(opened=True))):
        with pytest.raises(UsageError, match="a transaction is open"):
            token(open_one)


@pytest.mark.parametrize("row", [("a transaction is open",), {"token": "a transaction is open"}])
def test_h267_the_server_says_what_a_driver_does_not(row: Any) -> None:
    with pytest.raises(UsageError, match="a transaction is open") as refused:
        token(Dbapi(row))
    assert refused.value.hint == "commit first, then take the token"


@pytest.mark.parametrize("row", [(TEXT,), [TEXT], {"token": TEXT}, Row(TEXT), TEXT])
def test_every_row_factory_gives_the_token(row: Any) -> None:
    connection = Dbapi(row, Info())
    assert token(connection) == Token.parse(TEXT)
    assert (connection.rolled_back, connection.cursors) == (1, 0), "no transaction and no cursor stays open"


def test_a_driver_that_says_nothing_keeps_its_transaction() -> None:
    connection = Dbapi()
    assert str(token(connection)) == TEXT
    assert connection.rolled_back == 0, "it may hold work of the caller"


@pytest.mark.parametrize("connection", [Dbapi(info=Info(2)), Alchemy(opened=True)])
def test_a_token_before_the_commit_is_refused(connection: Any) -> None:
    with pytest.raises(UsageError, match="a transaction is open") as refused:
        token(connection)
    assert refused.value.hint == "commit first, then take the token"
    assert connection.rolled_back == 0


@pytest.mark.parametrize(
    ("status", "error", "said"),
    [
        (1, UsageError, "a statement is under way"),
        (3, UsageError, "the transaction on this connection has failed"),
        (4, SourceError, "the connection is closed"),
    ],
)
def test_a_connection_that_has_no_commit_says_why(status: int, error: type[CdcError], said: str) -> None:
    connection = Dbapi(info=Info(status))
    with pytest.raises(error, match=said):
        token(connection)
    assert connection.rolled_back == 0


def test_a_connection_that_commits_itself_gives_it() -> None:
    connection = Alchemy(opened=True, connection=Autocommit())
    assert str(token(connection)) == TEXT
    assert connection.rolled_back == 0


def test_sqlalchemy_gives_it_and_has_no_transaction_behind_it() -> None:
    connection = Alchemy()
    assert str(token(connection)) == TEXT
    assert connection.rolled_back == 1


def test_asyncpg_gives_it_and_is_asked_once() -> None:
    connection = Asyncpg()
    assert str(asyncio.run(async_token(connection))) == TEXT
    assert connection.asked == [SQL]
    with pytest.raises(UsageError, match="a transaction is open"):
        asyncio.run(async_token(Asyncpg(opened=True)))


def test_an_asynchronous_connection_names_the_other_function() -> None:
    with pytest.raises(UsageError, match="asynchronous") as refused:
        token(Asyncpg())
    assert refused.value.hint == "await cdc.read.async_token(connection)"


def test_a_driver_that_fails_is_a_source_that_does_not_answer() -> None:
    connection = Dbapi(info=Info(), fails=True)
    with pytest.raises(SourceError, match="Postgres gives no token: the server closed the connection"):
        token(connection)
    assert connection.cursors == 0


@pytest.mark.parametrize("row", [None, (None,), {"token": None}, Row(None)])
def test_a_standby_has_no_token(row: Any) -> None:
    with pytest.raises(SourceError, match="leads to a standby"):
        token(Dbapi(row))
