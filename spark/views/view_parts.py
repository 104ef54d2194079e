"""The facts that every task of a view's batch has: the plan, made again from the text, and the place of the state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from cdc.json_bytes import dumped
from cdc.schema import TableSchema
from cdc.topic import TableName
from cdc.views.bucket_layout import BucketLayout, StoredCopy
from cdc.views.bucket_walks import BucketWalks, WalkStep
from cdc.views.lookups import Row
from cdc.views.view_plan import ViewPlan, planned
from sinks.arrow import pc
from spark.views.bucket_files import GONE, BucketFile, BucketFiles, CopyForm
from spark.views.exchange import CONTROL, KEYS, Parcel

_MOST_AT_ONCE = 400
"""Members of one payload."""
Files = Mapping[str, Mapping[int, Sequence[BucketFile]]]
"""Table of the state -> bucket -> its files, at one version."""
NO_FILES: Sequence[BucketFile] = ()


@dataclass(frozen=True, slots=True)
class ShippedView:
    """A view as it travels to executors. ``shapes``: JSON of its tables' shapes. ``root``: the state's folder."""

    sql: str
    shapes: tuple[str, ...]
    search_path: tuple[str, ...]
    root: str
    buckets: int

    def parts(self) -> ViewParts:
        """The plan and all that follows from it: made once in a process."""
        return _parts(self)


class ViewParts:
    """A plan with its buckets, walks and forms."""

    def __init__(self, shipped: ShippedView) -> None:
        shapes = [TableSchema.from_json(shape.encode()) for shape in shipped.shapes]
        self.shipped = shipped
        self.plan: ViewPlan = planned(shipped.sql, shapes, search_path=shipped.search_path)
        self.layout = BucketLayout(self.plan, shipped.buckets)
        self.walks = BucketWalks(self.plan, self.layout)
        self.forms = {copy.name: CopyForm(copy) for copy in self.layout.copies}
        self.tables = sorted(self.plan.relations)

    @cached_property
    def numbers(self) -> Mapping[TableName, int]:
        """The number of each table."""
        return {table: number for number, table in enumerate(self.tables)}

    def files(self) -> BucketFiles:
        """To read and write with, in one task."""
        return BucketFiles(Path(self.shipped.root))

    def form(self, copy: StoredCopy) -> CopyForm:
        """The form of a copy's entries."""
        return self.forms[copy.name]

    def found(
        self, files: BucketFiles, listed: Files, place: int, links: Iterable[Row] | None
    ) -> tuple[StoredCopy, list[Row]]:
        """The rows of a bucket that have these values, and maybe others. All rows for None."""
        copy = self.layout.copy_at(place)
        of_bucket = listed.get(copy.name, {}).get(place % self.shipped.buckets, NO_FILES)
        hashes = None if links is None else sorted({self.layout.place(copy, link)[1] for link in links})
        form = self.form(copy)
        return copy, form.rows(present(files.newest(form.entries, of_bucket, hashes)))

    def root_keys(self, keys: Iterable[Row]) -> Iterator[Parcel]:
        """Keys of roots, each for the task of its bucket."""
        by_place: dict[int, list[Row]] = {}
        for key in keys:
            place = self.layout.place(self.layout.root, self.layout.root.found_by(key))[0]
            by_place.setdefault(place, []).append(key)
        for place, found in by_place.items():
            yield from parcels(place, KEYS, found)

    def asks(self, tag: int, step: WalkStep, rows: Iterable[Row]) -> Iterator[Parcel]:
        """The lookups of a step for these rows, each for the task of its bucket."""
        by_place: dict[int, list[list[Any]]] = {}
        for link in step.links(rows):
            by_place.setdefault(self.layout.place(step.copy, link)[0], []).append([step.number, link])
        for place, found in by_place.items():
            yield from parcels(place, tag, found)


@lru_cache(maxsize=8)
def _parts(shipped: ShippedView) -> ViewParts:
    return ViewParts(shipped)


def present(table: pa.Table) -> pa.Table:
    """The entries of rows that did not go."""
    return table.filter(pc.invert(table.column(GONE)))


def parcels(target: int, tag: int, members: Sequence[Any]) -> Iterator[Parcel]:
    """Members as payloads of some size."""
    for begin in range(0, len(members), _MOST_AT_ONCE):
        yield Parcel(target, tag, dumped(members[begin : begin + _MOST_AT_ONCE]))


def said(what: str, *members: Any) -> Parcel:
    """Something that the driver has to know."""
    return Parcel(-1, CONTROL, dumped([what, *members]))


def told(files: BucketFiles) -> Parcel:
    """The changes of a task to files, and the bytes that it has read."""
    return said("files", [list(change) for change in files.changes], files.read_bytes, files.written_bytes)


def members_of(found: Iterable[Parcel]) -> list[Any]:
    """The members of payloads."""
    return [member for one in found for member in orjson.loads(one.payload)]
