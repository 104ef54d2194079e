"""Reads the source at one cut after the other, for ``cdc verify``: canonical rows, keys as the stores have them.

Implements :class:`cdc.verification.ports.SourceReader`. Needs SELECT on the tables and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import unquote

import psycopg
from psycopg import sql

from cdc.process.clock import Clock
from cdc.process.errors import CdcError, ConfigError, SourceError
from cdc.process.sql_files import load
from cdc.process.untrusted_text import quoted
from cdc.record.schema import Column
from cdc.settings.mask_rules import Masks
from cdc.verification.ports import Cut, RepairRow, VerifiedTable
from cdc.wire.canonical import CanonicalTable
from cdc.wire.plain import HASHED_KEY, NULL_IN_KEY, PlainTable
from connectors.postgres.encoding.encoder import compile_table
from connectors.postgres.protocol.frames import QUOTES_VALUES
from connectors.postgres.server.connections import Connection

SETTLE_S = 5.0
"""How long a cut waits for transactions to end whose commit may be in the log and not yet visible."""
FILTERS_SINCE = 150_000
"""server_version_num from which a publication may have row filters."""
_BATCH_ROWS = 5_000
_KEYS_PER_QUERY = 1_000
_LITERALS = {
    "int2": range(-(2**15), 2**15),
    "int4": range(-(2**31), 2**31),
    "int8": range(-(2**63), 2**63),
    "text": None,
    "varchar": None,
    "uuid": re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
}
"""Kinds whose store key is their literal, and what a literal has to be like. Tables with other keys are read
whole when keys are looked up, and so are all tables for a key that stands as its hash."""


class SourceCut:
    """A reader over two sessions: one holds the cut, the other writes the fence.

    ``open_session``: a new session each time it is called. SourceError when Postgres breaks off.
    """

    def __init__(
        self,
        open_session: Callable[[bool], Connection],
        publication: str,
        clock: Clock,
        settle_s: float = SETTLE_S,
        *,
        masks: Masks,
    ) -> None:
        self._masks = masks
        self._fences = open_session(True)
        self._reads = open_session(False)
        self._publication = publication
        self._clock = clock
        self._settle_s = settle_s
        self._path: tuple[str, ...] = ()

    def close(self) -> None:
        """Close both sessions."""
        for session in (self._reads, self._fences):
            session.close()

    def cut(self) -> Cut:
        """A new REPEATABLE READ transaction, and a fence behind it."""
        try:
            self._reads.rollback()
            self._path = ()
            settled = self._number("insert_lsn")
            certain = self._wait_for_visibility()
            self._reads.execute("set transaction isolation level repeatable read read only")
            # The first statement takes the snapshot. A later commit lies behind the fence.
            self._reads.execute(_query("snapshot"))
            return Cut(fence=write_fence(self._fences), settled=settled, certain=certain)
        except psycopg.Error as error:
            raise _broke_off(error) from None

    def fence(self) -> int:
        """As :func:`write_fence`. SourceError when it breaks off."""
        try:
            return write_fence(self._fences)
        except psycopg.Error as error:
            raise _broke_off(error) from None

    def insert_lsn(self) -> int:
        """Where the server's next record goes: every commit so far lies below. SourceError when it breaks off."""
        try:
            return self._number("insert_lsn")
        except psycopg.Error as error:
            raise _broke_off(error) from None

    def estimate(self, oid: int) -> int:
        """About how many rows a table has."""
        return self._number("estimate", oid=oid)

    def rows(self, table: VerifiedTable) -> Iterator[tuple[Sequence[str], Sequence[bytes]]]:
        """All rows of the table at this cut, in batches."""
        return self._copied(table, self._whole(table))

    def rows_of(self, table: VerifiedTable, keys: Sequence[str]) -> dict[str, bytes]:
        """Those of these keys that have a row at this cut."""
        convert = _Converter(table, self._masks)
        found: dict[str, bytes] = {}
        for statement in self._looking_up(table, keys):
            found |= _chosen((convert(lines) for lines in self._lines(table, statement)), set(keys))
        return found

    def records_of(self, table: VerifiedTable, keys: Sequence[str]) -> Iterator[dict[str, RepairRow]]:
        """Those of these keys that have a row at this cut, as records have them, in batches."""
        line_of = compile_table(table.shape, name="verify", database="", masks=self._masks).snapshot_line
        store_keys, wanted = PlainTable(table.shape).keys, set(keys)
        for statement in self._looking_up(table, keys):
            for lines in self._lines(table, statement):
                made = [RepairRow(*line_of(line)) for line in lines]
                named = zip(store_keys([row.key for row in made]), made, strict=True)
                yield {key: row for key, row in named if key in wanted}

    def _looking_up(self, table: VerifiedTable, keys: Sequence[str]) -> Iterator[sql.Composed]:
        """The statements that bring the rows of these keys, and where it cannot be helped others too."""
        columns = table.shape.key
        masked = table.shape.masked_key
        literal = all(column.kind in _LITERALS and not column.array for column in columns)
        if not columns or masked or not literal or any(key.startswith(HASHED_KEY) for key in keys):
            yield self._whole(table)
            return
        kinds = [column.kind for column in columns]
        rows = [row for key in keys if (row := _values(key, kinds)) is not None]
        literals = [_literals(row) for row in rows if None not in row]
        for start in range(0, len(literals), _KEYS_PER_QUERY):
            some = sql.SQL(", ").join(literals[start : start + _KEYS_PER_QUERY])
            yield self._statement("copy_view_keys" if table.query else "copy_keys", table, keys=some)
        # A row of literals with a NULL is equal to nothing.
        conditions = [_condition(columns, row) for row in rows if None in row and table.query]
        for start in range(0, len(conditions), _KEYS_PER_QUERY):
            any_of = sql.SQL(" or ").join(conditions[start : start + _KEYS_PER_QUERY])
            yield self._statement("copy_view_where", table, condition=any_of)

    def _copied(self, table: VerifiedTable, statement: sql.Composed) -> Iterator[tuple[Sequence[str], Sequence[bytes]]]:
        convert = _Converter(table, self._masks)
        for lines in self._lines(table, statement):
            yield convert(lines)

    def _whole(self, table: VerifiedTable) -> sql.Composed:
        return self._statement("copy_view" if table.query else "copy_rows", table)

    def _lines(self, table: VerifiedTable, statement: sql.Composed) -> Iterator[list[bytes]]:
        lines: list[bytes] = []
        try:
            self._look_in(table.search_path)
            self._require_numbers(table)
            with self._reads.cursor() as cursor, cursor.copy(statement) as copy:
                for line in copy:
                    lines.append(bytes(line))
                    if len(lines) >= _BATCH_ROWS:
                        yield lines
                        lines = []
        except psycopg.Error as error:
            raise _broke_off(error) from None
        if lines:
            yield lines

    def _require_numbers(self, table: VerifiedTable) -> None:
        """SourceError where columns of a table with masks took each other's names: one of them would be read as it is.
        The table is locked from then on."""
        if table.query or not table.shape.noted_masks:
            return
        with self._reads.cursor() as cursor:
            cursor.execute(self._statement("columns_now", table))
            assert cursor.pgresult is not None
            numbers = [cursor.pgresult.ftablecol(place) for place in range(len(table.shape.columns))]
        if numbers != [column.attnum for column in table.shape.columns]:
            raise SourceError(f"{table.table} changed its shape while it was compared", hint="run cdc verify again")

    def _look_in(self, schemas: tuple[str, ...]) -> None:
        """A view's text finds its tables by a path of its own, until the cut ends. All else names its schemas."""
        if schemas != self._path:
            path = sql.SQL(", ").join(map(sql.Identifier, schemas or ("pg_catalog",)))
            self._reads.execute(sql.SQL("set local search_path to {path}").format(path=path))
            self._path = schemas

    def _statement(self, name: str, table: VerifiedTable, **parts: sql.Composable) -> sql.Composed:
        shape = table.shape
        filtered = self._fences.info.server_version >= FILTERS_SINCE
        where = self._rows("filter", publication=self._publication, oid=shape.oid) if filtered else []
        return sql.SQL(load("connectors.postgres.server", "rows.sql")[name]).format(
            columns=sql.SQL(", ").join(sql.Identifier(column.name) for column in shape.columns),
            only=sql.SQL("" if table.partitioned else "only"),
            table=sql.Identifier(shape.table.schema, shape.table.table),
            key=sql.SQL(", ").join(sql.Identifier(column.name) for column in shape.key),
            filter=sql.SQL(where[0][0]) if where else sql.SQL("true"),
            query=sql.SQL(table.query),
            **parts,
        )

    def _wait_for_visibility(self) -> bool:
        """A commit reaches the log before other sessions see it: wait until each so far must be seen."""
        newest = self._number("newest_xid")
        deadline = self._clock.monotonic() + self._settle_s
        while not self._rows("ended", xid=newest)[0][0]:
            if self._clock.monotonic() >= deadline:
                return False
            self._clock.sleep(0.02)
        return True

    def _number(self, name: str, **arguments: Any) -> int:
        return int(self._rows(name, **arguments)[0][0])

    def _rows(self, name: str, **arguments: Any) -> list[tuple[Any, ...]]:
        return self._fences.execute(_query(name), arguments or None).fetchall()


