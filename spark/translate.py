"""Debezium's records as records of ours: what is done to each, the same on the driver and in tasks. Pure.

A task reads its stretch of a partition in order, with a reader that goes on where the slice before ended. It reports
what it cannot decide by itself (a shape that nobody has numbered, a snapshot that begins, positions that fall), and
applies nothing of its share: the driver decides, and the slice runs again.

A record that cannot be read keeps its bytes and gets a header that says why. :mod:`spark.source` sets it aside.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from cdc.epochs import EpochsState
from cdc.position import Position
from cdc.schema import TableSchema
from cdc.wire.debezium.falls import ServerMove
from cdc.wire.debezium.order import FIRST
from cdc.wire.debezium.reading import UNVERSIONED, DebeziumChange, PartitionReader, SettledRecord, UnreadableRecord
from cdc.wire.format import DELETE_OP, HEADERS, POS, READ_OP, REASON_HEADER
from cdc.wire.unplaced import UNPLACED_DELETE_OP
from spark.source import RECORD_SCHEMA

Partition = tuple[str, int]
Version = tuple[str, int]
"""A topic, and the version of a shape of its table."""
EmbeddedVersion = tuple[str, int, int]
"""A topic, the number of a shape that its records embed, and their epoch: in each one a shape is looked at again, for
its key. :data:`UNVERSIONED` for records that embed none."""
_READ = READ_OP.encode()
_TOLD = 1_000
"""Snapshots, shapes and servers that one share reports, at most: the rest is reported when the slice runs again."""


class RecordPlace(NamedTuple):
    """A record's place, and the topic's time of it."""

    topic: str
    partition: int
    offset: int
    time_ms: int


class Fall(NamedTuple):
    """Positions are in no order any more from ``place`` on. ``why``: a clause."""

    place: RecordPlace
    why: str


class Moved(NamedTuple):
    """Changes are of another server from ``place`` on, and in order."""

    place: RecordPlace
    move: ServerMove


class Begun(NamedTuple):
    """The first row of a snapshot of whole tables. ``over``: its own partition has the end of the one before it.
    ``table``: it is that of a later table in it."""

    place: RecordPlace
    pos: Position
    over: bool
    table: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskNotes:
    """The notes of tasks beside their records. ``readers``: partition -> its reader behind the slice, pickled."""

    falls: tuple[Fall, ...] = ()
    begun: tuple[Begun, ...] = ()
    moved: tuple[Moved, ...] = ()
    shapes: Mapping[EmbeddedVersion, TableSchema | None] = field(default_factory=dict)
    readers: Mapping[Partition, bytes] = field(default_factory=dict)

    @property
    def undecided(self) -> bool:
        """Whether the driver has to see to it before the slice may be applied."""
        return bool(self.falls or self.begun or self.shapes)

    def __add__(self, other: TaskNotes) -> TaskNotes:
        return TaskNotes(
            falls=self.falls + other.falls,
            begun=self.begun + other.begun,
            moved=self.moved + other.moved,
            shapes={**self.shapes, **other.shapes},
            readers={**self.readers, **other.readers},
        )


class Listener(Protocol):
    """Receives the findings of a translation, in the order of each partition."""

    def version(self, topic: str, change: DebeziumChange) -> int:
        """The version that a change's shape is known by in the schema topic."""
        ...

    def fell(self, fall: Fall) -> None:
        """Positions are in no order any more."""
        ...

    def begins(self, begun: Begun) -> None:
        """A snapshot begins."""
        ...

    def moves(self, moved: Moved) -> None:
        """Changes are of another server from here on."""
        ...


def translated(
    records: pa.Table,
    readers: Callable[[Partition], PartitionReader],
    epochs: EpochsState,
    listener: Listener,
) -> pa.Table:
    """Records with the three headers, in the same columns (:data:`spark.source.RECORD_SCHEMA`). Settled tombstones are
    left out, and records of ours, from before a handover, stay as they are."""
    if records.column(POS).null_count == 0:
        return records
    records = in_order(records)
    names = ("topic", "partition", "offset", "time_ms", "key", "value", POS)
    columns: list[list[Any]] = [records[name].to_pylist() for name in names]
    rows: list[_Row | None] = []
    lone: dict[int, DebeziumChange] = {}
    for topic, partition, offset, time, key, value, pos in zip(*columns, strict=True):
        if pos is not None:
            rows.append(_KEPT)
            continue
        reader, time_ms = readers((topic, partition)), time or 0
        reader.epochs = epochs
        found = reader.read(offset, key, value, time_ms=time_ms)
        if reader.fell or reader.began or reader.moved is not None:
            _tell(listener, reader, found, RecordPlace(topic, partition, offset, time_ms))
        match found:
            case SettledRecord():
                rows.append(None)
            case UnreadableRecord(reason):
                rows.append(_Row(key, value, None, reason))
            case DebeziumChange() as change:
                if change.lone:
                    lone[len(rows)] = change
                ver = b"" if change.lone else str(listener.version(topic, change)).encode()
                told = (change.pos.text().encode(), change.op.encode(), ver)
                rows.append(_Row(change.key, change.value, told, None))
    if lone:
        _see_to_lone(lone, rows, columns[0], columns[1], listener)
    return _table(records, rows)


