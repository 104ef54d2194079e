"""Debezium's records as records of ours: what is done to each, the same on the driver and in tasks. Pure.

A task reports the shapes that nobody has numbered, and applies nothing of its share: the driver has them written, and
the slice runs again.

A record that cannot be read keeps its bytes and gets a header that says why. :mod:`spark.source` sets it aside.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from cdc.progress import Offsets
from cdc.schema import TableSchema
from cdc.wire.debezium.reading import UNVERSIONED, DebeziumReader, UnreadableRecord
from cdc.wire.format import HEADERS, POS, REASON_HEADER
from spark.source import RECORD_SCHEMA

Version = tuple[str, int]
"""A topic, and the version of a shape of its table."""
EmbeddedVersion = tuple[str, int]
"""A topic, and the number of a shape that its records embed."""
_TOLD = 1_000
"""Shapes that one share reports, at most: the rest is reported when the slice runs again."""
TWO_WRITERS = (
    "it is Debezium's, and lies behind the end that the topic had when the native capture took it over: two writers"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskNotes:
    """The shapes that tasks met and that have no number yet."""

    shapes: Mapping[EmbeddedVersion, TableSchema] = field(default_factory=dict)

    @property
    def undecided(self) -> bool:
        """Whether the driver has to see to it before the slice may be applied."""
        return bool(self.shapes)

    def __add__(self, other: TaskNotes) -> TaskNotes:
        return TaskNotes(shapes={**self.shapes, **other.shapes})


class NumberedShapes(Protocol):
    """The shapes of topics, as far as they are known."""

    def newest(self, topic: str) -> TableSchema | None:
        """The newest shape of the topic's table. None for one that has none."""
        ...

    def version(self, topic: str, number: int, shape: TableSchema | None) -> int:
        """The version that an embedded shape is known by in the schema topic, by its own ``number``. Of None the
        newest."""
        ...


def translated(records: pa.Table, reader: DebeziumReader, shapes: NumberedShapes, handed_over: Offsets) -> pa.Table:
    """Records with the three headers, in the same columns (:data:`spark.source.RECORD_SCHEMA`). Records of ours, from
    before or behind a handover, stay as they are. Tombstones of a table that has no shape are left out: no store has a
    row of it.

    ``handed_over``: where Debezium's records end in topics that the native capture writes now.
    """
    if records.column(POS).null_count == 0:
        return records
    names = ("topic", "partition", "offset", "key", "value", POS)
    columns: list[list[Any]] = [records[name].to_pylist() for name in names]
    rows: list[_Row | None] = []
    for topic, partition, offset, key, value, pos in zip(*columns, strict=True):
        if pos is not None:
            rows.append(_KEPT)
            continue
        if offset >= handed_over.get(topic, {}).get(partition, offset + 1):
            rows.append(_Row(key, value, None, TWO_WRITERS))
            continue
        found = reader.read(topic, offset, key, value, shapes.newest(topic) if value is None else None)
        if isinstance(found, UnreadableRecord):
            rows.append(_Row(key, value, None, found.reason))
            continue
        version = shapes.version(topic, found.ver, found.schema)
        if version == UNVERSIONED and value is None:
            rows.append(None)
            continue
        told = (found.pos.text().encode(), found.op.encode(), str(version).encode())
        rows.append(_Row(found.key, found.value, told, None))
    return _table(records, rows)


class _Row(NamedTuple):
    """The row that a record is made into. ``told``: the values of its three headers. ``reason``: why it is none of
    ours."""

    key: bytes | None
    value: bytes | None
    told: tuple[bytes, bytes, bytes] | None
    reason: str | None


_KEPT = _Row(None, None, None, None)
_NO_HEADERS = (None, None, None)


def _table(records: pa.Table, rows: list[_Row | None]) -> pa.Table:
    """The records that are left, by what each of them was made into."""
    if any(row is None for row in rows):
        records = records.filter(pa.array([row is not None for row in rows], pa.bool_()))
    left = [row for row in rows if row is not None]
    kept = any(row is _KEPT for row in left)
    own = {name: records[name].to_pylist() if kept else [] for name in ("key", "value", *HEADERS)}
    made: dict[str, list[bytes | None]] = {name: [] for name in own}
    for number, row in enumerate(left):
        if row is _KEPT:
            cells: Iterable[bytes | None] = [own[name][number] for name in own]
        else:
            cells = (row.key, row.value, *(row.told or _NO_HEADERS))
        for column, value in zip(made.values(), cells, strict=True):
            column.append(value)
    columns: dict[str, Any] = {name: records[name] for name in RECORD_SCHEMA.names}
    columns |= {name: pa.array(column, pa.binary()) for name, column in made.items()}
    headers = [_headers(row, existing) for row, existing in zip(left, records["headers"].to_pylist(), strict=True)]
    columns["headers"] = pa.array(headers, RECORD_SCHEMA.field("headers").type)
    return pa.table(columns, schema=RECORD_SCHEMA)


def _headers(row: _Row, existing: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
    """None for the three alone, as :data:`spark.source.RECORD_SCHEMA` has it."""
    if row is _KEPT:
        return existing
    if row.reason is not None:
        return [*(existing or ()), {"key": REASON_HEADER, "value": row.reason.encode()}]
    if not existing or row.told is None:
        return None
    return [*existing, *({"key": name, "value": value} for name, value in zip(HEADERS, row.told, strict=True))]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTranslation:
    """The parameters for translating a share, as plain data. ``versions``: what is known of embedded shapes.
    ``newest``: the newest shape of each topic that has one."""

    reader: DebeziumReader
    versions: Mapping[EmbeddedVersion, int]
    newest: Mapping[str, TableSchema]
    handed_over: Offsets = field(default_factory=dict)

    def begin(self) -> TaskTranslator:
        """A translator of one share."""
        return TaskTranslator(self)


@dataclass
class TaskTranslator:
    """Translates one share, and remembers what it cannot decide. Implements :class:`NumberedShapes`."""

    plan: TaskTranslation
    _missed: dict[EmbeddedVersion, TableSchema] = field(default_factory=dict)

    def __call__(self, records: pa.Table) -> pa.Table:
        """As :func:`translated`. The returned rows may be applied when nothing is undecided in the end."""
        return translated(records, self.plan.reader, self, self.plan.handed_over)

    @property
    def told(self) -> TaskNotes:
        """The shapes that it met, and that have no number yet."""
        return TaskNotes(shapes=self._missed)

    def newest(self, topic: str) -> TableSchema | None:
        return self.plan.newest.get(topic)

    def version(self, topic: str, number: int, shape: TableSchema | None) -> int:
        if shape is None:
            newest = self.newest(topic)
            return newest.version if newest is not None else UNVERSIONED
        known = self.plan.versions.get((topic, number))
        if known is None and len(self._missed) < _TOLD:
            self._missed[topic, number] = shape
        return known or UNVERSIONED
