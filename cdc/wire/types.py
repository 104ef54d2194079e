"""Every Postgres type that has a form of its own, a row each: what all who treat types differently go by.

Capture finds a column's kind in it, the readers of the log its plain and canonical values, the stores their columns,
and the manual its table. To add a type, add its row here and, where its form is new, the function that writes it to
:mod:`connectors.postgres.encoding.wire_values`. A test (tests/unit/cdc/wire/test_types.py) names each part that lacks
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple


class Plain(StrEnum):
    """The JSON form of a plain value."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    FLOAT = "number"
    TEXT = "string"
    NESTED = "any"
    """JSON that the wire carries as a string and the stores as JSON."""
    OBJECT = "object"
    VECTOR = "array of numbers"


class Canonical(StrEnum):
    """By which rule ``verify`` sees that two plain values are one."""

    SAME = "as it is"
    DECIMAL = "decimals by value"
    SECONDS = "without trailing zeros of the fraction"
    JSON = "JSON by value"
    SINGLE = "in single precision"
    DOUBLE = "in double precision"
    SINGLES = "each number in single precision"


class Search(StrEnum):
    """How a search index maps a column."""

    KEYWORD = "keyword"
    LONG = "long"
    DOUBLE = "double"
    DECIMAL = "keyword, and a double"
    DATE = "date"
    FULL_TEXT = "text, and a keyword"
    BOOLEAN = "boolean"
    BINARY = "binary"
    JSON = "as json_mapping says"
    SILENT = "kept, not indexed"


class Example(NamedTuple):
    """A value as Postgres prints it, and as both encodings have it. For the manual and its test."""

    text: str
    readable: str
    debezium: str
    typmod: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One row: the kinds that are treated alike everywhere.

    ``kinds``: names of the types, or ``enum`` and ``other``, parted by blanks. ``example`` is of the first one.
    ``form``: what its values are on the wire. ``debezium`` where that encoding differs. ``fixed``: all values have
    one length (``typlen`` in pg_type), so Postgres never stores them out of line. ``extension``: the kind counts only
    where the extension of that type owns it. ``spelled``: in a table whose key it is part of, a column stands as the
    text that Postgres prints (D26): several values that an index holds for different have one form, or Postgres does
    not read the form back. ``warehouse``: the Arrow type, by its name.
    """

    kinds: str
    example: Example
    form: str
    debezium: str = ""
    fixed: bool = False
    extension: bool = False
    spelled: bool = False
    plain: Plain = Plain.TEXT
    canonical: Canonical = Canonical.SAME
    warehouse: str = "string"
    search: Search = Search.KEYWORD

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its kinds, one by one."""
        return tuple(self.kinds.split())


def _same(text: str, wire: str | None = None, typmod: int = -1) -> Example:
    """An example that both encodings write alike. As JSON text unless ``wire`` is given."""
    json = f'"{text}"' if wire is None else wire
    return Example(text, json, json, typmod)


