"""Whether two writers would write the same keys: pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cdc.schema import Column, Encoding, Identity, TableSchema

_SAME = """
bool int2 int4 int8 oid money
text varchar bpchar char citext enum uuid inet cidr macaddr macaddr8 ltree
int4range int8range numrange tsrange tstzrange daterange
json jsonb xml bytea bit varbit tsvector
"""
_SAME_BYTES = frozenset(_SAME.split())
"""Kinds whose keys both write as the same bytes."""
_BY_VALUE: Mapping[str, tuple[str, str]] = {
    "numeric": ("D4", "{0} in ('NaN', 'Infinity', '-Infinity')"),
    "date": ("D6", "not isfinite({0}) or {0} < '1583-10-15' or {0} > '9999-12-31'"),
    "timestamp": ("D6", "not isfinite({0}) or {0} < '1583-10-15' or {0} >= '10000-01-01'"),
    "timestamptz": ("D6", "not isfinite({0}) or {0} < '1583-10-15' or {0} >= '10000-01-01'"),
    "time": ("D19", "{0} = '24:00'"),
    "timetz": ("D19", "{0} = '24:00+00'"),
}
"""Kinds whose keys are the same bytes but for some values."""
_UNLIKE = "interval point circle line lseg box path polygon vector halfvec sparsevec other"
_OTHERWISE = {kind: "D2" for kind in _UNLIKE.split()} | {
    "name": "D5",
    "float4": "D21",
    "float8": "D21",
    "hstore": "D22",
}
"""Kinds whose keys the two write otherwise, each with the rule that says how. A kind without a rule counts as D2."""


@dataclass(frozen=True, slots=True)
class KeyQuestion:
    """A row for which ``condition`` holds (``{0}`` is the column) has another key in each writer's topic."""

    table: TableSchema
    column: str
    rule: str
    condition: str

    @property
    def sentence(self) -> str:
        """The sentence for the case that there is such a row."""
        where = f"{self.table.table}: the key {self.column}"
        return f"{where} holds a value that is written otherwise ({self.rule})"


def key_problems(schemas: Iterable[TableSchema], primary_keys: Mapping[str, Sequence[str]]) -> list[str]:
    """A sentence for each table whose keys the two would write otherwise, whichever its rows are.

    ``primary_keys``: table -> columns. The old key of a row would stay in the topic for ever, and a delete not
    reach it.
    """
    found = []
    for schema in schemas:
        primary = tuple(primary_keys.get(str(schema.table), ()))
        if schema.identity is Identity.INDEX and primary != tuple(c.name for c in schema.key):
            found.append(f"{schema.table}: its key is the identity index's here and the primary key's there (D9)")
            continue
        found += [
            f"{schema.table}: the key column {column.name} ({column.type}) is written otherwise ({rule})"
            for column in schema.key
            if (rule := _differs(column, schema.encoding)) is not None
        ]
    return found


def key_questions(schemas: Iterable[TableSchema]) -> list[KeyQuestion]:
    """The questions to ask of the rows: only the values that they hold now count, since later ones have one writer."""
    return [
        KeyQuestion(schema, column.name, *_BY_VALUE[column.kind])
        for schema in schemas
        for column in schema.key
        if not column.array and column.kind in _BY_VALUE
    ]


def _differs(column: Column, encoding: Encoding) -> str | None:
    if column.array:
        return "D7"
    if column.scale is not None and column.scale < 0:
        return "D8"
    if column.kind in _SAME_BYTES or column.kind in _BY_VALUE or (column.kind == "interval" and encoding == "readable"):
        return None
    return _OTHERWISE.get(column.kind, "D2")


_SHAPING = (
    "transforms",
    "predicates",
    "key.converter",
    "message.key.columns",
    "producer.override.partitioner",
    "topic.",
    "slot.name",
    "publication.name",
    "plugin.name",
    "field.name.adjustment.mode",
    "schema.name.adjustment.mode",
    "decimal.handling.mode",
    "time.precision.mode",
    "interval.handling.mode",
    "binary.handling.mode",
    "money.fraction.digits",
    "column.",
    "datatype.",
)
_ALLOWED = ("topic.creation.", "column.propagate.", "datatype.propagate.")


def shaping_options(options: Iterable[str]) -> list[str]:
    """Those of the user's connector options that change keys, topics, partitions or the slot.

    >>> shaping_options(["poll.interval.ms", "topic.creation.default.partitions", "transforms"])
    ['transforms']
    """
    return sorted(o for o in options if o.startswith(_SHAPING) and not o.startswith(_ALLOWED))
