"""A server process that stands still: who waits for it is asked meanwhile, and waits for so long (H195)."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from cdc.settings.model import SourceSettings
from connectors.postgres.server.connections import WatchedConnection, connect


class Enough(Exception):
    """The wait is given up."""


@contextmanager
def standing_still(session: psycopg.Connection[tuple[object, ...]]) -> Iterator[None]:
    """Its backend runs no more, and keeps its connection."""
    pid = session.info.backend_pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_h195_who_waits_is_asked_and_may_give_up(database: str) -> None:
    turns: list[int] = []

    def turn() -> None:
        turns.append(1)
        if len(turns) == 3:
            raise Enough

    session = connect(SourceSettings(dsn=database, tables=["public.*"]), turn=turn)
    assert session.execute("select 7").fetchone() == (7,)
    assert turns == []
    with standing_still(session), pytest.raises(Enough):
        session.execute("select 8")
    session.close()


def test_h195_a_server_that_does_not_answer_is_given_up(database: str) -> None:
    session = connect(SourceSettings(dsn=database, tables=["public.*"]), turn=lambda: None)
    assert isinstance(session, WatchedConnection)
    session.limit_s = 0.5
    with standing_still(session), pytest.raises(psycopg.OperationalError, match="has not answered"):
        session.execute("select 8")
    session.close()


def test_h195_an_answer_that_takes_long_is_taken(database: str) -> None:
    turns: list[int] = []
    session = connect(SourceSettings(dsn=database, tables=["public.*"]), turn=lambda: turns.append(1))
    assert session.execute("select 7 from pg_sleep(0.5)").fetchone() == (7,)
    assert len(turns) >= 2
    with pytest.raises(psycopg.errors.DivisionByZero):
        session.execute("select 1 / 0 from pg_sleep(0.2)")
    assert session.execute("select 9").fetchone() == (9,)
    session.close()


def test_h204_an_answer_that_comes_in_parts_is_waited_for(database: str) -> None:
    """As many large values over a slow link: nothing is silent for long, and all of it takes longer than the limit."""
    turns: list[int] = []
    session = connect(SourceSettings(dsn=database, tables=["public.*"]), turn=lambda: turns.append(1))
    assert isinstance(session, WatchedConnection)
    session.limit_s = 1.0
    # The server sends what it has whenever that is more than its buffer of 8 kB.
    rows = session.execute("select repeat('x', 9000) from generate_series(1, 8) g, lateral pg_sleep(0.2 + 0 * g)")
    assert len(rows.fetchall()) == 8
    assert turns
    session.close()


def test_h204_a_stop_is_heard_while_an_answer_comes(database: str) -> None:
    """It comes so fast that there is never a moment without bytes."""

    def turn() -> None:
        raise Enough

    session = connect(SourceSettings(dsn=database, tables=["public.*"]), turn=turn)
    with pytest.raises(Enough):
        session.execute("select repeat('x', 9000) from generate_series(1, 400) g, lateral pg_sleep(0.01 + 0 * g)")
    session.close()
