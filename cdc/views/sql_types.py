"""The types that a view's expressions have, as far as a view treats them differently.

A type is the kind of :mod:`cdc.wire.types`, plus four that no column has: ``unknown`` (a quoted literal or NULL that
nothing has given a type yet), ``record`` (a whole row), ``void`` and ``any``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import orjson

from cdc.record.schema import Column
from cdc.wire.types import FAMILIES, OTHER, Plain
from cdc.wire.types import kinds as kinds_of


class Group(StrEnum):
    """Types whose values compare and compute with each other."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    NUMERIC = "numeric"
    FLOAT = "float"
    TEXT = "text"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp"
    TIMESTAMPTZ = "timestamptz"
    INTERVAL = "interval"
    UUID = "uuid"
    ENUM = "enum"
    JSON = "json"
    JSONB = "jsonb"
    BYTEA = "bytea"
    RECORD = "record"
    UNKNOWN = "unknown"
    OPAQUE = "opaque"
    """Carried as the text that Postgres prints. Nothing is computed with it."""


_GROUPS: dict[str, Group] = {
    "bool": Group.BOOLEAN,
    "int2": Group.INTEGER,
    "int4": Group.INTEGER,
    "int8": Group.INTEGER,
    "numeric": Group.NUMERIC,
    "float8": Group.FLOAT,
    "text": Group.TEXT,
    "varchar": Group.TEXT,
    "bpchar": Group.TEXT,
    "name": Group.TEXT,
    "date": Group.DATE,
    "time": Group.TIME,
    "timestamp": Group.TIMESTAMP,
    "timestamptz": Group.TIMESTAMPTZ,
    "interval": Group.INTERVAL,
    "uuid": Group.UUID,
    "enum": Group.ENUM,
    "json": Group.JSON,
    "jsonb": Group.JSONB,
    "bytea": Group.BYTEA,
    "record": Group.RECORD,
    "unknown": Group.UNKNOWN,
}
ORDERED = frozenset(
    {
        Group.BOOLEAN,
        Group.INTEGER,
        Group.NUMERIC,
        Group.FLOAT,
        Group.TEXT,
        Group.DATE,
        Group.TIME,
        Group.TIMESTAMP,
        Group.TIMESTAMPTZ,
        Group.UUID,
        Group.BYTEA,
    }
)
"""Groups whose values this engine puts in Postgres's order."""
EQUATED = ORDERED | {Group.ENUM, Group.INTERVAL, Group.JSONB}
"""Groups whose values this engine finds equal where Postgres does."""
PRINTED = frozenset(("float4", "oid"))
"""Kinds that are numbers on the wire and in the state. An expression has the text that Postgres prints of them."""
UNCARRIED = frozenset(
    name
    for family in FAMILIES
    if orjson.loads(family.example.readable) != family.example.text
    for name in family.names
    if name not in _GROUPS and name not in PRINTED
)
"""Kinds whose form on the wire is not the text that Postgres prints. A view cannot carry them yet."""
_NO_TEXT = kinds_of(Plain.OBJECT, Plain.VECTOR)
"""Kinds that are objects and arrays on the wire, of which the state has no form."""
# fmt: off
TEXT_IN_JSON = frozenset((
    "tsquery", "jsonpath", "xid", "xid8", "cid", "tid", "pg_lsn", "pg_snapshot", "txid_snapshot", "refcursor",
    "aclitem", "int4multirange", "int8multirange", "nummultirange", "tsmultirange", "tstzmultirange", "datemultirange",
    "regclass", "regcollation", "regconfig", "regdictionary", "regnamespace", "regoper", "regoperator", "regproc",
    "regprocedure", "regrole", "regtype",
))
# fmt: on
"""Types of pg_catalog without a row in :mod:`cdc.wire.types` that JSON has as their text (JSONTYPE_OTHER of json.c).

The log has the text alone of any other such type. It may be a composite, which JSON has as an object, an array of
arrays by a domain, or a type with a cast to json of its own."""


@dataclass(frozen=True, slots=True)
class SqlType:
    """``kind`` of :mod:`cdc.wire.types`. ``array``: of such values. ``typmod`` as in pg_attribute, -1 for none.

    ``fields``: names and types of a ``record``, or of each in an array of them. ``name``: the type's own name where the
    kind is ``enum`` or ``other``.
    """

    kind: str
    array: bool = False
    typmod: int = -1
    name: str = ""
    fields: tuple[tuple[str, SqlType], ...] = ()

    @property
    def group(self) -> Group:
        """With which values it compares. An array is opaque here: its elements have the group."""
        return Group.OPAQUE if self.array else _GROUPS.get(self.kind, Group.OPAQUE)

    @property
    def scale(self) -> int | None:
        """Of a numeric with declared digits: those behind the point."""
        if self.kind != "numeric" or self.typmod < 0:
            return None
        raw = (self.typmod - 4) & 0x7FF
        return (raw ^ 1024) - 1024

    @property
    def element(self) -> SqlType:
        """Of an array: what it holds."""
        return SqlType(self.kind, typmod=self.typmod, name=self.name, fields=self.fields)

    def array_of(self) -> SqlType:
        """An array of such values."""
        return SqlType(self.kind, array=True, name=self.name, fields=self.fields)

    def members(self, name: str = "") -> Iterator[tuple[str, SqlType]]:
        """The values that it is made of, by the names that they have in a row: itself, unless it is a record."""
        if self.kind != "record":
            yield name, self
        for field, kind in self.fields:
            yield from kind.members(field)

    @property
    def carried(self) -> bool:
        """Whether an expression can have such a value. Not of a record."""
        return self.kind not in UNCARRIED

    @property
    def passed(self) -> bool:
        """Whether a column of ``*`` can stand in a view as it stands on the wire, where nothing is made of it."""
        return self.carried or not (self.array or self.kind in _NO_TEXT)

    @property
    def known_in_json(self) -> bool:
        """Whether this engine knows how JSON has it. Not of a record."""
        return self.kind != OTHER or self.name.removesuffix("[]") in TEXT_IN_JSON

    def __str__(self) -> str:
        return (self.name or self.kind) + ("[]" if self.array else "")


def type_of(column: Column) -> SqlType:
    """The type of a captured column."""
    name = column.type if column.kind in ("enum", OTHER) else ""
    return SqlType(column.kind, column.array, column.typmod, name)


BOOL, INT4, INT8 = SqlType("bool"), SqlType("int4"), SqlType("int8")
NUMERIC, FLOAT8, TEXT = SqlType("numeric"), SqlType("float8"), SqlType("text")
DATE, TIME, TIMESTAMP, TIMESTAMPTZ = SqlType("date"), SqlType("time"), SqlType("timestamp"), SqlType("timestamptz")
INTERVAL, JSON, JSONB, UNKNOWN = SqlType("interval"), SqlType("json"), SqlType("jsonb"), SqlType("unknown")