FAMILIES: tuple[Family, ...] = (
    Family(kinds="bool", example=_same("t", "true"), form="true or false", fixed=True,
           plain=Plain.BOOLEAN, warehouse="bool", search=Search.BOOLEAN),
    Family(kinds="int2", example=_same("-7", "-7"), form="number", fixed=True,
           plain=Plain.INTEGER, warehouse="int16", search=Search.LONG),
    Family(kinds="int4", example=_same("42", "42"), form="number", fixed=True,
           plain=Plain.INTEGER, warehouse="int32", search=Search.LONG),
    Family(kinds="int8 oid", example=_same("9223372036854775807", "9223372036854775807"), form="number", fixed=True,
           plain=Plain.INTEGER, warehouse="int64", search=Search.LONG),
    Family(kinds="float4", example=_same("1.5", "1.5"), fixed=True,
           form='number, or "NaN", "Infinity", "-Infinity"', plain=Plain.FLOAT, canonical=Canonical.SINGLE,
           warehouse="float", search=Search.DOUBLE),
    Family(kinds="float8", example=_same("NaN", '"NaN"'), fixed=True,
           form='number, or "NaN", "Infinity", "-Infinity"', plain=Plain.FLOAT, canonical=Canonical.DOUBLE,
           warehouse="double", search=Search.DOUBLE),
    Family(kinds="numeric", example=Example("1.10", '"1.10"', '"bg=="', (3 << 16 | 2) + 4),
           form='decimal text, or "NaN", "Infinity", "-Infinity"',
           debezium="base64 of the unscaled value, big-endian two's complement; without a declared scale an object "
           "of `scale` and `value`; null for NaN and the infinities, and their names in a key (D4)",
           canonical=Canonical.DECIMAL, warehouse="decimal of the declared digits, string without or beyond 38",
           search=Search.DECIMAL),
    Family(kinds="money", example=Example("$1,234.11", '"1234.11"', '"AeIT"'), form="decimal text", fixed=True,
           debezium="base64 of the unscaled value, scale 2", canonical=Canonical.DECIMAL,
           warehouse="decimal128(19, 2)", search=Search.DECIMAL),
    Family(kinds="text varchar bpchar xml", example=_same("paid"), form="text, padding kept",
           search=Search.FULL_TEXT),
    Family(kinds="citext", example=_same("Paid"), form="text", extension=True, search=Search.FULL_TEXT),
    Family(kinds="name char", example=_same("pg_class"), form="text", fixed=True),
    Family(kinds="enum", example=_same("open"), form="its label", fixed=True),
    Family(kinds="inet cidr", example=_same("10.0.0.1/8"), form="text"),
    Family(kinds="macaddr macaddr8", example=_same("08:00:2b:01:02:03"), form="text", fixed=True),
    Family(kinds="int4range int8range numrange tsrange tstzrange daterange", example=_same("[1,10)"), form="text"),
    Family(kinds="tsvector", example=_same("'a':1 'b':2"), form="text"),
    Family(kinds="ltree", example=_same("top.science"), form="text", extension=True),
    Family(kinds="uuid", example=_same("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"), form="text", fixed=True),
    Family(kinds="json jsonb", example=_same('{"a": 1}', r'"{\"a\": 1}"'), form="a string that holds the text",
           plain=Plain.NESTED, canonical=Canonical.JSON, search=Search.JSON),
    Family(kinds="hstore", example=_same('"a"=>"1"', r'"{\"a\":\"1\"}"'), extension=True, spelled=True,
           form="a string that holds a JSON object", plain=Plain.NESTED, canonical=Canonical.JSON,
           search=Search.JSON),
    Family(kinds="bytea", example=_same(r"\x0102ff", '"AQL/"'), form="base64", warehouse="binary",
           search=Search.BINARY),
    Family(kinds="bit varbit", example=_same("1010", '"Cg=="', 4), spelled=True,
           form="length 1: true or false; else base64 of the bytes, little-endian, cut after the highest set bit",
           warehouse="bool for length 1, else string", search=Search.KEYWORD),
    Family(kinds="date", example=Example("2016-11-04", '"2016-11-04Z"', "17109"), form="ISO 8601, with a `Z`",
           debezium="days since 1970", fixed=True, warehouse="date32[day]", search=Search.DATE),
    Family(kinds="time", example=Example("13:51:30.123", '"13:51:30.123Z"', "49890123000"),
           form="ISO 8601, with a `Z`", debezium="microseconds of the day, milliseconds for time(0) to time(3)",
           fixed=True, canonical=Canonical.SECONDS),
    Family(kinds="timetz", example=_same("13:51:30.123789+02", '"11:51:30.123789Z"'), form="ISO 8601 in UTC",
           fixed=True, spelled=True, canonical=Canonical.SECONDS),
    Family(kinds="timestamp",
           example=Example("2016-11-04 13:51:30.123456", '"2016-11-04T13:51:30.123456Z"', "1478267490123456"),
           form="ISO 8601 as if UTC", fixed=True, canonical=Canonical.SECONDS,
           debezium="microseconds since 1970 as if UTC, milliseconds for timestamp(0) to timestamp(3)",
           warehouse="timestamp[us]", search=Search.DATE),
    Family(kinds="timestamptz", example=_same("2016-11-04 11:51:30.12+00", '"2016-11-04T11:51:30.120000Z"'),
           form="ISO 8601 in UTC, the fraction padded to the column's precision", fixed=True,
           canonical=Canonical.SECONDS, warehouse="timestamp[us, tz=UTC]", search=Search.DATE),
    Family(kinds="interval", example=Example("P1MT2H", '"P0Y1M0DT2H0M0S"', "2637000000000"),
           form="ISO 8601", debezium="microseconds, a month being 365.25/12 days", fixed=True, spelled=True),
    Family(kinds="point", fixed=True, form="object of `x`, `y`, `wkb` (well-known binary in base64) and `srid`",
           example=_same("(1,2)", '{"x":1,"y":2,"wkb":"AQEAAAAAAAAAAADwPwAAAAAAAABA","srid":null}'),
           plain=Plain.OBJECT, canonical=Canonical.JSON, search=Search.SILENT),
    Family(kinds="circle", fixed=True, form="object of `center` (a point) and `radius`",
           example=_same("<(1,2),3>", '{"center":{"x":1,"y":2,"wkb":"AQEAAAAAAAAAAADwPwAAAAAAAABA","srid":null},'
                         '"radius":3}'),
           plain=Plain.OBJECT, canonical=Canonical.JSON, search=Search.SILENT),
    Family(kinds="line", fixed=True, form="object of `a`, `b` and `c`",
           example=_same("{1,2,3}", '{"a":1,"b":2,"c":3}'),
           plain=Plain.OBJECT, canonical=Canonical.JSON, search=Search.SILENT),
    Family(kinds="lseg box", fixed=True, form="object of `wkb`, `srid` and `extensions`",
           example=_same("[(0,0),(1,1)]", '{"wkb":"AQIAAAACAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAPA/AAAAAAAA8D8=",'
                         '"srid":null,"extensions":{"type":"lseg"}}'),
           plain=Plain.OBJECT, canonical=Canonical.JSON, search=Search.SILENT),
    Family(kinds="path polygon", form="object of `wkb`, `srid` and `extensions`",
           example=_same("[(0,0),(1,1)]", '{"wkb":"AQIAAAACAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAPA/AAAAAAAA8D8=",'
                         '"srid":null,"extensions":{"type":"path","closed":"false"}}'),
           plain=Plain.OBJECT, canonical=Canonical.JSON, search=Search.SILENT),
    Family(kinds="vector halfvec", example=_same("[1,2.5]", "[1,2.5]"), form="array of numbers", extension=True,
           spelled=True,
           plain=Plain.VECTOR, canonical=Canonical.SINGLES, warehouse="list of float", search=Search.SILENT),
    Family(kinds="sparsevec", example=_same("{1:1,3:2.5}/5", '{"dimensions":5,"vector":[[1,1],[3,2.5]]}'),
           form="object of `dimensions` and `vector`", extension=True, spelled=True,
           plain=Plain.OBJECT, canonical=Canonical.JSON, search=Search.SILENT),
    Family(kinds="other", example=_same("(1,open)"), form="the text that Postgres prints"),
)  # fmt: skip
"""A domain stands as its base type. An array as a JSON array of what its elements are, nested where it is, and in a
key as the text that Postgres prints: an index tells arrays apart by their bounds as well."""