def _tell(listener: Listener, reader: PartitionReader, found: object, place: RecordPlace) -> None:
    if reader.fell:
        listener.fell(Fall(place, reader.fell))
    if reader.moved is not None:
        listener.moves(Moved(place, reader.moved))
    if reader.began and isinstance(found, DebeziumChange) and found.pos.epoch == reader.epochs.latest:
        over, table = reader.over >= found.pos.epoch, reader.began != FIRST
        listener.begins(Begun(place, found.pos, over, table))


class _Row(NamedTuple):
    """The row that a record is made into. ``told``: the values of its three headers. ``reason``: why it is none of
    ours."""

    key: bytes | None
    value: bytes | None
    told: tuple[bytes, bytes, bytes] | None
    reason: str | None


def _see_to_lone(
    lone: Mapping[int, DebeziumChange],
    rows: list[_Row | None],
    topics: Sequence[str],
    partitions: Sequence[int],
    listener: Listener,
) -> None:
    """Give tombstones whose deletes the cleaner has taken the place of the next change in their partition: it is above
    all that the partition had of the key before, and below all that it has behind. Where none is read behind one, the
    store has to be asked. So it has to be where the next record cannot be read, which may be one of the
    key, or is a row read from its table, which has the place of what is left before it.

    Their versions last: the shape may have come behind them. A table of which no shape is known is in no store.
    """
    behind: dict[Partition, tuple[bytes, bytes | None]] = {}
    newest: dict[tuple[str, int, int], int] = {}
    for number in range(len(rows) - 1, -1, -1):
        place, row = (topics[number], partitions[number]), rows[number]
        if row is None:
            continue
        change = lone.get(number)
        if change is not None:
            known = (place[0], change.ver, change.pos.epoch)
            if known not in newest:
                newest[known] = listener.version(place[0], change)
            told = _told_of_lone(change, newest[known], behind.get(place))
            rows[number] = row._replace(told=told) if newest[known] != UNVERSIONED else None
        elif row.told is not None and row.told[1] != _READ:
            behind[place] = (row.told[0], row.key)
        else:
            behind.pop(place, None)


def _told_of_lone(
    change: DebeziumChange, version: int, behind: tuple[bytes, bytes | None] | None
) -> tuple[bytes, bytes, bytes]:
    pos, op = change.pos.text().encode(), UNPLACED_DELETE_OP
    if behind is not None:
        above, key = behind
        # After a restart the connector sends changes again: those before the tombstone may stand above those behind it.
        pos, op = (min(pos, above) if key == change.key else above), DELETE_OP
    return pos, op.encode(), str(version).encode()


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


def in_order(records: pa.Table) -> pa.Table:
    """Each partition's records by their offsets, as they mostly are: sorting copies kilobytes of each."""
    reached: dict[Partition, int] = {}
    for topic, partition, offset in zip(
        *(records[n].to_pylist() for n in ("topic", "partition", "offset")), strict=True
    ):
        if offset < reached.get((topic, partition), -1):
            return records.sort_by([("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")])
        reached[topic, partition] = offset
    return records


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTranslation:
    """The parameters for translating a share, as plain data. ``readers``: partition -> its reader before the slice,
    pickled. ``versions``: what is known of shapes. ``decided``: snapshots' first rows that the driver knows of."""

    epochs: EpochsState
    versions: Mapping[EmbeddedVersion, int]
    decided: frozenset[tuple[str, int, int]]
    readers: Mapping[Partition, bytes]

    def begin(self) -> TaskTranslator:
        """One that goes on where the slice before ended."""
        return TaskTranslator(self)


@dataclass
class TaskTranslator:
    """Translates one share, in its order, and remembers what it cannot decide. Implements :class:`Listener`."""

    plan: TaskTranslation
    _readers: dict[Partition, PartitionReader] = field(default_factory=dict)
    _falls: list[Fall] = field(default_factory=list)
    _begun: list[Begun] = field(default_factory=list)
    _moved: list[Moved] = field(default_factory=list)
    _shapes: dict[EmbeddedVersion, TableSchema | None] = field(default_factory=dict)

    def __call__(self, records: pa.Table) -> pa.Table:
        """As :func:`translated`. The returned rows may be applied when nothing is undecided in the end."""
        return translated(records, self._reader, self.plan.epochs, self)

    @property
    def told(self) -> TaskNotes:
        """Its notes, and its readers as they are now."""
        readers = {place: pickle.dumps(reader) for place, reader in self._readers.items()}
        return TaskNotes(
            falls=tuple(self._falls),
            begun=tuple(self._begun),
            moved=tuple(self._moved),
            shapes=self._shapes,
            readers=readers,
        )

    def version(self, topic: str, change: DebeziumChange) -> int:
        known = self.plan.versions.get((topic, change.ver, change.pos.epoch))
        if known is None and len(self._shapes) < _TOLD:
            self._shapes[topic, change.ver, change.pos.epoch] = change.schema
        return known or UNVERSIONED

    def fell(self, fall: Fall) -> None:
        if not self._falls:
            self._falls.append(fall)

    def begins(self, begun: Begun) -> None:
        if begun.place[:3] not in self.plan.decided and len(self._begun) < _TOLD:
            self._begun.append(begun)

    def moves(self, moved: Moved) -> None:
        if len(self._moved) < _TOLD:
            self._moved.append(moved)

    def _reader(self, place: Partition) -> PartitionReader:
        if place not in self._readers:
            self._readers[place] = pickle.loads(self.plan.readers[place])
        return self._readers[place]
