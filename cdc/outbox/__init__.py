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

__all__ = ["async_emit", "emit"]

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

    UsageError on a connection of psycopg that commits each statement by itself and has no transaction open, because the
    event would not commit with its rows. Also for a connection that has to be awaited, and for an empty text.
    """
    if _awaited(connection):
        raise UsageError(
            "the connection is asynchronous",
            hint="await cdc.outbox.async_emit(connection, ...), with psycopg's AsyncConnection",
        )
    _require_open(connection)
    event = _event(aggregate_type, aggregate_id, event_type, payload)
    statement, values = _statement(event, table, prefix)
    if hasattr(connection, "get_bind"):  # a Session of SQLAlchemy
        connection.connection().exec_driver_sql(statement, values)
    elif hasattr(connection, "exec_driver_sql"):
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
    _require_open(connection)
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
        "payload": payload.decode() if isinstance(payload, bytes) else json.dumps(payload),
    }
    for member in ("aggregatetype", "aggregateid", "type"):
        if not event[member]:
            raise UsageError(f"an event needs {member}, and it is empty", hint="name the aggregate that it is about")
    return event


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


def _require_open(connection: Any) -> None:
    """UsageError for a connection that commits each statement by itself, outside a transaction."""
    status = getattr(getattr(connection, "info", None), "transaction_status", None)
    if status is not None and int(status) == 0 and getattr(connection, "autocommit", False):
        raise UsageError(
            "no transaction is open on this connection, and it commits each statement by itself",
            hint="write the event where its rows are written: with connection.transaction(): ...",
        )
