"""One record of either side, parsed without loss, and what is known of its table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from cdc.comparison.lossless import Json, Object
from cdc.schema import Column, Identity, TableSchema
from cdc.topic import TableName
from cdc.wire.format import AFTER, OP, READ_OP, SOURCE

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

    @property
    def deferrable_key(self) -> bool:
        """Whether any version of the table had a deferrable primary key."""
        return any(schema.deferrable_key for schema in self.schemas)


NO_FACTS = TableHistory()
Facts = Mapping[str, TableHistory]
"""table (``schema.name``) -> its facts."""


class ComparedTable(Protocol):
    """A table as the catalog has it now."""

    @property
    def schema(self) -> str:
        """The name of its schema."""

    @property
    def name(self) -> str:
        """Its own name, without the schema."""

    @property
    def leaf(self) -> bool:
        """Whether it is a partition."""

    @property
    def defaults(self) -> Sequence[str]:
        """The columns that have a default."""

    @property
    def primary_key(self) -> Sequence[str]:
        """The columns of its primary key, in key order. Empty without one."""


def table_facts(tables: Iterable[ComparedTable], schemas: Iterable[TableSchema]) -> dict[str, TableHistory]:
    """table -> what is known of it, for each of ``tables``. ``schemas``: every version that the topic holds."""
    versions: dict[TableName, list[TableSchema]] = {}
    for schema in sorted(schemas, key=lambda s: s.version):
        versions.setdefault(schema.table, []).append(schema)
    return {
        f"{table.schema}.{table.name}": TableHistory(
            schemas=tuple(versions.get(TableName(table.schema, table.name), ())),
            defaults=frozenset(table.defaults),
            primary_key=tuple(table.primary_key),
            leaf=table.leaf,
        )
        for table in tables
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
    def after(self) -> Json:
        """The row as the change left it. None where it left none."""
        return self.value.get(AFTER) if isinstance(self.value, Object) else None

    @property
    def source(self) -> Object | None:
        """The envelope's ``source`` object. None where there is none."""
        found = self.value.get(SOURCE) if isinstance(self.value, Object) else None
        return found if isinstance(found, Object) else None

    @property
    def snapshot(self) -> bool:
        """Whether a snapshot read the row."""
        return self.op == READ_OP
