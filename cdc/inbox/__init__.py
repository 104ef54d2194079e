"""For programs that carry out events once: ``from cdc import inbox``.

A log delivers an event at least once. A consumer that notes each in the transaction of its own work carries it out
once: the note and the work commit together, or neither does.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from cdc.outbox import require_transaction
from cdc.process.errors import UsageError
from cdc.process.sql_files import quote_identifier

__all__ = ["async_first", "create_sql", "event_id", "first", "trim"]

_INSERT = "insert into {table} (consumer, topic, id) values (%s, %s, %s) on conflict do nothing"


def create_sql(table: str = "public.inbox") -> str:
    """The statement that makes the inbox table, to be run once by whoever may make tables."""
    return (
        f"create table if not exists {_quoted(table)} (consumer text not null, topic text not null, id text not null, "
        "at timestamptz not null default now(), primary key (consumer, topic, id))"
    )


def first(connection: Any, consumer: str, event: Any, *, table: str = "public.inbox") -> bool:
    """Whether this consumer meets the event for the first time. Notes it in the open transaction, where the work that
    follows belongs.

    ``connection``: of psycopg, or a Connection or Session of SQLAlchemy. ``event``: a message of confluent-kafka, or
    (topic, id). Waits for an open transaction that has noted the same event.

    UsageError for an event without id, and on a connection that commits each statement by itself and has no transaction
    open: the note would stay when the work fails.
    """
    require_transaction(connection.connection() if hasattr(connection, "get_bind") else connection)
    noted = _run(connection, _INSERT.format(table=_quoted(table)), (consumer, *event_id(event)))
    return bool(noted.rowcount == 1)


async def async_first(connection: Any, consumer: str, event: Any, *, table: str = "public.inbox") -> bool:
    """The same on psycopg's AsyncConnection."""
    require_transaction(connection)
    noted = await connection.execute(_INSERT.format(table=_quoted(table)), (consumer, *event_id(event)))
    return bool(noted.rowcount == 1)


def trim(connection: Any, older_than: timedelta, *, table: str = "public.inbox") -> int:
    """Delete notes that are older. Returns how many. Use more than ``[outbox] keep``: an event that comes again after
    its note is gone counts as new."""
    return int(_run(connection, f"delete from {_quoted(table)} where at < now() - %s", (older_than,)).rowcount)


def _run(connection: Any, statement: str, values: tuple[Any, ...]) -> Any:
    """The cursor, or result, of a statement."""
    if hasattr(connection, "get_bind"):  # a Session of SQLAlchemy
        connection = connection.connection()
    if hasattr(connection, "exec_driver_sql"):
        return connection.exec_driver_sql(statement, values)
    return connection.execute(statement, values)


def event_id(event: Any) -> tuple[str, str]:
    """The topic and the id of an event. UsageError where it has none."""
    if isinstance(event, tuple):
        topic, identity = event
        return str(topic), str(identity)
    headers = event.headers() or []
    found = next((value for name, value in headers if name == "id"), None)
    if not found:
        raise UsageError(
            "the record has no header id, so it is no event of the outbox",
            hint="read a topic of [outbox]; others have keys and positions, and no ids",
        )
    return str(event.topic()), found.decode() if isinstance(found, bytes) else str(found)


def _quoted(table: str) -> str:
    return ".".join(quote_identifier(part) for part in table.split(".", 1))