OTHER, ENUM = "other", "enum"
"""Kinds that are no name of a type: every type without a row, and every enum."""
BY_KIND: Mapping[str, Family] = MappingProxyType({kind: family for family in FAMILIES for kind in family.names})


def kinds(*forms: Plain | Canonical | Search) -> frozenset[str]:
    """The kinds whose row has one of these forms."""
    return frozenset(k for k, f in BY_KIND.items() if {f.plain, f.canonical, f.search} & set(forms))


CATALOG_KINDS = frozenset(kind for kind, f in BY_KIND.items() if not f.extension and kind not in (OTHER, ENUM))
"""Types of pg_catalog with a row of their own."""
EXTENSION_KINDS = frozenset(kind for kind, f in BY_KIND.items() if f.extension)
"""Types that count only when the extension that makes them owns them: anybody may name a type ``hstore``."""
NESTED_KINDS = kinds(Plain.NESTED)
"""Kinds that the wire carries as a string of JSON and the stores as JSON."""
INTEGERS = kinds(Plain.INTEGER)
OBJECTS = kinds(Plain.OBJECT)
EXACT_KINDS = frozenset(("int2", "int4", "int8", "text", "varchar", "uuid", "bool", "date"))
"""Kinds of which equal values have one text. Of others, 1.1 and 1.10 may be equal."""
DATED = kinds(Search.DATE)
"""Kinds that have a date, so that years before 1583 and beyond 9999 occur."""
FRACTIONAL_SECONDS = kinds(Canonical.SECONDS)
"""Kinds with a precision of their seconds."""

SPELLED = frozenset(kind for kind, f in BY_KIND.items() if f.spelled)
"""Kinds that stand in keys as the text that Postgres prints."""
FIXED = frozenset(kind for kind, f in BY_KIND.items() if f.fixed)
