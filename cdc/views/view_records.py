"""The records of topics as rows of a view: those of its tables on their way into the state, and those of its own
topic, with its shape: documents, deletions and sweep marks in the envelope of every other table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import orjson

from cdc.process.errors import CdcError, ConfigError, Exit, Retry
from cdc.record.position import Position
from cdc.record.schema import Column, Identity, TableSchema
from cdc.record.topic_names import VIEW_SCHEMA, TableName, partition_of
from cdc.views.log_cut import Fence
from cdc.views.lookups import Row
from cdc.views.row_changes import KEPT
from cdc.views.sql_types import Group, SqlType, type_of
from cdc.views.stored_values import loaded, stored, wire_text
from cdc.views.view_plan import KeptTable, ViewPlan
from cdc.wire.envelope import Envelope, Headers, Stamp, is_unavailable, may_be_unavailable, record_headers
from cdc.wire.format import (
    CREATE_OP,
    DELETE_OP,
    NEW_ROW,
    NO_NEW_ROW,
    NO_OLD_ROW,
    NO_ROWS,
    OLD_ROW,
    SOURCE,
    TRUNCATE_OP,
    UPDATE_OP,
)
from cdc.wire.jsontree import quote
from cdc.wire.plain import PlainTable
from cdc.wire.records import sweep_key, sweep_value


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


NUMBERS = 3
"""Of a fence's positions a document has the first, and a deletion the next two."""
_MOST_KEPT = 16
_JSON_KINDS = {Group.BOOLEAN: bool, Group.INTEGER: int}
_SOURCE = b',"%b":{' % SOURCE.encode()


class ViewRecord(NamedTuple):
    """A record to be written. ``value`` None is a tombstone."""

    topic: str
    partition: int
    key: bytes
    value: bytes | None
    headers: Headers


class ViewRecords:
    """Makes the records of one generation of a view.

    ``name``: the pipeline's. ``database``: the source's. ``version``: of the view's shape.
    """

    def __init__(self, plan: ViewPlan, view: str, topic: str, partitions: int, *, name: str, database: str) -> None:
        self._plan = plan
        self._table = TableName(VIEW_SCHEMA, view)
        self._envelope = Envelope(name, database, self._table)
        self._topic = topic
        self._partitions = partitions
        self._key = [
            (quote(output.encode()).decode(), loaded(kind), wire_text(kind, output))
            for (_, output), kind in zip(plan.key, plan.key_kinds, strict=True)
        ]
        self._tails: dict[tuple[Position, str, int], bytes] = {}
        self._headers: dict[tuple[Position, str], Headers] = {}
        keys = {output for _, output in plan.key}
        self._others = [name for name, _ in plan.outputs if name not in keys]

    @property
    def topic(self) -> str:
        """The view's topic."""
        return self._topic

    def key(self, key: Row) -> bytes:
        """A root's key as the key of its document."""
        return b"{%b}" % ",".join(self._members(key)).encode()

    def _members(self, key: Row) -> list[str]:
        return [
            f"{name}:{'null' if value is None else write(value if load is None else load(value))}"
            for (name, load, write), value in zip(self._key, key, strict=True)
        ]

    def document(self, key: Row, row: str, above: Position, *, known: bool, now_ns: int) -> list[ViewRecord]:
        """A document, numbered above a position. ``known``: one was published before."""
        op = UPDATE_OP if known else CREATE_OP
        pos = _behind(above, 1)
        value = b"%b%b%b%b" % (NO_OLD_ROW, NEW_ROW, row.encode(), self._tail(pos, op, now_ns))
        return [self._record(self.key(key), value, pos, op)]

    def deletion(self, key: Row, above: Position, now_ns: int) -> list[ViewRecord]:
        """A document that goes: a delete, and its tombstone, behind the place of a document."""
        pos = _behind(above, 2)
        members = [*self._members(key), *(f"{quote(name.encode()).decode()}:null" for name in self._others)]
        old = ("{" + ",".join(members) + "}").encode()
        value = b"%b%b%b%b" % (OLD_ROW, old, NO_NEW_ROW, self._tail(pos, DELETE_OP, now_ns))
        name = self.key(key)
        return [
            self._record(name, value, pos, DELETE_OP),
            self._record(name, None, _behind(above, NUMBERS), DELETE_OP),
        ]

    def sweep(self, floor: Fence, now_ns: int) -> list[ViewRecord]:
        """A mark in every partition: documents below the floor are gone."""
        key = sweep_key(str(self._table))
        tail = self._tail(floor.floor(), TRUNCATE_OP, now_ns)
        value = sweep_value(NO_ROWS + tail, floor.floor().text(), self._partitions)
        headers = record_headers(floor.floor(), TRUNCATE_OP, 1)
        return [ViewRecord(self._topic, partition, key, value, headers) for partition in range(self._partitions)]

    def _tail(self, pos: Position, op: str, now_ns: int) -> bytes:
        asked = pos, op, now_ns
        tail = self._tails.get(asked)
        if tail is None:
            # The documents of a piece share theirs, and pieces have times of their own.
            if len(self._tails) > _MOST_KEPT:
                self._tails.clear()
            stamp = Stamp(pos.epoch, pos.commit_lsn, now_ns // 1000, now_ns, None)
            at = b"%d" % pos.commit_lsn, b"%d" % pos.tx_seq
            tail = self._envelope.tail(stamp, op.encode(), *at).replace(b"%%", b"%")
            self._tails[asked] = tail
        return tail

    def _record(self, key: bytes, value: bytes | None, pos: Position, op: str) -> ViewRecord:
        asked = pos, op
        headers = self._headers.get(asked)
        if headers is None:
            if len(self._headers) > _MOST_KEPT:
                self._headers.clear()
            headers = self._headers[asked] = record_headers(pos, op, 1)
        return ViewRecord(self._topic, partition_of(key, self._partitions), key, value, headers)


def _behind(above: Position, number: int) -> Position:
    return above._replace(tx_seq=above.tx_seq + number)


def key_row(plan: ViewPlan, key: bytes) -> Row:
    """A document's key as the root's key in the state. ValueError where it is none."""
    found = orjson.loads(key)
    if not isinstance(found, dict) or set(found) != {output for _, output in plan.key}:
        raise ValueError("a key of other columns")
    pairs = zip(plan.key, plan.key_kinds, strict=True)
    return tuple(key_part(found[output], kind, plan.grouping is not None) for (_, output), kind in pairs)


def key_part(value: object, kind: SqlType, nullable: bool) -> Any:
    """One value of a key as the state has it. ValueError for one that no column of that kind has."""
    if value is None and nullable:
        return None
    if value is None or isinstance(value, dict | list) or abs(value if type(value) is int else 0) >= 1 << 63:
        raise ValueError("no value of a key")
    convert = stored(kind)
    try:
        if kind.group is Group.NUMERIC:
            Decimal(str(value))
        if kind.group in _JSON_KINDS and type(value) is not _JSON_KINDS[kind.group]:
            raise TypeError
        return value if convert is None else convert(value)
    except (ArithmeticError, AttributeError, TypeError) as failure:
        raise ValueError(f"no {kind}") from failure


def row_of(value: bytes) -> bytes:
    """The row of a document's record, as it was written. ValueError where it is no document."""
    head = NO_OLD_ROW + NEW_ROW
    if not value.startswith(head):
        raise ValueError("no record of a document")
    return value[len(head) : value.rindex(_SOURCE)]
