"""A view kept by the engine beside Postgres: rows go from the database into the state, documents are compared."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping

import orjson
import psycopg

from cdc.record.schema import TableSchema
from cdc.record.topic_names import TableName
from cdc.settings.mask_rules import NO_MASKS
from cdc.settings.model import SourceSettings
from cdc.views.embedded_state import EmbeddedState, SqliteRows
from cdc.views.group_state import GroupState
from cdc.views.lookups import DocumentSource, Row
from cdc.views.row_changes import RowChange, UnseenRows
from cdc.views.syntax import NotComputable, ViewRefused
from cdc.views.view_plan import ViewPlan, planned
from cdc.views.view_records import StateRows, view_shape
from connectors.postgres.encoding.encoder import compile_table
from connectors.postgres.server.catalog_shapes import table_schema
from connectors.postgres.server.connections import connect


def shapes_of(conn: psycopg.Connection, schema: str = "public") -> dict[TableName, TableSchema]:
    """The shapes of all tables of a schema, as capture would note them."""
    oids = conn.execute(
        "select oid from pg_class where relnamespace = %s::regnamespace and relkind = 'r'", (schema,)
    ).fetchall()
    shapes = [table_schema(conn, oid, topic="t", encoding="readable", masks=NO_MASKS, version=1) for (oid,) in oids]
    return {shape.table: shape for shape in shapes}


def same_json(one: str | bytes | None, other: str | bytes | None) -> bool:
    """Whether two rows say the same: escapes may differ, numbers and what is null may not."""
    if one is None or other is None:
        return one is other
    return _read(one) == _read(other)


def _read(row: str | bytes) -> object:
    return json.loads(row, parse_float=str, parse_int=str)


def lines(conn: psycopg.Connection, sql: str) -> list[bytes]:
    """The lines of a COPY in text format."""
    with conn.cursor().copy(f"copy ({sql}) to stdout") as copy:
        return b"".join(bytes(part) for part in copy).splitlines()


class Beside:
    """One view: its plan, its state, and the database. ``step`` brings the state to what the database holds now."""

    def __init__(self, dsn: str, sql: str, schemas: tuple[str, ...] = ("public",)) -> None:
        self.conn = connect(SourceSettings(dsn=dsn, tables=["public.*"]))
        self.conn.execute("set search_path to public")
        self.shapes = {table: shape for schema in schemas for table, shape in shapes_of(self.conn, schema).items()}
        try:
            self.plan: ViewPlan = planned(sql, self.shapes.values())
        except ViewRefused:
            self.conn.close()
            raise
        store = sqlite3.connect(":memory:", isolation_level=None)
        self.rows = SqliteRows(store, self.plan.relations)
        self.state = EmbeddedState(self.rows, UnseenRows(store, self.plan.relations), self.plan)
        self.documents = DocumentSource(self.plan)
        self.groups = GroupState(store, self.plan.grouping) if self.plan.grouping is not None else None
        self._seen: dict[TableName, dict[bytes, bytes]] = {table: {} for table in self.plan.relations}
        self.published: dict[Row, str | NotComputable] = {}
        self._pos = 0

    def close(self) -> None:
        """End the session."""
        self.conn.close()

    def step(self) -> set[Row]:
        """Take in what changed, recompute what the engine says it concerns, and return the keys of that."""
        changes = [change for table in self._seen for change in self._changes(table)]
        concerned = self.state.apply(changes)
        computed = self.documents.of(self.rows, concerned)
        if self.groups is not None:
            computed = self.groups.of(self.groups.absorb(computed).union(self.groups.always))
        for key, document in computed.items():
            if document is None:
                self.published.pop(key, None)
            else:
                self.published[key] = document
        return concerned

    def _changes(self, table: TableName) -> Iterable[RowChange]:
        shape = self.shapes[table]
        encoder = compile_table(shape, name="t", database="d", masks=NO_MASKS)
        names = ", ".join(f'"{column.name}"' for column in shape.columns)
        found = dict(encoder.snapshot_line(line) for line in lines(self.conn, f"select {names} from {table}"))
        before, self._seen[table] = self._seen[table], found
        reader = StateRows(shape, self.plan.relations[table])
        for key in before.keys() | found.keys():
            if before.get(key) != found.get(key):
                self._pos += 1
                row = reader.row(orjson.loads(found[key])) if key in found else None
                yield RowChange(table, reader.key(key), row, f"{self._pos:032x}")

    def other(self, sql: str) -> ViewPlan:
        """The plan of another text over tables whose rows this one's state has, with the same columns."""
        return planned(sql, self.shapes.values())

    def documents_of(self, plan: ViewPlan) -> Mapping[Row, str | NotComputable | None]:
        """Every document of another plan, over a state of its own that is filled from the database."""
        store = sqlite3.connect(":memory:", isolation_level=None)
        rows = SqliteRows(store, plan.relations)
        state = EmbeddedState(rows, UnseenRows(store, plan.relations), plan)
        keys: set[Row] = set()
        for table in plan.relations:
            keys |= state.apply(self._rows_of(plan, table))
        return DocumentSource(plan).of(rows, keys)

    def _rows_of(self, plan: ViewPlan, table: TableName) -> Iterable[RowChange]:
        shape = self.shapes[table]
        reader = StateRows(shape, plan.relations[table])
        for key, row in self._seen[table].items():
            yield RowChange(table, reader.key(key), reader.row(orjson.loads(row)), f"{1:032x}")

    def encoder(self, plan: ViewPlan) -> Callable[[bytes], bytes]:
        """From a line of COPY of a plan's columns to the row on the wire."""
        encoder = compile_table(view_shape("v", plan, "t"), name="t", database="d", masks=NO_MASKS)
        return lambda line: encoder.snapshot_line(line)[1]

    def expected(self) -> Mapping[bytes, bytes]:
        """What Postgres says: rows of the view on the wire, by their keys."""
        shape = view_shape("v", self.plan, "t")
        encoder = compile_table(shape, name="t", database="d", masks=NO_MASKS)
        return dict(encoder.snapshot_line(line) for line in lines(self.conn, self.plan.sql))

    def found(self) -> Mapping[bytes, bytes]:
        """What the engine has, in the same form."""
        keys = [name for _, name in self.plan.key]
        rows = [str(document) for document in self.published.values()]
        return {_key(row, keys): row.encode() for row in rows}

    def differences(self) -> list[tuple[bytes | None, bytes | None]]:
        """Rows that differ: Postgres's and ours."""
        expected, found = self.expected(), self.found()
        keys = expected.keys() | found.keys()
        return [(expected.get(k), found.get(k)) for k in keys if not same_json(expected.get(k), found.get(k))]


def _key(row: str, names: list[str]) -> bytes:
    document = orjson.loads(row)
    return orjson.dumps({name: document[name] for name in names})
