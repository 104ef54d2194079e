"""From the records of a table's topic to the rows of the state, and from a view's columns to the shape of its topic."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from cdc.process.errors import CdcError, ConfigError, Exit, Retry
from cdc.record.schema import Column, Identity, TableSchema
from cdc.record.topic_names import VIEW_SCHEMA, TableName
from cdc.views.lookups import Row
from cdc.views.row_changes import KEPT
from cdc.views.sql_types import Group, SqlType, type_of
from cdc.views.stored_values import stored
from cdc.views.view_plan import KeptTable, ViewPlan
from cdc.wire.envelope import is_unavailable, may_be_unavailable
from cdc.wire.plain import PlainTable


class PlanOutdated(CdcError):
    """A column of a view's table has another type than when the view was planned, and results depend on it: the view
    is to be planned anew."""

    exit = Exit.UNAVAILABLE
    retry = Retry.LATER


class StateRows:
    """Records of one version of a table's shape as rows of a relation. A column that the version lacks is NULL.

    ConfigError and PlanOutdated as :func:`require_planned`.
    """

    def __init__(self, schema: TableSchema, relation: KeptTable) -> None:
        require_planned(schema, relation)
        self._plain = PlainTable(schema, nested=False)
        self._row = [(name, stored(kind)) for name, kind in zip(relation.columns, relation.kinds, strict=True)]
        self._key = [(name, stored(relation.kind(name))) for name in relation.key]
        self._names = as_they_stand(self._row)
        self._key_names = as_they_stand(self._key)
        self._needed = {name for name, _ in self._key}
        self._may_lack = [column.name for column in schema.columns if may_be_unavailable(column)]

    def row(self, after: Mapping[str, Any]) -> Row:
        """A new row, in the order of the relation's columns. ValueError where a value does not fit its type, and where
        the row lacks its key.

        An unchanged value that the record leaves out is :data:`cdc.views.row_changes.KEPT`.
        """
        get = after.get
        lacking = [name for name in self._may_lack if is_unavailable(get(name))]
        if not lacking and self._names is not None:
            values = after if self._plain.as_it_is else self._plain.values(after)
            return self._keyed(tuple(map(values.get, self._names)))
        if not lacking:
            return self._keyed(_taken(self._plain.values(after), self._row))
        row = _taken(self._plain.values({**after, **dict.fromkeys(lacking)}), self._row)
        kept = tuple(KEPT if name in lacking else value for (name, _), value in zip(self._row, row, strict=True))
        return self._keyed(kept)

    def _keyed(self, row: Row) -> Row:
        """The same. A record of somebody else's may be a row without its key, of which no row is made."""
        key = row[: len(self._key)]
        if None in key:
            raise ValueError("the row does not have the columns of its key")
        return row

    def key(self, key_json: bytes) -> Row:
        """A record's key. ValueError, TypeError or AttributeError where it is none of this table."""
        key = orjson.loads(key_json)
        if not isinstance(key, dict) or not key.keys() >= self._needed:
            raise ValueError("the key does not have the columns of the table's key")
        values = key if self._plain.as_it_is else self._plain.values(key)
        return _taken(values, self._key) if self._key_names is None else tuple(map(values.get, self._key_names))


def require_planned(schema: TableSchema, relation: KeptTable) -> None:
    """ConfigError where a version of a table's shape has a mask on a column that the view may compute with, and
    where a version from after the plan has other masks: HMACs under another key are equal to none of before.

    PlanOutdated where such a version only has to be planned with.
    """
    noted = schema.noted_masks
    masked = sorted(noted.keys() & set(relation.columns) - relation.masked.keys())
    if masked and schema.version < relation.version:
        raise ConfigError(
            f"the topic of {schema.table} has rows from when {masked[0]} was masked, and the view was planned without",
            hint="a changed mask has the table read again: start the views when compaction has taken the former rows",
        )
    if masked:
        raise ConfigError(
            f"{masked[0]} of {schema.table} was masked after the view was planned",
            hint="start the views again: each goes on, or is refused where it computes with the column",
        )
    later = schema.version > relation.version
    if later:
        _require_columns(schema, relation)
    here = relation.masked.keys() & schema.numbers.keys() if later else ()
    changed = sorted(name for name in here if noted.get(name) != relation.masked[name])
    if changed:
        raise ConfigError(
            f"the mask of {changed[0]} of {schema.table} changed after the view was planned",
            hint="start the views again: each is planned under the masks of now",
        )


