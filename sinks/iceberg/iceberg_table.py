"""One Iceberg table: looked at by pyiceberg, without a JVM, and merged by Spark where one runs.

Where none does, as in ``cdc verify --repair``, the files with rows of a few keys are written anew: both keep the same
tables.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.expressions import AlwaysTrue, BooleanExpression, Or

from cdc.process.clock import Clock
from cdc.process.crash_points import crash_point, declare
from cdc.process.errors import SinkError
from cdc.process.sql_files import quote_literal
from sinks.contract.table_places import PLACE, PlaceStep
from sinks.iceberg.iceberg_catalog import LakeCatalog, unrepeated_table
from sinks.iceberg.iceberg_columns import CDC_EXACT, CDC_KEY, CDC_POS, plain_rows, plain_type, promotes, whole_rows
from sinks.iceberg.iceberg_faults import COLUMN_REMOVED, PASSING, LakeExchanged, LakeRemoved, conflict, given_up
from sinks.iceberg.iceberg_spark import FileSizes, Upkeep, below, file_sizes, keyed, no_key, summary_count
from sinks.warehouse.warehouse_rows import place_in, recast
from sinks.warehouse.warehouse_spark import SparkFailed, only_onto, running_session, within_ranges

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from sinks.iceberg.iceberg_spark import IcebergSpark

declare("iceberg_table_made", "iceberg_columns_added", "iceberg_merged")

T = TypeVar("T")
_MERGE_ON_READ = {f"write.{what}.mode": "merge-on-read" for what in ("merge", "update", "delete")}
# A shuffle of its own, for the sake of files that a small batch does not fill.
_AS_IT_COMES = {f"write.{what}distribution-mode": "none" for what in ("", "merge.", "update.", "delete.")}
PROPERTIES = {
    "format-version": "2",
    **_MERGE_ON_READ,
    **_AS_IT_COMES,
    # A merge writes its own deletes alone. One file for each data file would have those of all merges before, again.
    "write.delete.granularity": "partition",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
    # Each commit writes the list of all snapshots, 1.6 kB each as plain text.
    "write.metadata.compression-codec": "gzip",
}
_IGNORED = (
    "Merge on read is not yet supported",
    "Delete operation did not match any records",
)


class SparkRefused(Exception):
    """A statement that Spark did not carry out, and that is not worth another try. Its text is Spark's."""


