"""The steps that bring a cut of the log into the state: records to changes, changes into the buckets of their keys,
and replaced rows into the buckets of all other copies. Each is a task's work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import orjson

from cdc.progress import Progress
from cdc.schema import TableSchema
from cdc.topic import TableName
from cdc.views.bucket_changes import (
    BucketBatch,
    BucketOutcome,
    KnownRow,
    ReplacedRow,
    applied,
    change_members,
    read_change,
)
from cdc.views.bucket_layout import StoredCopy
from cdc.views.fences import Fence, LogCut, TopicRecord
from cdc.views.lookups import Row
from cdc.views.record_changes import RecordChanges
from cdc.views.row_changes import NO_PLACES, RowChange
from cdc.wire.format import TRUNCATE_OP
from cdc.wire.records import ReaderOpener, Span
from spark.views.bucket_files import GONE, HASH, POSITION, UNKNOWN, WAITING, BucketFiles, entries, values
from spark.views.exchange import ASIDE, CHANGES, NEW, OLD, PATCHES, Parcel, gathered
from spark.views.view_parts import NO_FILES, Files, ShippedView, ViewParts, members_of, parcels, said, told

_BUFFERED = 20_000
"""Changes of a task before they go on."""


class UnknownVersion(Exception):
    """A record of a version of a table's shape that the task was not given."""

    def __init__(self, topic: str, version: int) -> None:
        super().__init__(topic, version)
        self.topic, self.version = topic, version


@dataclass(frozen=True, slots=True)
class ReadCut:
    """From spans of partitions to changes of rows. ``progress``: of the cut, as JSON. ``topics``: the table of each.

    ``shapes``: topic -> version -> JSON of a shape. ``sure_ms``: see :class:`cdc.views.record_changes.RecordChanges`.
    """

    shipped: ShippedView
    opener: ReaderOpener
    progress: bytes
    topics: Mapping[str, TableName]
    shapes: Mapping[str, Mapping[int, str]]
    sure_ms: float

    def __call__(self, found: Iterator[Parcel]) -> Iterator[Parcel]:
        parts = self.shipped.parts()
        changes = RecordChanges(parts.plan, self.topics, self._shape)
        with closing(self.opener.open()) as reader:
            for topic, partition, start, end in members_of(found):
                span = Span(topic, partition, start, end)
                cut = LogCut(Progress.from_json(self.progress), [span])
                count = 0
                waiting: list[RowChange] = []
                for lot in reader.read([span]):
                    for record in cut.take(lot):
                        count += 1
                        yield from self._one(changes, record, waiting)
                    if len(waiting) >= _BUFFERED:
                        yield from sorted_changes(parts, waiting)
                        waiting = []
                yield from sorted_changes(parts, waiting)
                yield said("end", topic, partition, cut.ends[topic][partition], cut.foreign, cut.beyond_ms, count)

    def _one(self, changes: RecordChanges, record: TopicRecord, into: list[RowChange]) -> Iterator[Parcel]:
        try:
            if record.op == TRUNCATE_OP:
                yield said("floor", *_record_members(record))
            else:
                into.append(changes.of(record, self.sure_ms))
        except UnknownVersion as unknown:
            yield said("version", unknown.topic, unknown.version)
        except (ValueError, KeyError, TypeError, AttributeError):
            yield said("unreadable", *_record_members(record))

    def _shape(self, topic: str, version: int) -> TableSchema:
        found = self.shapes.get(topic, {}).get(version)
        if found is None:
            raise UnknownVersion(topic, version)
        return TableSchema.from_json(found.encode())


def _record_members(record: TopicRecord) -> list[Any]:
    """Bytes as text of one character for each, which JSON can hold."""
    return [one.decode("latin-1") if isinstance(one, bytes) else one for one in record]


def read_record(members: Sequence[Any]) -> TopicRecord:
    """A record as a task has named it."""
    topic, partition, offset, key, value, pos, op, version, time_ms, seen_lsn = members
    value, seen_lsn = (None if one is None else str(one).encode("latin-1") for one in (value, seen_lsn))
    return TopicRecord(topic, partition, offset, key.encode("latin-1"), value, pos, op, version, time_ms, seen_lsn)


def sorted_changes(parts: ViewParts, changes: Iterable[RowChange], tag: int = CHANGES) -> Iterator[Parcel]:
    """Changes for the tasks of the buckets of their keys."""
    by_place: dict[int, list[Any]] = {}
    for change in changes:
        copy = parts.layout.primary(change.table)
        place = parts.layout.place(copy, copy.found_by(change.key))[0]
        by_place.setdefault(place, []).append(change_members(change))
    for place, found in by_place.items():
        yield from parcels(place, tag, found)


