"""Reads a MySQL or a MariaDB at one cut after the other: canonical rows, keys as the stores have them (H131).

Implements :class:`cdc.cuts.SourceReader`. Needs SELECT on the tables and REPLICATION CLIENT (MariaDB: BINLOG MONITOR).

A cut is a consistent snapshot. Its fence is the GTIDs that the server had logged behind it, so that nothing of the cut
lies above. A binlog position bounds what it surely contains, because positions of records are binlog positions:

- MariaDB says where the binlog stood at the snapshot, exactly.
- MySQL writes a transaction to the binlog, and to its replicas, before others see it. So the position is one that the
  connector has passed, and the snapshot is taken once each of its transactions is among the executed ones, which the
  server counts only when they are visible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

import sqlalchemy as sa

from cdc.clock import Clock
from cdc.cuts import Cut, RepairRow, VerifiedTable
from cdc.errors import SourceError
from cdc.json_bytes import dumped
from cdc.schema import TableSchema
from cdc.topic import TableName
from cdc.wire.canonical import CanonicalTable
from cdc.wire.plain import HASHED_KEY, PlainTable
from connectors.mysql.binlog_end import BinlogEnd, CutSession, place
from connectors.mysql.columns import ColumnReading, Form, SourceColumn

SETTLE_S = 5.0
"""How long a cut of MySQL waits until what the connector has sent is visible, too."""
_BATCH_ROWS = 5_000
_KEYS_PER_QUERY = 1_000
_SELECTED_BY = frozenset(("int2", "int4", "int8", "text", "varchar", "bpchar", "enum"))
"""Kinds of key columns whose store key says what to select. Tables with other keys are read whole."""


class Passed(NamedTuple):
    """A binlog position that the connector has passed, by its stored offset. ``file`` is empty where there is none."""

    file: str
    pos: int
    gtids: str


class MySqlCut:
    """A reader over two sessions: one holds the cut, the other asks where the server stands.

    ``passed``: the connector's stored binlog position. Every method raises what the sessions raise.
    """

    def __init__(
        self,
        reads: CutSession,
        looks: CutSession,
        passed: Callable[[], Passed],
        clock: Clock,
        settle_s: float = SETTLE_S,
    ) -> None:
        self._reads = reads
        self._looks = looks
        self._passed = passed
        self._clock = clock
        self._settle_s = settle_s
        self.end = BinlogEnd(looks)
        self.server = self.end.server
        self._readings: dict[TableName, tuple[ColumnReading, ...]] = {}

    def close(self) -> None:
        """Close both sessions."""
        for session in (self._reads, self._looks):
            session.close()

    def know(self, table: TableName, readings: tuple[ColumnReading, ...]) -> None:
        """How the columns of a table are read. Before any row of it is."""
        self._readings[table] = readings

    def columns(self, table: TableName) -> list[SourceColumn]:
        """The columns of a table. None where there is no such table."""
        found = self._looks.rows("columns", database=table.schema, table=table.table)
        return [
            SourceColumn(str(c.name), _word(c.type), _word(c.declared), str(c.nullable).upper() == "YES") for c in found
        ]

    def primary_key(self, table: TableName) -> list[str]:
        """The names of the key's columns, in its order."""
        return [str(c.name) for c in self._looks.rows("primary_key", database=table.schema, table=table.table)]

    def estimate(self, table: TableName) -> int:
        """About how many rows a table has."""
        found = self._looks.rows("estimate", database=table.schema, table=table.table)
        return int(found[0].estimate or 0) if found else 0

    def cut(self) -> Cut:
        """A new consistent snapshot, and the GTIDs behind it.

        Raises SourceError when a MariaDB does not name its binlog position.
        """
        self._reads.rollback()
        if self.server.mariadb:
            self._reads.run("snapshot")
            (at,) = self._reads.rows("mariadb_snapshot_place")
            if not at.file:
                raise SourceError(
                    "the server does not say where its binlog stood at the snapshot",
                    hint="the engine of the tables has to be InnoDB, and log_bin on",
                )
            settled, certain = place(str(at.file), int(at.pos)), True
        else:
            sent = self._passed()
            settled = place(sent.file, sent.pos) if sent.file else 0
            certain = bool(sent.gtids) and self._wait_until_visible(sent.gtids)
            self._reads.run("snapshot")
        # Above rows of a snapshot that was read at this position, and below every event behind it.
        return Cut(fence=self.insert_lsn(), settled=settled + 1, certain=certain, place=self.end.gtids())

    def insert_lsn(self) -> int:
        """Where the server's next event goes, as a position has it."""
        return place(*self.end.file())

    def rows(self, table: VerifiedTable) -> Iterator[tuple[Sequence[str], Sequence[bytes]]]:
        """All rows of the table at this cut, in batches. None but a batch is in memory."""
        yield from self._read(table, self._selection(table))

    def rows_of(self, table: VerifiedTable, keys: Sequence[str]) -> dict[str, bytes]:
        """Those of these keys that have a row at this cut."""
        wanted = set(keys)
        found: dict[str, bytes] = {}
        for statement in self._looking_up(table, keys):
            for names, rows in self._read(table, statement):
                found |= {key: row for key, row in zip(names, rows, strict=True) if key in wanted}
        return found

    def records_of(self, table: VerifiedTable, keys: Sequence[str]) -> Iterator[dict[str, RepairRow]]:
        """Those of these keys that have a row at this cut, as records have them, in batches."""
        convert, wanted = Converter(table.shape, self._readings[table.table]), set(keys)
        for statement in self._looking_up(table, keys):
            for rows in self._batches(statement):
                names, records = convert.records(rows)
                yield {key: row for key, row in zip(names, records, strict=True) if key in wanted}

    def _wait_until_visible(self, gtids: str) -> bool:
        deadline = self._clock.monotonic() + self._settle_s
        while not self.server.covers(self.end.gtids(), gtids):
            if self._clock.monotonic() >= deadline:
                return False
            self._clock.sleep(0.02)
        return True

    def _selection(self, table: VerifiedTable) -> sa.Select[Any]:
        columns: dict[str, sa.ColumnClause[Any]] = {
            reading.column.name: sa.column(reading.column.name) for reading in self._readings[table.table]
        }
        chosen = [_selected(columns[r.column.name], r.form) for r in self._readings[table.table]]
        return sa.select(*chosen).select_from(sa.table(table.table.table, *columns.values(), schema=table.table.schema))

    def _looking_up(self, table: VerifiedTable, keys: Sequence[str]) -> Iterator[sa.Select[Any]]:
        """The statements that bring the rows of these keys, and where it cannot be helped others too: texts may be
        equal by their collation."""
        statement = self._selection(table)
        key = table.shape.key
        hashed = any(text.startswith(HASHED_KEY) for text in keys)
        if hashed or any(column.kind not in _SELECTED_BY for column in key):
            yield statement
            return
        columns = sa.tuple_(*(sa.column(column.name) for column in key))
        values = [found for text in keys if (found := _values(table.shape, text)) is not None]
        for start in range(0, len(values), _KEYS_PER_QUERY):
            yield statement.where(columns.in_(values[start : start + _KEYS_PER_QUERY]))

    def _read(self, table: VerifiedTable, statement: sa.Select[Any]) -> Iterator[tuple[Sequence[str], Sequence[bytes]]]:
        convert = Converter(table.shape, self._readings[table.table])
        for rows in self._batches(statement):
            yield convert(rows)

    def _batches(self, statement: sa.Select[Any]) -> Iterator[Sequence[Sequence[Any]]]:
        result = self._reads.stream(statement, _BATCH_ROWS)
        try:
            yield from result.partitions()
        finally:
            result.close()


