"""The files of a state's buckets: executors read and write them as Parquet, and the driver commits them to Delta.

A file is sorted by the hash of the values by which its rows are found, so that a reader opens the row groups of its
keys alone. A row that is replaced stays in its older file until files are joined. The newest of each row counts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from cdc.views.bucket_layout import StoredCopy, column_form
from cdc.views.lookups import Row
from cdc.views.sql_types import Group
from sinks.arrow import pc, schema_of

HASH, TURN, GONE, POSITION, UNKNOWN = "h", "turn", "gone", "position", "unknown"
_MOST_PATCHES = 8
"""Files of a bucket beside its largest one."""
_BASE_SHARE = 4
_GROUP_ROWS = 8_192
_ENTRY: list[tuple[str, pa.DataType]] = [(HASH, pa.int64()), (TURN, pa.int64()), (GONE, pa.bool_())]
_TYPES: Mapping[str, pa.DataType] = {"whole": pa.int64(), "text": pa.string(), "json": pa.string()}


class BucketFile(NamedTuple):
    """A file of a bucket. ``path``: within its table's folder."""

    path: str
    size: int


class FileChange(NamedTuple):
    """A file that came to a bucket of a table, or one that went: then ``rows`` is -1."""

    table: str
    bucket: int
    path: str
    size: int
    rows: int


@dataclass(frozen=True, slots=True)
class EntryForm:
    """The columns of a table of the state. ``same``: those whose values say which rows replace each other.

    ``forgets``: whether nothing is left of a row that went, once all files of its bucket are joined.
    """

    table: str
    schema: pa.Schema
    same: tuple[str, ...] = ()
    forgets: bool = False


PUBLISHED = EntryForm(
    "published",
    schema_of([*_ENTRY, ("key", pa.string()), ("digest", pa.binary())]),
    ("key",),
    forgets=True,
)
PENDING = EntryForm("pending", schema_of([(HASH, pa.int64()), ("key", pa.string())]))
WAITING = EntryForm("waiting", schema_of([(HASH, pa.int64()), ("change", pa.string())]))
DOCUMENTS = EntryForm(
    "documents",
    schema_of([("partition", pa.int32()), ("key", pa.binary()), ("value", pa.binary()), ("headers", pa.string())]),
)


class CopyForm:
    """Rows of a copy as entries of its table, and back."""

    def __init__(self, copy: StoredCopy) -> None:
        self.copy = copy
        relation = copy.relation
        self._forms = [column_form(relation, column) for column in relation.columns]
        self._decimals = [
            i for i, c in enumerate(relation.columns) if c in {*copy.by, *relation.key} and self._is_decimal(c)
        ]
        self._names = [f"c{i}" for i in range(len(relation.columns))]
        fields = [*_ENTRY]
        if copy.primary:
            fields += [(POSITION, pa.string()), (UNKNOWN, pa.string())]
        fields += [(name, _TYPES[form]) for name, form in zip(self._names, self._forms, strict=True)]
        fields += [(f"n{i}", pa.string()) for i in self._decimals]
        places = dict.fromkeys(relation.columns.index(c) for c in (*copy.by, *relation.key))
        same = tuple(f"n{i}" if i in self._decimals else f"c{i}" for i in places)
        self.entries = EntryForm(copy.name, schema_of(fields), same, forgets=not copy.primary)

    def _is_decimal(self, column: str) -> bool:
        kind = self.copy.relation.kind(column)
        return kind.group is Group.NUMERIC and not kind.array

    def table(self, found: Sequence[tuple[int, bool, Row, str, str | None]], turn: int) -> pa.Table:
        """``found``: the hash, whether the row went, the row, and of a primary copy its position and the places of
        values that are not known. ``turn``: later ones replace."""
        columns: dict[str, list[Any]] = {
            HASH: [one[0] for one in found],
            TURN: [turn] * len(found),
            GONE: [one[1] for one in found],
        }
        if self.copy.primary:
            columns[POSITION] = [one[3] for one in found]
            columns[UNKNOWN] = [one[4] for one in found]
        for i, (name, form) in enumerate(zip(self._names, self._forms, strict=True)):
            values = [one[2][i] for one in found]
            columns[name] = (
                [None if v is None else orjson.dumps(v).decode() for v in values] if form == "json" else values
            )
        for i in self._decimals:
            column = self.copy.relation.columns[i]
            columns[f"n{i}"] = [self._decimal(column, one[2][i]) for one in found]
        return entries(self.entries, columns)

    def _decimal(self, column: str, value: Any) -> Any:
        single = StoredCopy(0, self.copy.relation, (column,))
        return single.found_by((value,))[0]

    def rows(self, table: pa.Table) -> list[Row]:
        """The rows of entries."""
        columns = []
        for name, form in zip(self._names, self._forms, strict=True):
            values = table.column(name).to_pylist()
            columns.append([None if v is None else orjson.loads(v) for v in values] if form == "json" else values)
        return list(zip(*columns, strict=True))


