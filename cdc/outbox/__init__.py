"""For programs that write events in their own transactions: ``from cdc import outbox``.

An event commits with the rows that it is about, or not at all, and capture brings it to the topic of its aggregate. No
settings and no Kafka are needed, only the application's own connection.
"""

from __future__ import annotations

import inspect
import json
import uuid
from collections.abc import Mapping
from typing import Any

from cdc.process.errors import UsageError
from cdc.process.sql_files import quote_identifier
from cdc.process.untrusted_text import quoted

__all__ = ["async_emit", "emit", "require_transaction"]

_MESSAGE = "select pg_catalog.pg_logical_emit_message(true, {prefix}, {content})"
_ROW = "insert into {table} (id, aggregatetype, aggregateid, type, payload) values (%s, %s, %s, %s, %s)"


def emit(
    connection: Any,
    aggregate_type: str,
    aggregate_id: object,
    event_type: str,
    payload: object,
    *,
    table: str | None = None,
    prefix: str = "outbox",
) -> str:
    """Write an event in the open transaction, and return its id.

    ``connection``: of psycopg, or a Connection or Session of SQLAlchemy. ``payload``: what ``json.dumps`` takes, or
    bytes that are JSON already. It goes by a logical message with ``prefix``, as ``[outbox] message`` names it, or as a
    row of ``table`` ("schema.table"). Members and columns have Debezium's names, as ``[outbox]`` has them unless set.

    UsageError on a connection that commits each statement by itself and has no transaction open, because the event
    would not commit with its rows. Also for one that has to be awaited, an empty text, and a payload that is no JSON.
    """
    if _awaited(connection):
        raise UsageError(
            "the connection is asynchronous",
            hint="await cdc.outbox.async_emit(connection, ...), with psycopg's AsyncConnection",
        )
    if hasattr(connection, "get_bind"):  # a Session of SQLAlchemy
        connection = connection.connection()
    require_transaction(connection)
    event = _event(aggregate_type, aggregate_id, event_type, payload)
    statement, values = _statement(event, table, prefix)
    if hasattr(connection, "exec_driver_sql"):
        connection.exec_driver_sql(statement, values)
    else:
        connection.execute(statement, values)
    return event["id"]


async def async_emit(
    connection: Any,
    aggregate_type: str,
    aggregate_id: object,
    event_type: str,
    payload: object,
    *,
    table: str | None = None,
    prefix: str = "outbox",
) -> str:
    """The same on psycopg's AsyncConnection. Raises as :func:`emit`."""
    require_transaction(connection)
    event = _event(aggregate_type, aggregate_id, event_type, payload)
    statement, values = _statement(event, table, prefix)
    await connection.execute(statement, values)
    return event["id"]


def _event(aggregate_type: str, aggregate_id: object, event_type: str, payload: object) -> dict[str, str]:
    """The members as texts, the payload as JSON. A payload of None is ``null``, and the record has no value."""
    event = {
        "id": str(uuid.uuid4()),
        "aggregatetype": aggregate_type,
        "aggregateid": "" if aggregate_id is None else str(aggregate_id),
        "type": event_type,
        "payload": _as_json(payload),
    }
    for member in ("aggregatetype", "aggregateid", "type"):
        if not event[member]:
            raise UsageError(f"an event needs {member}, and it is empty", hint="name the aggregate that it is about")
    return event


def _as_json(payload: object) -> str:
    """UsageError where it is none: the event would be refused long after its transaction."""
    try:
        if not isinstance(payload, bytes):
            return json.dumps(payload, allow_nan=False)
        text = payload.decode()
        json.loads(text, parse_constant=_no_constant)
    except (ValueError, TypeError) as error:
        raise UsageError("the payload is no JSON", hint=f"Python says: {quoted(error)}") from None
    return text


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


def _statement(event: Mapping[str, str], table: str | None, prefix: str) -> tuple[str, tuple[str | None, ...]]:
    if table is None:
        members = [f"{json.dumps(name)}: {json.dumps(text)}" for name, text in event.items() if name != "payload"]
        content = "{" + ", ".join([*members, f'"payload": {event["payload"]}']) + "}"
        return _MESSAGE.format(prefix="%s", content="%s"), (prefix, content)
    quoted = ".".join(quote_identifier(part) for part in table.split(".", 1))
    # The JSON null is SQL's NULL in a row, as in a message: the record has no value.
    return _ROW.format(table=quoted), tuple(None if text == "null" else text for text in event.values())


def _awaited(connection: Any) -> bool:
    return hasattr(connection, "fetchrow") or inspect.iscoroutinefunction(getattr(connection, "commit", None))


def require_transaction(connection: Any) -> None:
    """UsageError for a connection of psycopg, or a Connection of SQLAlchemy, that commits each statement by itself and
    has no transaction open."""
    held = getattr(connection, "connection", connection) if hasattr(connection, "exec_driver_sql") else connection
    held = getattr(held, "dbapi_connection", held)
    status = getattr(getattr(held, "info", None), "transaction_status", None)
    if status is not None and int(status) == 0 and getattr(held, "autocommit", False):
        raise UsageError(
            "no transaction is open on this connection, and it commits each statement by itself",
            hint="write the event where its rows are written: with connection.transaction(): ...",
        )
