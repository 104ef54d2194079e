"""One record of either side, parsed without loss, and what is known of its table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cdc.record.schema import Column, Identity, TableSchema
from cdc.record.topic_names import TableName
from cdc.wire.format import OP, READ_OP
from connectors.postgres.server.connections import Connection
from tests.golden.lossless import Json, Object

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHistory:
    """The facts that may explain a difference in a table's records. ``schemas``: every version of the shape, oldest
    first.

    ``defaults``: columns that have one. ``primary_key``: its columns, empty without one. ``leaf``: the table is a
    partition, whose rows come under its root's name.
    """

    schemas: Sequence[TableSchema] = ()
    defaults: frozenset[str] = frozenset()
    primary_key: tuple[str, ...] = ()
    leaf: bool = False

    def column(self, name: str) -> Column | None:
        """The column by its name, as the newest shape that has it says. None for one that none has."""
        for schema in reversed(self.schemas):
            for column in schema.columns:
                if column.name == name:
                    return column
        return None

    @property
    def identity_index(self) -> bool:
        """Whether the key is an index's and not the primary key's, although there is one."""
        return any(s.identity is Identity.INDEX for s in self.schemas) and bool(self.primary_key)

    @property
    def identity_full(self) -> bool:
        """Whether old rows are whole."""
        return any(s.identity is Identity.FULL for s in self.schemas)


NO_FACTS = TableHistory()
Facts = Mapping[str, TableHistory]
"""table (``schema.name``) -> its facts."""


_TABLES = """
select n.nspname::text, c.relname::text, c.relispartition,
       array(select a.attname::text from pg_attribute a
             where a.attrelid = c.oid and a.attnum > 0 and a.atthasdef and a.attgenerated = ''),
       array(select a.attname::text from pg_index i, unnest(i.indkey::int2[]) with ordinality k (attnum, position)
             join pg_attribute a on a.attrelid = c.oid and a.attnum = k.attnum
             where i.indrelid = c.oid and i.indisprimary and k.position <= i.indnkeyatts order by k.position)
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p') and n.nspname not in ('pg_catalog', 'information_schema')
"""


def table_facts(session: Connection, schemas: Iterable[TableSchema]) -> dict[str, TableHistory]:
    """table -> what is known of it, for each of the database. ``schemas``: every version that the topic holds."""
    versions: dict[TableName, list[TableSchema]] = {}
    for schema in sorted(schemas, key=lambda s: s.version):
        versions.setdefault(schema.table, []).append(schema)
    return {
        f"{schema}.{name}": TableHistory(
            schemas=tuple(versions.get(TableName(schema, name), ())),
            defaults=frozenset(defaults),
            primary_key=tuple(primary_key),
            leaf=leaf,
        )
        for schema, name, leaf, defaults, primary_key in session.execute(_TABLES.encode())
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRecord:
    """One record. ``op`` is None for a tombstone. ``place``: partition and offset, for order and reports."""

    table: str
    key: Json
    value: Json
    headers: Headers
    place: tuple[int, int] = field(default=(0, 0))

    @property
    def op(self) -> str | None:
        """The envelope's operation, one letter. None for a tombstone and for a value without one."""
        found = self.value.get(OP) if isinstance(self.value, Object) else None
        return found if isinstance(found, str) else None

    @property
    def snapshot(self) -> bool:
        """Whether a snapshot read the row."""
        return self.op == READ_OP
