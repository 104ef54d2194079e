"""The shape of a table, versioned: what ``<name>.schema`` holds and every part reads.

A record names its shape by the header ``ver``. A compacted topic keeps rows of every old shape for ever, so
a sink types each record by the record's own version.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Literal

from cdc.record.documents import FIRST, FORMAT, dumped, read_members, reading, record_of
from cdc.record.topic_names import TableName

Encoding = Literal["readable", "debezium"]
DROPPED = "drop"
"""The rule of a column that its mask leaves out."""


class Identity(StrEnum):
    """``pg_class.relreplident``, by name."""

    DEFAULT = "default"
    FULL = "full"
    INDEX = "index"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mask:
    """A masked column as it was before its mask. On the wire it is text.

    ``rule``: as :meth:`cdc.capture.table_masks.Masks.noted` writes it, the key's fingerprint included and never the
    key. The others: the column's type in the source, as in :class:`Column`.
    """

    rule: str
    type: str
    type_oid: int
    kind: str
    array: bool = False
    typmod: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedColumn:
    """A column that a mask leaves out of every record. ``type_oid``: its type in the source."""

    name: str
    attnum: int
    type_oid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column as it stands on the wire.

    ``kind`` is the row of :mod:`cdc.wire.types` that encodes it, by the base type's name in pg_catalog (``int4``,
    ``numeric``, ``timestamptz``, ``bpchar``, ``enum``, ...), domains resolved. ``other`` for every type
    without a row of its own (its text is carried). For an array, ``kind`` is the element's and ``array`` is
    true. ``typmod`` is the column's atttypmod (the domain's, if it has one), -1 for none. ``mask``: of a column whose
    values are masked, which is described as text.
    """

    name: str
    attnum: int
    type: str
    type_oid: int
    kind: str
    array: bool = False
    typmod: int = -1
    nullable: bool = True
    key_position: int | None = None
    generated: bool = False
    mask: Mask | None = None

    @property
    def source_type_oid(self) -> int:
        """The type's oid in the source."""
        return self.type_oid if self.mask is None else self.mask.type_oid

    @property
    def precision(self) -> int | None:
        """numeric: digits in all. Bit, varbit, char, varchar: length. Times: digits of the fraction. Else None."""
        if self.typmod < 0:
            return None
        if self.kind == "numeric":
            return (self.typmod - 4) >> 16 & 0xFFFF
        if self.kind in ("bpchar", "varchar"):
            return self.typmod - 4
        if self.kind == "interval":
            return self.typmod & 0xFFFF
        return self.typmod

    @property
    def scale(self) -> int | None:
        """numeric: digits after the point, negative allowed (PostgreSQL 15+). Else None."""
        if self.kind != "numeric" or self.typmod < 0:
            return None
        raw = (self.typmod - 4) & 0x7FF
        return (raw ^ 1024) - 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema:
    """One version of one table's shape. ``columns`` in the order they stand in a record. ``version`` from 1. ``oid``:
    of the relation, and of a shape that came with Debezium's records a number of its topic, one that is made anew has
    another. ``dropped``: the columns that a mask leaves out, in the table's order.
    ``history``: of the table in which a warehouse keeps the history of another, see
    :mod:`sinks.contract.history_rows`. The schema topic has none of it."""

    table: TableName
    topic: str
    version: int
    oid: int
    encoding: Encoding
    identity: Identity
    deferrable_key: bool = False
    columns: tuple[Column, ...]
    dropped: tuple[DroppedColumn, ...] = ()
    history: bool = False

    @property
    def key(self) -> tuple[Column, ...]:
        """The key's columns, in key order."""
        keyed = [c for c in self.columns if c.key_position is not None]
        return tuple(sorted(keyed, key=lambda c: c.key_position or 0))

    @property
    def key_form(self) -> tuple[tuple[object, ...], ...]:
        """The columns and types that a record's key is made of. While they stay, a row keeps its key in the topic and
        in the stores.

        Names in their order, and how values are written: an int that becomes a bigint is written as before.
        """
        return tuple((c.name, *_key_value_form(c)) for c in self.key)

    @property
    def plain_key_form(self) -> tuple[tuple[object, ...], ...]:
        """The same as if no column had a mask: a key of which only the masks differ has the same one."""
        return tuple((c.name, *_source_value_form(c)) for c in self.key)

    @property
    def noted_masks(self) -> dict[str, str]:
        """Each mask as it is noted, by column. See :meth:`cdc.capture.table_masks.Masks.noted_of`."""
        found = {column.name: column.mask.rule for column in self.columns if column.mask is not None}
        return found | {one.name: DROPPED for one in self.dropped}

    @property
    def masked_key(self) -> bool:
        """Whether a column of the key is masked: the source cannot be asked for a row by such a key."""
        return any(column.mask is not None for column in self.key)

    @property
    def key_masks(self) -> tuple[str, ...]:
        """The masks of the key's columns as they are noted, in key order."""
        return tuple(column.mask.rule for column in self.key if column.mask is not None)

    @property
    def masked_numbers(self) -> dict[int, str]:
        """attnum -> name of each column that is masked or left out."""
        found = {column.attnum: column.name for column in self.columns if column.mask is not None}
        return found | {one.attnum: one.name for one in self.dropped}

    @property
    def numbers(self) -> dict[str, int]:
        """Name -> attnum of each column, of those that are left out too."""
        return {column.name: column.attnum for column in self.columns} | {one.name: one.attnum for one in self.dropped}

    def same_shape(self, other: TableSchema) -> bool:
        """Whether both differ in nothing but the version."""
        return replace(self, version=other.version) == other

    def topic_key(self) -> bytes:
        """The record key on ``<name>.schema``."""
        return dumped({"table": str(self.table), "version": self.version})

    def to_json(self) -> bytes:
        """The record value on ``<name>.schema``."""
        document: dict[str, Any] = {
            FORMAT: FIRST,
            "table": str(self.table),
            "version": self.version,
            "schema": self.table.schema,
            "name": self.table.table,
            "topic": self.topic,
            "oid": self.oid,
            "encoding": self.encoding,
            "identity": self.identity.value,
            "deferrable_key": self.deferrable_key,
            "columns": [
                {
                    "name": c.name,
                    "attnum": c.attnum,
                    "type": c.type,
                    "type_oid": c.type_oid,
                    "kind": c.kind,
                    "array": c.array,
                    "typmod": c.typmod,
                    "nullable": c.nullable,
                    "key_position": c.key_position,
                    "generated": c.generated,
                    **({"mask": asdict(c.mask)} if c.mask is not None else {}),
                }
                for c in self.columns
            ],
        }
        if self.dropped:
            document["dropped"] = [asdict(one) for one in self.dropped]
        return dumped(document)

    @classmethod
    def from_json(cls, value: bytes) -> TableSchema:
        """Read :meth:`to_json` back. FormatError for another format, DamagedError for what none has."""
        about = "a table's shape in the schema topic"
        members = read_members(value, about)
        with reading(about):
            members["table"] = TableName(str(members["schema"]), str(members["name"]))
        return record_of(cls, members, about)


_WRITTEN_ALIKE = {"int2": "integer", "int4": "integer", "int8": "integer", "text": "text", "varchar": "text"}


def _key_value_form(column: Column) -> tuple[object, ...]:
    # A mask hides the value, and not that another type writes it otherwise: 1.0 and 1.000 are masked to different keys.
    own = _source_value_form(column)
    return own if column.mask is None else (column.mask.rule, *own)


def _source_value_form(column: Column) -> tuple[object, ...]:
    one = column if column.mask is None else column.mask
    alike = _WRITTEN_ALIKE.get(one.kind)
    return (one.kind, one.typmod, one.array) if alike is None else (alike, one.array)
