"""A Delta table's files written anew one by one: those that hold a changed row, and no other one.

delta-rs's own merge writes all that it touches as one heap of rows, in which the next batch touches everything again.
Here each file that holds a changed row is written again by itself, sorted by key, and cut where it grew: files stay
small, and lie apart by key, so that the log alone says of most that they hold none of a batch's keys. Files are added
and removed in one commit, at the version that was looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from math import ceil
from typing import Any, TypeVar
from urllib.parse import quote
from uuid import uuid4

import deltalake
import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, CommitProperties, RemoveAction

from cdc.process.clock import SYSTEM_CLOCK
from cdc.process.crash_points import crash_point, declare
from sinks.contract.batch import pc
from sinks.contract.table_places import PLACE
from sinks.delta.delta_files import STATISTICS, DataFile, KeysIn, data_files, due_join, file_bytes, may_hold, stats_of
from sinks.delta.delta_kind import CODEC
from sinks.warehouse.warehouse_rows import recast

declare("delta_files_written")

T = TypeVar("T")
R = TypeVar("R")

ONE_TRY = CommitProperties(max_commit_retries=0)
"""What another writer commits meanwhile ends the try: it may have put in a row that was looked for here, or joined the
files that are replaced here, which delta-rs would let stand beside the new ones."""
PACKED: Mapping[str, Any] = {
    "writer_properties": deltalake.WriterProperties(compression="ZSTD", statistics_truncate_length=64),
    "commit_properties": ONE_TRY,
}
"""How delta-rs writes rows: by default snappy, but for what it joins or deletes from. Properties of one's own lose its
other default: bounds of whole values would stand in the log, which Spark does not read above 20 MB."""
_KNOWN_FEATURES = {"appendOnly", "invariants", "timestampNtz"}
_PLAIN_WRITER, _FEATURES_WRITER = 2, 7
_TOGETHER = 4
"""Small files of so many times a file's size are written anew as one, with the new rows."""
_NEAR, _FAR = 2, 16
"""So many files are read at once: on this machine, and where each look is a request."""
_AT_ONCE_BYTES = 32 * 1024**2
"""Fewer, where they are larger together: a row takes several times as much in memory, and once more to be sorted."""
_PACKED = 3
_NO_KEYS: Any = pa.chunked_array([], pa.string())
_NONE = "__HIVE_DEFAULT_PARTITION__"
_LARGEST_BYTES = 64 * 1024**2
"""Another writer's files may be larger. A file takes many times its size in memory while it is written anew."""
_KEPT_BYTES = 8 * 1024**2
"""Up to so many bytes of files are read once, and kept while they are written anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedFiles:
    """The files of one table, at the version that the handle has. ``schema``: the table's. ``order``: the column
    that says which state of a key is newer. ``folder`` and ``near``: where it is, and whether that is on this machine.
    ``least_bytes``: how large files may be at least.
    The handle's version is the old one after a commit."""

    table: deltalake.DeltaTable
    schema: pa.Schema
    key: str
    order: str
    folder: str
    near: bool
    options: Mapping[str, str] | None = field(default=None, repr=False)
    least_bytes: int = 0

    def possible(self) -> bool:
        """Whether the table has nothing that writers have to keep beside its rows, as a feed of changes, constraints,
        deletion vectors, other names for columns, or partitions."""
        return self.exchangeable() and not self.table.metadata().partition_columns

    def exchangeable(self) -> bool:
        """The same of a table that may have partitions as we make them, by one column of texts or integers. Others are
        left to delta-rs."""
        protocol, about = self.table.protocol(), self.table.metadata()
        plain = protocol.min_writer_version <= _PLAIN_WRITER
        known = protocol.min_writer_version == _FEATURES_WRITER and _KNOWN_FEATURES.issuperset(
            protocol.writer_features or ()
        )
        asked = about.configuration.get("delta.appendOnly") == "true"
        asked = asked or "delta.invariants" in self.table.schema().to_json()
        ours = {self.key, self.order}.issubset(self.schema.names)
        by = about.partition_columns
        ours = ours and len(by) <= 1
        # A table of another shape may be partitioned by a column that ours has not.
        ours = ours and all(name in self.schema.names and _written_alike(self.schema.field(name).type) for name in by)
        return (plain or known) and ours and not asked

    def merge(self, rows: pa.Table) -> int | None:
        """Put rows in, one a key, and leave out those of which the table has a newer state. The table's place gets a
        file of its own: a batch of other rows does not write these anew for it. Returns how many were put in: None
        where nothing was done, because a file is too large to be held whole. CommitFailedError where somebody else has
        written."""
        rows = rows.sort_by(self.key)
        files = self._files()
        keys: list[Any] = rows[self.key].to_pylist()
        asked = list(may_hold(files, keys))
        columns = None if sum(held.file.size for held in asked) <= _KEPT_BYTES else [self.key, self.order]
        largest = max((held.file.size for held in asked), default=0)
        if largest > _LARGEST_BYTES:
            return None
        inside = self._side_by_side(lambda held: self._inside(held, rows, columns), asked, largest)
        stale = {number for one in inside for number, fresh in zip(one.rows, one.fresh, strict=True) if not fresh}
        places = [number for number, key in enumerate(keys) if key == PLACE]
        placed = set(places)
        touched: list[_Anew] = []
        for one in inside:
            ours = {number for number in one.rows if number not in stale}
            if ours:
                gone = rows[self.key].take(pa.array(sorted(ours), pa.int64()))
                touched.append(_Anew([one], gone, sorted(ours - placed)))
                placed |= ours
        new = [number for number in range(rows.num_rows) if number not in stale and number not in placed]
        wanted = self._wanted(files)
        anew = [*_gathered(touched, new, wanted), *(_Anew([], _NO_KEYS, [number]) for number in places)]
        if anew:
            added = self._side_by_side(
                lambda one: self._written(self._changed(one, rows), one.files, wanted), anew, largest
            )
            self._commit([file for one in touched for file in one.files], [file for some in added for file in some])
        return rows.num_rows - len(stale)

    def join(self) -> bool:
        """Join small files where there are many, those of each partition by themselves. Whether there were.

        delta-rs's own compaction tries again, whatever it is told: two at once leave each row twice."""
        files = [file for file in self._files() if not (file.low == file.high == PLACE)]
        wanted = self._wanted(files)
        apart = ([file for file in files if file.part == part] for part in sorted({f.part for f in files}, key=str))
        due = [file for some in apart for file in due_join(some, wanted)]
        lots = list(_lots(due, 16 * wanted))
        if lots:
            added = [self._written(pa.concat_tables(map(self._read, lot)), lot, wanted) for lot in lots]
            self._commit(due, [file for some in added for file in some], changes=False)
        return bool(lots)

    def write(self, batches: Iterable[pa.RecordBatch], wanted: int) -> list[AddAction]:
        """Rows in files that the log does not know yet, of about that many bytes."""
        return [file for rows in _runs(batches) for file in self._written(rows, (), wanted)]

    def exchange(self, added: Sequence[AddAction]) -> None:
        """Put written files in the place of all that there are, in one commit. CommitFailedError where somebody else
        has written since the table was looked at."""
        crash_point("delta_files_written")
        by = self.table.metadata().partition_columns
        self.table.create_write_transaction(
            list(added), "overwrite", self.table.schema(), partition_by=by, commit_properties=ONE_TRY
        )

    def wanted_bytes(self) -> int:
        """How large its files should be."""
        return self._wanted(self._files())

    def _wanted(self, files: Iterable[DataFile]) -> int:
        return max(file_bytes(files, near=self.near), self.least_bytes)

    def _files(self) -> list[DataFile]:
        return data_files(pa.table(self.table.get_add_actions(flatten=True)), self.key, self._by)

    @property
    def _by(self) -> str:
        """The column that the table is partitioned by. Empty for none."""
        return "".join(self.table.metadata().partition_columns[:1])

    def _inside(self, held: KeysIn, rows: pa.Table, columns: list[str] | None) -> _Inside:
        """The rows of a batch whose keys a file holds. ``columns``: to read, all of which are kept where it is None."""
        found = self._read(held.file, columns)
        asked: Any = rows[self.key].slice(held.start, held.end - held.start).combine_chunks()
        numbers = pc.index_in(found[self.key], value_set=asked)
        there = pc.is_valid(numbers)
        numbers = pc.add(numbers.filter(there).cast(pa.int64()), held.start)
        fresh = pc.fill_null(pc.greater_equal(rows[self.order].take(numbers), found[self.order].filter(there)), True)
        return _Inside(held.file, numbers.to_pylist(), fresh.to_pylist(), found if columns is None else None)

    def _changed(self, anew: _Anew, rows: pa.Table) -> pa.Table:
        whole = (self._read(one.file) if one.whole is None else one.whole for one in anew.inside)
        left = [one.filter(pc.invert(pc.is_in(one[self.key], value_set=anew.gone))) for one in whole]
        return pa.concat_tables([*left, rows.take(pa.array(anew.rows, pa.int64()))])

    def _read(self, file: DataFile, columns: list[str] | None = None) -> pa.Table:
        with self._folder().open_input_file(file.path) as source:
            # Times of another Spark are counted in nanoseconds, which end in the year 2262.
            file_of = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
            found: pa.Table = file_of.read(columns, use_threads=False)
        schema = self.schema if columns is None else pa.schema([self.schema.field(name) for name in columns])
        if found.schema.equals(schema):
            return found
        whole = _conformed(found, schema)
        if not self._by or self._by not in schema.names:
            return whole
        # No file has the column of its partition.
        place, kind = schema.get_field_index(self._by), schema.field(self._by)
        value = pa.scalar(file.part, pa.string()).cast(kind.type)
        return whole.set_column(place, kind, pa.repeat(value, found.num_rows))

    def _folder(self) -> pa_fs.FileSystem:
        if self.near:
            return pa_fs.SubTreeFileSystem(self.folder, pa_fs.LocalFileSystem())
        handler: Any = DeltaStorageHandler
        return pa_fs.PyFileSystem(handler.from_table(self.table._table, self.options))

    def _written(self, rows: pa.Table, files: Sequence[DataFile], wanted: int) -> list[AddAction]:
        """Rows in files of about the wanted size. ``files``: those in which they, or most of them, lay before."""
        if not rows.num_rows:
            return []  # All went elsewhere.
        # The table's place has a file of its own, whose one row says nothing of the others' size.
        told = [file for file in files if file.rows and file.low != PLACE]
        before, counted = sum(file.size for file in told), sum(file.rows for file in told)
        size = rows.num_rows * before / counted if counted else rows.nbytes / _PACKED
        pieces = ceil(size / wanted) if size > 1.5 * wanted else 1
        rows, each = rows.sort_by(self.key), ceil(rows.num_rows / pieces)
        starts = range(0, rows.num_rows, each)
        return [self._put(of, part) for start in starts for of, part in self._parts(rows.slice(start, each))]

    def _parts(self, rows: pa.Table) -> Iterator[tuple[dict[str, str | None], pa.Table]]:
        """The rows of each partition, without its columns, which no file has."""
        by = self.table.metadata().partition_columns
        if not by:
            yield {}, rows
            return
        values = rows[by[0]]
        for value in pc.unique(values).to_pylist():
            same = pc.is_null(values) if value is None else pc.fill_null(pc.equal(values, value), False)
            yield {by[0]: None if value in (None, "") else str(value)}, rows.filter(same).drop_columns(by)

    def _put(self, of: dict[str, str | None], rows: pa.Table) -> AddAction:
        # Some readers take the value of a partition from the folder's name.
        place = "".join(f"{name}={_NONE if value is None else quote(value, safe='')}/" for name, value in of.items())
        path = f"{place}part-00000-{uuid4()}-c000.{CODEC}.parquet"
        if place and self.near:
            self._folder().create_dir(place, recursive=True)
        with self._folder().open_output_stream(path) as stream:
            pq.write_table(rows, stream, compression=CODEC)
            size = stream.tell()
        return AddAction(path, size, of, _now_ms(), True, stats_of(rows.select(self._indexed(rows.column_names))))

    def _indexed(self, columns: list[str]) -> list[str]:
        """All columns, unless the table says of which its readers expect statistics."""
        said = self.table.metadata().configuration.get(STATISTICS) or ""
        names = said.split(",")
        return names if said and set(names).issubset(columns) else columns

    def _commit(self, removed: Iterable[DataFile], added: Sequence[AddAction], *, changes: bool = True) -> None:
        crash_point("delta_files_written")
        for one in added:
            one.data_change = changes
        by = self.table.metadata().partition_columns
        gone = [
            RemoveAction(file.path, changes, _now_ms(), size=file.size, partition_values=dict.fromkeys(by, file.part))
            for file in removed
        ]
        self.table.create_write_transaction(
            [*gone, *added], "append", self.table.schema(), partition_by=by, commit_properties=ONE_TRY
        )

    def _side_by_side(self, act: Callable[[T], R], some: Sequence[T], largest: int) -> list[R]:
        """``largest``: bytes of the largest file that is read for one of them."""
        most = min(_NEAR if self.near else _FAR, len(some), _AT_ONCE_BYTES // max(largest, 1))
        if most < 2:
            return [act(one) for one in some]
        with ThreadPoolExecutor(most, thread_name_prefix="files") as threads:
            return list(threads.map(act, some))


@dataclass(frozen=True, slots=True, eq=False)
class _Inside:
    """``rows``: numbers of a batch's rows, one for each row of the file with such a key. ``fresh``: whether the batch's
    is at least as new as that. ``whole``: the file's rows, where they were kept."""

    file: DataFile
    rows: list[int]
    fresh: list[bool]
    whole: pa.Table | None


@dataclass(frozen=True, slots=True, eq=False)
class _Anew:
    """Files that are written anew together: without the rows of keys that are ``gone``, with some rows of the batch."""

    inside: list[_Inside]
    gone: Any
    rows: list[int]

    @property
    def files(self) -> list[DataFile]:
        return [one.file for one in self.inside]


def _gathered(touched: Sequence[_Anew], new: Sequence[int], wanted: int) -> list[_Anew]:
    """Small files with the new rows, where they are few, and each other file by itself."""
    small = [one for one in touched if one.files[0].size < wanted // 2]
    if sum(one.files[0].size for one in small) > _TOGETHER * wanted:
        small = []
    apart = [one for one in touched if one not in small]
    if not small and not new:
        return apart
    gone: Any = pa.chunked_array([chunk for one in small for chunk in one.gone.chunks], pa.string())
    inside = [held for one in small for held in one.inside]
    return [*apart, _Anew(inside, gone, [*(number for one in small for number in one.rows), *new])]


def _written_alike(kind: pa.DataType) -> bool:
    """Whether Python writes values of a partition as Delta does."""
    return bool(pa.types.is_string(kind) or pa.types.is_integer(kind))


def _runs(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches in lots, of the bytes that are held at once."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(one.nbytes for one in held) >= _AT_ONCE_BYTES:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


def _conformed(found: pa.Table, schema: pa.Schema) -> pa.Table:
    """A file's rows in the columns that the table has by now."""
    columns: list[Any] = [
        found[field.name].cast(field.type) if field.name in found.column_names else pa.nulls(found.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _lots(files: Sequence[DataFile], most: int) -> Iterator[list[DataFile]]:
    """Files of a partition in the order of their keys, of so many bytes together."""
    lot: list[DataFile] = []
    for file in sorted(files, key=lambda one: (one.part or "", one.part is None, one.low or "")):
        if lot and (file.part != lot[0].part or sum(one.size for one in lot) + file.size > most):
            yield lot
            lot = []
        lot.append(file)
    if lot:
        yield lot


def _now_ms() -> int:
    # By the machine's clock, as delta-rs has it: VACUUM compares the two.
    return SYSTEM_CLOCK.now_ns() // 1_000_000


def filled_up(rows: pa.Table, schema: pa.Schema) -> pa.Table | None:
    """All columns of a schema, null where the rows lack one. None where the schema lacks one of theirs, or has it in a
    type that does not take their values."""
    present = set(rows.schema.names)
    if not present <= set(schema.names):
        return None
    arrays = [rows[f.name] if f.name in present else pa.nulls(rows.num_rows, f.type) for f in schema]
    try:
        return pa.Table.from_arrays(arrays, schema=schema)
    except pa.ArrowException:
        return None


def ordered(found: pa.Table, schema: pa.Schema) -> pa.Table:
    """In the order of a schema: a query has the columns of partitions last, wherever they stand in the table."""
    return found.select(schema.names).cast(schema)


def recut(found: pa.RecordBatchReader, schema: pa.Schema, most: int) -> Iterator[pa.RecordBatch]:
    """The same of a stream, in batches of so many rows."""
    # A writer that asks for the next batch is inside delta-rs, which does not begin to read there.
    with ThreadPoolExecutor(1) as thread:
        while (batch := thread.submit(next, found, None).result()) is not None:
            yield from ordered(pa.Table.from_batches([batch]), schema).to_batches(max_chunksize=most)


def widened(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """With columns of wider types."""
    arrays: list[Any] = [recast(batch.column(field.name), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
