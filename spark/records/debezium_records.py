"""Debezium's records as records of ours: what is done to each, the same on the driver and in tasks. Pure.

A task reports the shapes that nobody has numbered, and applies nothing of its share: the driver has them written, and
the slice runs again.

A record that cannot be read keeps its bytes and gets a header that says why. :mod:`spark.records.source` sets it aside.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from cdc.record.progress import Offsets
from cdc.record.schema import TableSchema
from cdc.wire.debezium.reading import UNVERSIONED, DebeziumReader, UnreadableRecord
from cdc.wire.format import HEADERS, POS, REASON_HEADER
from cdc.wire.records import Span
from spark.records.source import RECORD_SCHEMA

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
    """Records with the three headers, in the same columns (:data:`spark.records.source.RECORD_SCHEMA`). Records of
    ours, from before or behind a handover, stay as they are. Tombstones of a table that has no shape are left out: no
    store has a row of it.

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
    """None for the three alone, as :data:`spark.records.source.RECORD_SCHEMA` has it."""
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


# Topics that Debezium fills, as the queries read them: the numbers of the shapes that come with records, in a run.
#
# The rules for one record stand above.

log = logging.getLogger(__name__)


class TopicShapes(Protocol):
    """The schema topic, for shapes that come with records. LogError when the log does not answer."""

    def newest(self, topic: str) -> TableSchema | None:
        """The newest shape of a topic's table. None for one that has none."""
        ...

    def version(self, topic: str, shape: TableSchema) -> int:
        """The version that an embedded shape is known by, written if it is new."""
        ...


class Translation:
    """Translates the batches of one run of a query. ``shapes`` may raise LogError. Implements
    :class:`spark.records.debezium_records.NumberedShapes`.

    Records of a small batch come here. For those that tasks read :meth:`for_tasks` makes what they need, and what they
    tell is decided here.

    ``keyed_anew``: is called with a topic whose table has another key than before, before a record under it is given to
    a store. ``topic_ids``: Kafka's ids. A topic that was made anew may have another key. ``handed_over`` as
    :func:`spark.records.debezium_records.translated` has it.
    """

    def __init__(
        self,
        shapes: TopicShapes,
        reader: DebeziumReader,
        keyed_anew: Callable[[str], None],
        *,
        topic_ids: Mapping[str, str] | None = None,
        handed_over: Offsets | None = None,
    ) -> None:
        self._oids = {topic: zlib.crc32(one.encode()) for topic, one in (topic_ids or {}).items()}
        self._shapes = shapes
        self._reader = reader
        self._keyed_anew = keyed_anew
        self._handed_over = handed_over or {}
        self._versions: dict[EmbeddedVersion, int] = {}
        self._newest: dict[str, TableSchema | None] = {}

    def __call__(self, records: pa.Table) -> pa.Table:
        """The same columns (:data:`spark.records.source.RECORD_SCHEMA`)."""
        self._newest.clear()
        return translated(records, self._reader, self, self._handed_over)

    def for_tasks(self, spans: Iterable[Span]) -> TaskTranslation:
        """The translation for the tasks that read these spans."""
        self._newest.clear()
        topics = {span.topic for span in spans}
        newest = {topic: shape for topic in topics if (shape := self.newest(topic)) is not None}
        return TaskTranslation(
            reader=self._reader,
            versions={known: version for known, version in self._versions.items() if known[0] in topics},
            newest=newest,
            handed_over={topic: parts for topic, parts in self._handed_over.items() if topic in topics},
        )

    def decide(self, told: TaskNotes) -> frozenset[Version]:
        """Number the shapes that tasks met. The versions that they have now."""
        return frozenset((known[0], self.version(*known, shape)) for known, shape in told.shapes.items())

    def newest(self, topic: str) -> TableSchema | None:
        if topic not in self._newest:
            self._newest[topic] = self._shapes.newest(topic)
        return self._newest[topic]

    def version(self, topic: str, number: int, shape: TableSchema | None) -> int:
        newest = self.newest(topic)
        if shape is None:
            return newest.version if newest is not None else UNVERSIONED
        known = self._versions.get((topic, number))
        if known is None:
            shape = replace(shape, oid=self._oids.get(topic, 0))
            if newest is not None and newest.oid == shape.oid and newest.key_form != shape.key_form:
                self._keyed_anew(topic)
                log.error("table_keyed_anew", extra={"topic": topic, "table": str(shape.table)})
            known = self._versions[topic, number] = self._shapes.version(topic, shape)
            del self._newest[topic]
        return known