class IcebergTable:
    """A table of the warehouse. One writer at a time. ``spark``: what merges, asked for where one runs."""

    def __init__(self, catalog: LakeCatalog, name: str, clock: Clock, spark: Callable[[], IcebergSpark]) -> None:
        self._catalog = catalog
        self.name = name
        self._spark = spark
        self._namespace = catalog.place.namespace
        self.shown = f"{catalog.place.name}.{self._namespace}.{name}"
        self._opened: Table | None = None
        self._retry = replace(catalog.retry, explain=self._given_up)
        self.location = ""  # of its metadata: each commit writes another one
        self._place: tuple[str, bytes | None] = ("", None)
        self._upkeep = Upkeep(catalog.place, name, clock)

    def exists(self) -> bool:
        """Whether there is such a table. Opens it."""
        if self._opened is None:
            self._open()
        return self._opened is not None

    def _open(self) -> None:
        self._opened = self._catalog.load(self._namespace, self.name)
        self._noted()

    def _noted(self) -> None:
        """Take the state that was opened, or written, for the seen one. A commit's answer brings repetitions back."""
        if self._opened is not None:
            self.location = unrepeated_table(self._opened).metadata_location

    def check(self) -> None:
        """See what others wrote. LakeRemoved when the table is gone."""
        self._reopen()
        _ = self._table

    def place(self) -> bytes | None:
        """As :meth:`sinks.contract.table_places.PlaceStore.place`, of a table that is there."""
        _ = self._table
        if self._place[0] != self.location:
            self._place = self.location, place_in(self.where_keys([PLACE])[CDC_EXACT].to_pylist())
        return self._place[1]

    def create(self, schema: pa.Schema) -> None:
        """Make the table, unless somebody else has made it."""

        def make() -> Table:
            try:
                place = (self._namespace, self.name)
                # A location of its own: a kept generation's table, which had this name, has its files here.
                at = self._catalog.place.new_location(self.name)
                return unrepeated_table(
                    self._catalog.opened.create_table(place, schema, location=at, properties=PROPERTIES)
                )
            except TableAlreadyExistsError:
                return unrepeated_table(self._catalog.opened.load_table((self._namespace, self.name)))

        self._catalog.make_namespace(self._namespace)
        self._opened = self._asked(make)
        self._noted()
        crash_point("iceberg_table_made")

    def types(self) -> dict[str, pa.DataType]:
        """Column -> type."""
        return {one.name: plain_type(one.type) for one in self._table.schema().as_arrow()}

    def add_columns(self, columns: Sequence[tuple[str, pa.DataType]]) -> None:
        """Add columns, null in every row that is there."""
        if columns:
            self._unite(columns)
            crash_point("iceberg_columns_added")

    def _unite(self, columns: Sequence[tuple[str, pa.DataType]]) -> None:
        def unite() -> None:
            with self._table.update_schema() as change:
                change.union_by_name(pa.schema(columns))

        self._asked(unite)
        self._noted()

    def retype(self, types: Mapping[str, pa.DataType]) -> None:
        """Give columns wider types. Where Iceberg cannot read the files by them, the rows are written anew."""
        before = self.types()
        easy = [(name, kind) for name, kind in types.items() if promotes(before[name], kind)]
        if easy:
            self._unite(easy)
        hard = {name: kind for name, kind in types.items() if not promotes(before[name], kind)}
        if hard:
            self._asked(lambda: self._written_anew(hard))
            self._noted()

    def _written_anew(self, types: Mapping[str, pa.DataType]) -> None:
        """In one commit: other columns of the same names, and all rows."""
        table = self._table
        # Another column: an id of its own, by which no reader takes the old files' values for its.
        order = list(self.types())
        rows = self._batches()
        with table.transaction() as change, _without_warnings():
            with change.update_schema(allow_incompatible_changes=True) as columns:
                for name in types:
                    columns.delete_column((name,))
            with change.update_schema() as columns:
                columns.union_by_name(pa.schema(list(types.items())))
            found = change.table_metadata.schema().as_arrow()
            schema = pa.schema([(one.name, plain_type(one.type)) for one in found])
            change.delete(AlwaysTrue())
            recast_rows = (_cast(batch.select(order), schema) for batch in rows)
            change.append(pa.RecordBatchReader.from_batches(schema, recast_rows))

    def put(self, rows: pa.Table, step: PlaceStep | None = None) -> int:
        """Insert rows, replace those with the same key that are not newer. Returns how many were written. ``step``: of
        the table's place, which is among the rows. LakeExchanged where another one is there. Call :meth:`check`
        before."""

        def put() -> int:
            self._require(step)
            whole = self._shaped(rows)
            if summary_count(self._table, "total-records") == 0:
                # A commit of somebody else's since the look ends this try.
                self._table.append(whole)
                return whole.num_rows
            return self._merged(whole, step) if self._beside_spark() else self._replaced(whole)

        looked = self._table.metadata.current_snapshot_id
        written = self._asked(put)
        self._noted()
        current = self._table.current_snapshot()
        if step is not None and current is not None and current.parent_snapshot_id == looked:
            self._place = self.location, step.after
        # Otherwise others have written behind the look, perhaps a former state of the table.
        self._require(step, written=True)
        crash_point("iceberg_merged")
        self._upkeep.written()
        return written

    def _require(self, step: PlaceStep | None, *, written: bool = False) -> None:
        if step is not None and not (step.after == self.place() if written else step.fits(self.place())):
            raise LakeExchanged(f"another state of the Iceberg table {self.shown} was put in its place")

    def _shaped(self, rows: pa.Table) -> pa.Table:
        types = self.types()
        if not set(rows.schema.names) <= set(types):
            raise SparkRefused(COLUMN_REMOVED)
        return whole_rows(rows, types)

    def _merged(self, rows: pa.Table, step: PlaceStep | None) -> int:
        metadata: Any = self._table.metadata
        before, may = metadata.last_sequence_number, only_onto(step, f"s.{CDC_KEY}", f"t.{CDC_EXACT}")
        name, within = (
            self._spark().table(self._namespace, self.name),
            within_ranges(f"t.{CDC_KEY}", map(str, rows[CDC_KEY].to_pylist())),
        )
        try:
            self._carried_out(
                lambda spark: spark.with_rows(
                    rows,
                    lambda view: (
                        f"merge into {name} t using {view} s on t.{CDC_KEY} = s.{CDC_KEY} and ({within}) "
                        f"when matched and (t.{CDC_POS} is null or s.{CDC_POS} >= t.{CDC_POS}){may} then update set * "
                        "when not matched then insert *"
                    ),
                    # Without adaptive execution a small merge would leave two files for one.
                    beside_few=False,
                )
            )
        except SparkRefused:
            if not set(self.types()) - set(rows.schema.names):
                raise
            raise CommitFailedException("somebody added a column behind the look at the table") from None
        # Spark leaves out a column that somebody removed behind it, and says nothing.
        self._shaped(rows)
        return self._added_since(before)

    def _added_since(self, sequence: int) -> int:
        """Rows that commits since then have added. Compaction adds none to these."""
        found = 0
        snapshot = self._table.current_snapshot()
        while snapshot is not None and (snapshot.sequence_number or 0) > sequence:
            if snapshot.summary is not None and snapshot.summary.operation.value != "replace":
                found += int(snapshot.summary["added-records"] or 0)
            parent = snapshot.parent_snapshot_id
            snapshot = self._table.snapshot_by_id(parent) if parent is not None else None
        return found

    def _replaced(self, rows: pa.Table) -> int:
        """Without Spark."""
        found = self._table.scan(keyed(rows[CDC_KEY].to_pylist()), selected_fields=(CDC_KEY, CDC_POS)).to_arrow()
        stored: dict[Any, str] = {}
        for key, pos in zip(found[CDC_KEY].to_pylist(), found[CDC_POS].to_pylist(), strict=True):
            stored[key] = max(stored.get(key, ""), pos or "")
        pairs: Iterable[tuple[Any, Any]] = zip(rows[CDC_KEY].to_pylist(), rows[CDC_POS].to_pylist(), strict=True)
        newer = rows.filter(pa.array([pos >= stored.get(key, "") for key, pos in pairs]))
        if newer.num_rows:
            with _without_warnings():
                self._table.overwrite(newer, keyed(newer[CDC_KEY].to_pylist()))
        return int(newer.num_rows)

    def remove_below(self, floor: str, *, looked: bool = False) -> None:
        """Delete the rows below a position. ``looked``: only where a file may have one, by its bounds."""
        if not looked or self._asked(lambda: list(self._table.scan(below(floor)).plan_files())):
            self._delete(below(floor), f"{CDC_POS} < {quote_literal(floor)}")

    def _delete(self, rows: BooleanExpression | None, sql: str) -> None:
        """``rows``: the condition without Spark, which is asked for at each try: it may have ended since the last one.
        None: nothing happens then."""

        def delete() -> None:
            if not self._beside_spark():
                if rows is not None:
                    with _without_warnings():
                        self._table.delete(rows)
                return
            name = self._spark().table(self._namespace, self.name)
            self._carried_out(lambda spark: spark.sql(f"delete from {name} where {sql}"))

        if summary_count(self._table, "total-records") != 0:
            self._asked(delete)
            self._noted()

    def delete_where(self, sql: str) -> None:
        """Delete the rows that meet a condition of Spark's. Nothing happens without Spark."""
        self._delete(None, sql)

    def empty(self) -> None:
        """Delete all rows."""

        def empty() -> None:
            with _without_warnings():
                self._table.delete(AlwaysTrue())

        self._asked(empty)
        self._noted()

    def keep_rows(self, keys: Sequence[str], keep: Callable[[pa.Table], Sequence[bool]]) -> None:
        """Of the rows under some keys, those without a key included, only these."""
        named = Or(keyed(keys), no_key())

        def replace() -> None:
            found = plain_rows(self._table.scan(named).to_arrow())
            if not found.num_rows:
                return
            kept = found.filter(pa.array(keep(found), pa.bool_()))
            with _without_warnings():
                self._table.overwrite(kept, named)

        self._asked(replace)
        self._noted()

    def where_keys(self, keys: Sequence[str]) -> pa.Table:
        """The rows under some keys."""
        return self._asked(lambda: plain_rows(self._table.scan(keyed(keys)).to_arrow()))

    def batches(self, most: int) -> Iterator[pa.RecordBatch]:
        """All rows, so many at once. Only the first read is tried again."""
        try:
            for batch in self._asked(self._batches):
                for start in range(0, batch.num_rows, most):
                    yield batch.slice(start, most)
        except PASSING as error:
            raise self._given_up(error) from None

    def _batches(self) -> Iterator[pa.RecordBatch]:
        reader = self._table.scan().to_arrow_batch_reader()
        return (one for batch in reader for one in plain_rows(pa.Table.from_batches([batch])).to_batches())

    def row_bytes(self) -> float:
        """About how many bytes a row has on the disk. 0 where that is not known."""
        rows, size = (summary_count(self._table, name) for name in ("total-records", "total-files-size"))
        return size / rows if size and rows else 0.0

    def tidy(self) -> None:
        """Now and then: join small files, and drop snapshots and files that no reader needs any more. By Spark."""
        if self._beside_spark():
            for statement in self._upkeep.due(self._spark().catalog, self._snapshot_times(), self._file_sizes):
                self._asked(lambda: self._carried_out(lambda spark: spark.sql(statement)))  # noqa: B023 - at once
                self._noted()

    def _beside_spark(self) -> bool:
        return running_session() is not None

    def _snapshot_times(self) -> list[int]:
        return sorted(one.timestamp_ms for one in self._table.snapshots())

    def _file_sizes(self) -> FileSizes:
        return self._asked(lambda: file_sizes(self._table))

    @property
    def _table(self) -> Table:
        if self._opened is None:
            self._open()
        if self._opened is None:
            raise LakeRemoved(f"there is no Iceberg table {self.shown}", hint="the sink makes it anew and fills it")
        return self._opened

    def _carried_out(self, act: Callable[[IcebergSpark], T]) -> T:
        try:
            return act(self._spark())
        except SparkFailed as failed:
            text = str(failed)
            raise (CommitFailedException if conflict(text) else SparkRefused)(text) from None
        finally:
            self._opened = None

    def _asked(self, act: Callable[[], T]) -> T:
        """With the table opened anew before another try."""

        def ask() -> T:
            try:
                return act()
            except PASSING as error:
                raise self._final(error) from None
            except (SparkRefused, NoSuchTableError, ValueError) as error:
                raise self._catalog.explained(error, self.shown) from None

        return self._retry.call(ask, again=self._reopen)

    def _final(self, error: Exception) -> Exception:
        return self._catalog.final(error, self.shown)

    def _given_up(self, error: Exception) -> SinkError:
        return given_up(error, self._catalog.place.shown, self.shown)

    def _reopen(self) -> None:
        self._opened = None


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    arrays: list[Any] = [recast(batch.column(field.name), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@contextmanager
def _without_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        for words in _IGNORED:
            warnings.filterwarnings("ignore", words)
        yield