def write_fence(conn: Connection) -> int:
    """Where the server writes. Every change committed before the call lies below that LSN.

    A mark is committed behind it, which takes the stream past it also where the source rests.
    """
    lsn = int(conn.execute(_query("insert_lsn")).fetchall()[0][0])
    conn.execute(_query("mark"))
    return lsn


class _Converter:
    """Lines of COPY as store keys and canonical rows, of a view's documents behind the user's function."""

    def __init__(self, table: VerifiedTable, masks: Masks) -> None:
        shape = table.shape
        self._finish = table.finish
        self._line = compile_table(shape, name="verify", database="", masks=masks).snapshot_line
        self._plain = PlainTable(shape)
        self._canonical = CanonicalTable(shape)

    def __call__(self, lines: Sequence[bytes]) -> tuple[list[str], list[bytes]]:
        pairs = [self._line(line) for line in lines]
        if self._finish is not None:
            pairs = [(key, self._finish(row)) for key, row in pairs]
        plain, canonical = self._plain.row, self._canonical.row
        return self._plain.keys([key for key, _ in pairs]), [canonical(plain(row)) for _, row in pairs]


def _chosen(batches: Iterator[tuple[Sequence[str], Sequence[bytes]]], wanted: set[str]) -> dict[str, bytes]:
    return {key: row for keys, rows in batches for key, row in zip(keys, rows, strict=True) if key in wanted}