def _require_columns(schema: TableSchema, relation: KeptTable) -> None:
    """ConfigError where a later shape of a table has a column of the view no more, or as another type: its rows
    would be nulls in every document, or values that a plan over the former type makes something else of."""
    types = {column.name: type_of(column) for column in schema.columns}
    hint = "cdc view rebuild builds the view over the table as it is now, by a text that fits it"
    for name, kind in zip(relation.columns, relation.kinds, strict=True):
        if name in relation.masked:
            continue
        now = types.get(name)
        if now is None:
            raise ConfigError(
                f"{schema.table} has no column {name} any more, which the view was planned with", hint=hint
            )
        if not _as_before(kind, now):
            said = f"{name} of {schema.table} is of type {now}, and was of type {kind} when the view was planned"
            raise ConfigError(said, hint=hint)
        if not _computes_alike(kind, now, relation):
            raise PlanOutdated(
                f"{name} of {schema.table} has another type than when the view was planned",
                hint="a runner plans its views anew by itself, by the types of now",
            )


def _computes_alike(kind: SqlType, now: SqlType, relation: KeptTable) -> bool:
    """Whether an expression over the former type says of values of the new one what Postgres does.

    Blanks come with the length of a ``char``, a numeric of a group's key has the digits that its type declares, and the
    sum of ``bigint`` is a numeric, of which a division has a fraction.
    """
    if kind.kind == "bpchar":
        return kind.typmod == now.typmod
    if kind.group is Group.NUMERIC:
        return kind.scale == now.scale
    return not relation.summed or (kind.kind == "int8") == (now.kind == "int8")


def _as_before(kind: SqlType, now: SqlType) -> bool:
    """Whether values of a type stand in the state as those of the former one do."""
    if kind.array or now.array or kind.group is Group.OPAQUE or "bpchar" in (kind.kind, now.kind):
        return (kind.kind, kind.array, kind.name) == (now.kind, now.array, now.name)
    return kind.group is now.group


def as_they_stand(columns: Sequence[tuple[str, Callable[[Any], Any] | None]]) -> list[str] | None:
    """The names of columns none of whose values is converted. None where one is."""
    return [name for name, _ in columns] if all(convert is None for _, convert in columns) else None


def _taken(values: Mapping[str, Any], columns: list[tuple[str, Callable[[Any], Any] | None]]) -> Row:
    get = values.get
    return tuple(
        value if convert is None or value is None else convert(value)
        for value, convert in [(get(name), convert) for name, convert in columns]
    )


def view_shape(name: str, plan: ViewPlan, topic: str, version: int = 1) -> TableSchema:
    """The shape of a view's topic: its columns, as capture would write them."""
    places = {column: place for place, (_, column) in enumerate(plan.key, start=1)}
    columns = tuple(
        _column(number, column, kind, places.get(column), plan.grouping is not None)
        for number, (column, kind) in enumerate(plan.outputs, start=1)
    )
    return TableSchema(
        table=TableName(VIEW_SCHEMA, name),
        topic=topic,
        version=version,
        oid=0,
        encoding="readable",
        identity=Identity.DEFAULT,
        columns=columns,
    )


def _column(number: int, name: str, kind: SqlType, place: int | None, grouped: bool) -> Column:
    return Column(
        name=name,
        attnum=number,
        type=kind.name or kind.kind,
        type_oid=0,
        kind=kind.kind,
        array=kind.array,
        typmod=kind.typmod,
        nullable=place is None or grouped,
        key_position=place,
    )
