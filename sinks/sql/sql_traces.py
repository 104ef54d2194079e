"""The traces of a row in a SQL warehouse: for ``cdc forget``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from cdc.clock import Clock
from cdc.forget.holding import Trace
from cdc.position import Position
from cdc.schema import TableSchema
from sinks.registry import SinkSpec
from sinks.row_traces import remembered, shown_row
from sinks.sql.sql_client import SqlClient
from sinks.sql.sql_rows import key_name
from sinks.sql.sql_tables import SqlTables, tables_of
from sinks.warehouse.warehouse_columns import DELETED, DELETED_AT, KEY


def open_traces(spec: SinkSpec, clock: Clock) -> SqlTraces:
    """Connect. SinkError when the database does not answer."""
    client = SqlClient(spec.text("url"), spec.secrets.get("password"), clock)
    return SqlTraces(client, tables_of(client.engine, spec), int(spec.replay_window_s * 1000))


class SqlTraces:
    """Rows. A row that is written over is the database's own to clean. Implements
    :class:`cdc.forget.ports.KeptVersions`."""

    def __init__(self, client: SqlClient, tables: SqlTables, remember_ms: int) -> None:
        self._client = client
        self._tables = tables
        self._remember_ms = remember_ms

    def of_keys(self, schema: TableSchema, keys: Sequence[str]) -> Iterable[Trace]:
        for deleted, at in self._client.read(lambda connection: self._rows(connection, schema, keys)):
            if not deleted:
                yield shown_row(f"the row in {self._tables.name(schema.table)}")
                continue
            since_ms = _ms(at)
            until_ms = None if since_ms is None else since_ms + self._remember_ms
            yield remembered(
                f"the memory of the delete in {self._tables.name(schema.table)}", until_ms, "when cdc sink cleans next"
            )

    def _rows(self, connection: sa.Connection, schema: TableSchema, keys: Sequence[str]) -> list[tuple[Any, Any]]:
        existing = self._tables.stored_types(connection, schema)
        if existing is None:
            return []
        table = self._tables.table(schema, self._tables.columns(schema, existing), existing)
        wanted = sa.select(table.c[DELETED], table.c[DELETED_AT]).where(key_name(connection, table.c[KEY]).in_(keys))
        return [(row[0], row[1]) for row in connection.execute(wanted)]

    def before(self, schema: TableSchema, position: Position | None) -> Iterable[Trace]:
        return ()

    def clean(self, schema: TableSchema) -> None:
        """The sink takes old deletes away itself."""

    def close(self) -> None:
        self._client.close()


def _ms(at: Any) -> int | None:
    """A moment as the database has it: as text where it has no type for one."""
    if isinstance(at, str):
        try:
            at = datetime.fromisoformat(at.strip().replace("Z", "+00:00"))
        except ValueError:
            return None
    if not isinstance(at, datetime):
        return None
    return int((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1000)