def _values(key: str, kinds: Sequence[str]) -> list[str | None] | None:
    """The values of a store key. None when no row can have it."""
    parts = [None if part == NULL_IN_KEY else unquote(part) for part in key.split(":")]
    if len(parts) != len(kinds):
        return None
    fitting = all(part is None or _fits(part, kind) for part, kind in zip(parts, kinds, strict=True))
    return parts if fitting else None


def _literals(row: Sequence[str | None]) -> sql.Composed:
    """Postgres gives each literal its column's type."""
    return sql.SQL("({})").format(sql.SQL(", ").join(sql.Literal(value) for value in row))


def _condition(columns: Sequence[Column], row: Sequence[str | None]) -> sql.Composed:
    """The condition of a key with a NULL."""
    equal = [
        sql.SQL("{} is not distinct from {}").format(sql.Identifier(column.name), sql.Literal(value))
        for column, value in zip(columns, row, strict=True)
    ]
    return sql.SQL("({})").format(sql.SQL(" and ").join(equal))


def _fits(part: str, kind: str) -> bool:
    match _LITERALS[kind]:
        case range() as numbers:
            return re.fullmatch(r"-?[0-9]{1,19}", part) is not None and int(part) in numbers
        case re.Pattern() as pattern:
            return pattern.fullmatch(part) is not None
        case _:
            return "\0" not in part


def _query(name: str) -> str:
    return load("connectors.postgres.server", "rows.sql")[name]


def _broke_off(error: psycopg.Error) -> CdcError:
    reason = quoted(error) if str(error).strip() else type(error).__name__
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return ConfigError(
            f"Postgres refuses the comparison: {reason}", hint="cdc check names the right that is missing"
        )
    if isinstance(error, psycopg.errors.UndefinedColumn | psycopg.errors.UndefinedTable):
        return SourceError(f"a table changed its shape while it was compared: {reason}", hint="run cdc verify again")
    if (error.sqlstate or "")[:2] in QUOTES_VALUES:
        reason = f"it answers {error.sqlstate}"
    return SourceError(f"Postgres broke off: {reason}", hint="check the server's log, then run cdc verify again")