@dataclass(slots=True)
class BucketFiles:
    """Reads and writes files below a folder that every executor sees. ``read_bytes``: of column chunks, so far.
    ``changes``: of files, so far. ``written_bytes``: of files."""

    root: Path
    read_bytes: int = 0
    written_bytes: int = 0
    changes: list[FileChange] = field(default_factory=list)

    def newest(self, form: EntryForm, files: Iterable[BucketFile], hashes: Sequence[int] | None = None) -> pa.Table:
        """The newest entry of each row, those that went among them. ``hashes``: sorted, of the rows that are wanted."""
        parts = [self._read(form, file, hashes) for file in files]
        return self._joined(form, [part for part in parts if part.num_rows])

    def _joined(self, form: EntryForm, parts: Sequence[pa.Table]) -> pa.Table:
        if not parts:
            return form.schema.empty_table()
        table = pa.concat_tables(parts)
        if len(parts) == 1 or not form.same:
            return table
        table = table.sort_by([(HASH, "ascending"), *((name, "ascending") for name in form.same), (TURN, "descending")])
        same = np.ones(table.num_rows - 1, dtype=bool)
        for name in (HASH, *form.same):
            column = table.column(name)
            equal = pc.equal(column.slice(1), column.slice(0, len(column) - 1))
            same &= equal.fill_null(False).to_numpy()
        return table.filter(pa.array(np.concatenate([[True], ~same])))

    def _read(self, form: EntryForm, file: BucketFile, hashes: Sequence[int] | None) -> pa.Table:
        opened = pq.ParquetFile(self.root / form.table / file.path)
        with opened:
            groups = [
                number
                for number in range(opened.metadata.num_row_groups)
                if hashes is None or _holds(opened.metadata.row_group(number).column(0), hashes)
            ]
            for number in groups:
                group = opened.metadata.row_group(number)
                self.read_bytes += sum(group.column(i).total_compressed_size for i in range(group.num_columns))
            table = opened.read_row_groups(groups) if groups else form.schema.empty_table()
        if hashes is not None and table.num_rows:
            table = table.filter(pc.is_in(table.column(HASH), value_set=pa.array(hashes, pa.int64())))
        return table

    def write(self, form: EntryForm, bucket: int, table: pa.Table) -> BucketFile:
        """A new file of a bucket."""
        name = f"{bucket:05d}-{uuid4().hex}.parquet"
        if HASH in form.schema.names:
            table = table.sort_by([(HASH, "ascending")])
        path = self.root / form.table / name
        pq.write_table(table, path, compression="zstd", row_group_size=_GROUP_ROWS, write_statistics=[HASH])
        size = path.stat().st_size
        self.written_bytes += size
        self.changes.append(FileChange(form.table, bucket, name, size, table.num_rows))
        return BucketFile(name, size)

    def add(self, form: EntryForm, bucket: int, files: Sequence[BucketFile], table: pa.Table) -> None:
        """Entries come to a bucket. ``files``: those that it has. Where they are many, some are joined."""
        if not self.join(form, bucket, files, table):
            self.write(form, bucket, table)

    def join(self, form: EntryForm, bucket: int, files: Sequence[BucketFile], more: pa.Table | None = None) -> bool:
        """Join files of a bucket where they are many, with entries that come. Returns whether they were."""
        if len(files) <= _MOST_PATCHES:
            return False
        # One order for both: by two of them files of one size are joined twice, or not at all (H258).
        *patches, base = sorted(files, key=lambda file: file.size)
        whole = sum(file.size for file in patches) * _BASE_SHARE >= base.size
        joining = [*patches, base] if whole else patches
        tables = [self._read(form, file, None) for file in joining] + ([more] if more is not None else [])
        joined = self._joined(form, [one for one in tables if one.num_rows])
        if whole and form.forgets:
            joined = joined.filter(pc.invert(joined.column(GONE)))
        if joined.num_rows:
            self.write(form, bucket, joined)
        self.gone(form, bucket, joining)
        return True

    def gone(self, form: EntryForm, bucket: int, files: Iterable[BucketFile]) -> None:
        """Files go with the commit."""
        self.changes += [FileChange(form.table, bucket, file.path, file.size, -1) for file in files]


def entries(form: EntryForm, columns: Mapping[str, Sequence[Any]]) -> pa.Table:
    """Entries of a table from values by column."""
    untyped: Any = pa.table
    made: pa.Table = untyped(dict(columns), schema=form.schema)
    return made


def values(table: pa.Table, column: str) -> list[Any]:
    """The values of a column."""
    return list(table.column(column).to_pylist())


def _holds(column: Any, hashes: Sequence[int]) -> bool:
    """Whether a row group may have one of these hashes."""
    statistics = column.statistics
    if statistics is None or not statistics.has_min_max:
        return True
    place = bisect_left(hashes, statistics.min)
    return place < len(hashes) and hashes[place] <= statistics.max