@dataclass(frozen=True, slots=True)
class ApplyCut:
    """From changes to rows of the buckets by key. ``files``: of the state before. ``floors``: by name of the table.

    ``walks``: whether the documents that they concern are asked for. A bucket without parcels is not touched.
    """

    shipped: ShippedView
    files: Files
    turn: int
    fence: Fence
    below: Fence
    floors: Mapping[TableName, str]
    walks: bool

    def __call__(self, found: Iterator[Parcel]) -> Iterator[Parcel]:
        parts, files = self.shipped.parts(), self.shipped.parts().files()
        for place, of_place in gathered(found).items():
            copy = parts.layout.copy_at(place)
            outcome = self._applied(parts, files, place, copy, of_place)
            yield from self._after(parts, copy, outcome)
        yield told(files)

    def _applied(
        self, parts: ViewParts, files: BucketFiles, place: int, copy: StoredCopy, found: list[Parcel]
    ) -> BucketOutcome:
        table, form = copy.relation.table, parts.form(copy)
        bucket = place % self.shipped.buckets
        of_bucket = self.files.get(copy.name, {}).get(bucket, NO_FILES)
        waited = self.files.get(WAITING.table, {}).get(place, NO_FILES)
        changes = [read_change(table, one) for one in members_of(p for p in found if p.tag == CHANGES)]
        texts = values(files.newest(WAITING, waited), "change")
        waiting = [read_change(table, orjson.loads(text)) for text in texts]
        waiting += [read_change(table, one) for one in members_of(p for p in found if p.tag == ASIDE)]
        batch = BucketBatch(self.fence, self.below, self.floors.get(table, ""))
        hashes = {parts.layout.place(copy, copy.found_by(one.key))[1] for one in (*changes, *waiting)}
        wanted = None if batch.floor else sorted(hashes)
        known = self._known(parts, copy, files.newest(form.entries, of_bucket, wanted))
        outcome = applied(copy, batch, known, changes, waiting)
        stored = {copy.row_key(one.key): one for one in outcome.replaced}
        if stored:
            rows = [_entry(parts, copy, one) for one in stored.values()]
            files.add(form.entries, bucket, of_bucket, form.table(rows, self.turn))
        files.gone(WAITING, place, waited)
        if outcome.waiting:
            texts = [orjson.dumps(change_members(one)).decode() for one in outcome.waiting]
            files.write(WAITING, place, entries(WAITING, {HASH: [0] * len(texts), "change": texts}))
        return outcome

    def _known(self, parts: ViewParts, copy: StoredCopy, stored: Any) -> dict[Row, KnownRow]:
        rows = parts.form(copy).rows(stored)
        columns = [values(stored, name) for name in (GONE, POSITION, UNKNOWN)]
        found = {}
        for row, gone, pos, unknown in zip(rows, *columns, strict=True):
            places = frozenset(orjson.loads(unknown)) if unknown else NO_PLACES
            found[copy.row_key(row)] = KnownRow(None if gone else row, pos, places)
        return found

    def _after(self, parts: ViewParts, copy: StoredCopy, outcome: BucketOutcome) -> Iterator[Parcel]:
        for key, (places, below) in outcome.lost.items():
            yield said("lost", str(copy.relation.table), key, list(below) if places else None)
        for other in parts.layout.others(copy.relation.table):
            yield from _patches(parts, other, outcome.replaced)
        if self.walks:
            table = copy.relation.table
            concerned = [one for one in outcome.replaced if one.concerns]
            yield from _begun(parts, table, OLD, [one.old for one in concerned if one.old is not None])
            yield from _begun(parts, table, NEW, [one.new for one in concerned if one.new is not None])


def _entry(parts: ViewParts, copy: StoredCopy, one: ReplacedRow) -> tuple[int, bool, Row, str, str | None]:
    row = one.new
    if row is None:
        row = (*one.key, *[None] * (len(copy.relation.columns) - len(one.key)))
    unknown = orjson.dumps(sorted(one.lost)).decode() if one.lost else None
    return parts.layout.place(copy, copy.row_key(one.key))[1], one.new is None, row, one.pos, unknown


def _patches(parts: ViewParts, other: StoredCopy, replaced: Iterable[ReplacedRow]) -> Iterator[Parcel]:
    """The rows that a copy by other columns has to put or to take away. A row with a NULL among them stands in none."""
    final: dict[tuple[Row, Row], tuple[bool, Row]] = {}
    for one in replaced:
        if one.old is not None and (one.new is None or _identity(other, one.old) != _identity(other, one.new)):
            final[_identity(other, one.old)] = True, one.old
        if one.new is not None and one.new != one.old:
            final[_identity(other, one.new)] = False, one.new
    by_place: dict[int, list[tuple[bool, Row]]] = {}
    for (link, _), patch in final.items():
        if None not in link:
            by_place.setdefault(parts.layout.place(other, link)[0], []).append(patch)
    for place, found in by_place.items():
        yield from parcels(place, PATCHES, found)


def _identity(copy: StoredCopy, row: Row) -> tuple[Row, Row]:
    return copy.link(row), copy.row_key(row)


def _begun(parts: ViewParts, table: TableName, tag: int, rows: list[Row]) -> Iterator[Parcel]:
    """The first steps of the walk from rows of a table to roots."""
    if not rows:
        return
    for occurrence in parts.walks.begins(table):
        if parts.walks.is_root(occurrence.number):
            width = len(parts.plan.relations[table].key)
            yield from parts.root_keys({row[:width] for row in rows})
        else:
            yield from parts.asks(tag, parts.walks.up[occurrence.number], rows)


@dataclass(frozen=True, slots=True)
class PatchCopies:
    """Replaced rows into the buckets of a copy by other columns. ``files``: of the state before."""

    shipped: ShippedView
    files: Files
    turn: int

    def __call__(self, found: Iterator[Parcel]) -> Iterator[Parcel]:
        parts, files = self.shipped.parts(), self.shipped.parts().files()
        for place, of_place in gathered(found).items():
            copy = parts.layout.copy_at(place)
            form, bucket = parts.form(copy), place % self.shipped.buckets
            patches = [(gone, tuple(row)) for gone, row in members_of(of_place)]
            rows = [(parts.layout.place(copy, copy.link(row))[1], gone, row, "", None) for gone, row in patches]
            of_bucket = self.files.get(copy.name, {}).get(bucket, NO_FILES)
            files.add(form.entries, bucket, of_bucket, form.table(rows, self.turn))
        yield told(files)