class Converter:
    """Rows as the driver gives them, as store keys and canonical rows."""

    def __init__(self, shape: TableSchema, readings: Sequence[ColumnReading]) -> None:
        self._readings = [(reading.column.name, reading.readable) for reading in readings]
        self._key = [column.name for column in shape.key]
        self._plain = PlainTable(shape)
        self._canonical = CanonicalTable(shape)

    def __call__(self, rows: Sequence[Sequence[Any]]) -> tuple[list[str], list[bytes]]:
        keys, records = self.records(rows)
        plain, canonical = self._plain.row, self._canonical.row
        return keys, [canonical(plain(record.after or b"")) for record in records]

    def records(self, rows: Sequence[Sequence[Any]]) -> tuple[list[str], list[RepairRow]]:
        """The same, each row as its record."""
        made = [self.readable(row) for row in rows]
        keys = [dumped({name: one[name] for name in self._key}) for one in made]
        return self._plain.keys(keys), [RepairRow(key, dumped(one)) for key, one in zip(keys, made, strict=True)]

    def readable(self, row: Sequence[Any]) -> Mapping[str, Any]:
        """A row in the readable encoding. SourceError names the column whose value does not fit."""
        made: dict[str, Any] = {}
        for (name, readable), value in zip(self._readings, row, strict=True):
            try:
                made[name] = None if value is None else readable(value)
            except (ValueError, TypeError, AttributeError):
                raise SourceError(
                    f"a value of column {name} is not of the form that the server gives it",
                    hint="the column may have changed its type meanwhile: run cdc verify again",
                ) from None
        return made


def _selected(column: sa.ColumnClause[Any], form: Form) -> sa.ColumnElement[Any]:
    match form:
        case Form.TEXT:
            return sa.cast(column, sa.CHAR).label(column.name)
        case Form.PLAIN:
            return column


def _values(shape: TableSchema, key: str) -> tuple[Any, ...] | None:
    """A store key as values to select by. None where no row can have it."""
    parts = [unquote(part) for part in key.split(":")]
    if len(parts) != len(shape.key):
        return None
    try:
        return tuple(
            int(part) if column.kind in ("int2", "int4", "int8") else part
            for part, column in zip(parts, shape.key, strict=True)
        )
    except ValueError:
        return None


def _word(value: Any) -> str:
    return (value.decode() if isinstance(value, bytes) else str(value)).lower()
