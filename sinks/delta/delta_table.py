"""One Delta table through delta-rs: kept open, put in order by the clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.dataset as ds
from deltalake.exceptions import CommitFailedError, DeltaError

from cdc.process.clock import Clock
from cdc.process.crash_points import crash_point, declare
from cdc.process.sql_files import quote_literal
from sinks.contract.port import StoreAway
from sinks.contract.store_connection import StoreRetry
from sinks.contract.table_places import PLACE, PlaceStep
from sinks.delta import delta_storage as faults
from sinks.delta.delta_files import STATISTICS, row_bytes, statistics_of
from sinks.delta.delta_partitions import buckets_in, partitioned
from sinks.delta.delta_rewrite import ONE_TRY, PACKED, KeyedFiles, filled_up, ordered, recut, widened
from sinks.delta.delta_storage import CommitLine, Exchanged, Removed, Storage, Unfit, WholeExchange
from sinks.warehouse.warehouse_columns import EXACT, KEY, POS
from sinks.warehouse.warehouse_rows import place_in, place_row

declare("delta_table_made", "delta_columns_added", "delta_merged", "delta_note_written")

# A commit lists the log's files (12 ms at 500 of them, 50 at 3,000) and reads those since the last checkpoint (0.04 ms
# each): so the log is short and its checkpoints are near. Readers that have begun need the data files alone.
_CONFIGURATION: dict[str, str | None] = {
    "delta.checkpointInterval": "20",
    "delta.deletedFileRetentionDuration": "interval 1 hours",
}
VECTORS = "delta.enableDeletionVectors"
SMALL_FILES = 16
"""With so many more files than needed, they are joined."""
_SMALL_BYTES, FILE_BYTES = 1024**2, 64 * 1024**2
"""To what size: at once, because a merge opens every file (20 ms of CPU for one, 90 for 75), and by the clock."""
_LARGE_ROW_BYTES = 4096
_UNREAD = b"?"
"""From this size on rows are appended where the table holds none of their keys."""


class Delta:
    """A table below the warehouse's root. One writer at a time. ``versions_kept``: how long one can be gone back to,
    for a table that is made."""

    tidy_every_s = 60.0
    least_bytes = 0
    """How large its files may be at least, where no row is ever looked for by its key."""

    def __init__(self, storage: Storage, path: str, clock: Clock, versions_kept: str = "10 minutes") -> None:
        self._configuration = {**_CONFIGURATION, "delta.logRetentionDuration": f"interval {versions_kept}"}
        self.path = f"{storage.root}/{path}"
        self._storage = storage
        self._clock = clock
        self._options = dict(storage.options) or None
        self._opened: deltalake.DeltaTable | None = None
        self._line = CommitLine(self.path)
        self._place: bytes | None = _UNREAD
        self._tidied = clock.monotonic()
        self._unjoined = 0
        store = f"the Delta table {self.path}"
        passing = (CommitFailedError, OSError, DeltaError)
        self._retry = StoreRetry(
            store=store, passing=passing, explain=partial(faults.explained, self.path), clock=clock, attempts=6
        )

    def exists(self) -> bool:
        """Whether there is such a table. Opens it."""
        if self._opened is not None:
            return True
        return self._retry.call(self._open)

    @property
    def version(self) -> int:
        """As it was opened. -1 for one that was not."""
        return self._opened.version() if self._opened is not None else -1

    def check(self) -> None:
        """See what others have done to the table. Removed where it is gone."""
        if self._opened is not None and not (self._storage.local and self._line.stands(self.version)):
            self._reopen()
            self._retry.call(lambda: self._table)

    def place(self) -> bytes | None:
        """As :meth:`sinks.contract.table_places.PlaceStore.place`, of a table that is there."""
        if self._place is _UNREAD:
            self._place = place_in(self.where(f"{KEY} = '{PLACE}'")[EXACT].to_pylist())
        return self._place

    def refresh(self) -> bool:
        """See what others wrote. False when there is no such table."""
        if not self.exists():
            return False
        self._retry.call(self._updated, again=self._reopen)
        return True

    def create(self, schema: pa.Schema, partitions: Sequence[str] = ()) -> None:
        """Make the table, unless somebody else has made it. SinkError when the storage refuses."""

        def make() -> deltalake.DeltaTable:
            if self._storage.local:
                Path(self.path).mkdir(parents=True, exist_ok=True)
            return deltalake.DeltaTable.create(
                self.path,
                schema,
                mode="ignore",
                partition_by=list(partitions),
                configuration={**self._configuration, **statistics_of(schema)},
                storage_options=self._options,
            )

        self._opened, self._place = self._retry.call(make), _UNREAD
        crash_point("delta_table_made")

    def types(self) -> dict[str, Any]:
        """Column -> type."""
        schema: Any = pa.schema
        return {f.name: f.type for f in schema(self._table.schema().to_arrow())}

    def add_columns(self, columns: Sequence[tuple[str, pa.DataType]]) -> None:
        """Add columns, null in every row that is there."""
        if columns:
            fields = deltalake.Schema.from_arrow(pa.schema(columns)).fields
            self._retry.call(lambda: self._table.alter.add_columns(fields), again=self._reopen)
            crash_point("delta_columns_added")

    def leave_out_bounds(self, schema: pa.Schema | None = None) -> None:
        """Have readers believe no bounds that are not true, of files that are there either. ``schema``:
        that the table is about to have."""
        said = self._table.metadata().configuration.get(STATISTICS)
        wanted = statistics_of(schema or pa.schema(list(self.types().items())), said)
        if wanted:
            self._retry.call(lambda: self._table.alter.set_table_properties(wanted), again=self._reopen)

    def retype(self, types: Mapping[str, pa.DataType]) -> None:
        """Write the table anew with wider columns. Their values stay."""
        if not types:
            return
        existing = self.types()
        schema = pa.schema([(name, types.get(name, kind)) for name, kind in existing.items()])
        self.leave_out_bounds(schema)

        def rewrite() -> None:
            batches = (widened(batch, schema) for batch in self.batches(16_384))
            reader = pa.RecordBatchReader.from_batches(schema, batches)
            deltalake.write_deltalake(self._table, reader, mode="overwrite", schema_mode="overwrite", **PACKED)

        self._retry.call(rewrite, again=self._reopen)
        self._reopen()

    def put(self, rows: pa.Table | None, key: str, order: str, step: PlaceStep | None = None) -> int:
        """Insert rows, replace those with the same key that are not newer, and take the table's place a step on with
        them. Returns how many were written."""

        def put() -> int:
            # A handle of a table that was removed would write a log with a hole.
            self.check()
            self._require(step)
            before, place = self.version, [self._placed(step.after)] if step is not None else []
            some = [self._whole(rows)] if rows is not None else []
            written = sum(one.num_rows for one in some)
            if not self._table.file_uris():
                self._appended(pa.concat_tables([*some, *place]))
            elif some and self._are_new(some[0], key):
                self._appended(some[0])
                for one in place:
                    self._merged(one, key, order, step)
            else:
                written = self._merged(pa.concat_tables([*some, *place]), key, order, step) - len(place)
            self._place = _UNREAD
            # Others may have written behind the look, perhaps a former state of the table.
            self._require(step if self.version != before + 1 else None, written=True)
            return written

        written = self._retry.call(put, again=self._reopen)
        self._place = step.after if step is not None else _UNREAD
        crash_point("delta_merged")
        self._unjoined += 1
        if self._unjoined > SMALL_FILES:
            self._unjoined = 0
            self._retry.call(lambda: self._join(_SMALL_BYTES), again=self._reopen)
        self._line.stands(self.version)
        return written

    def _require(self, step: PlaceStep | None, *, written: bool = False) -> None:
        """Exchanged where another place is in the table than it may step on from, or than was ``written``."""
        if step is not None and not (step.after == self.place() if written else step.fits(self.place())):
            raise Exchanged(f"another state of the Delta table {self.path} was put in its place")

    def _placed(self, text: bytes) -> pa.Table:
        types = {name: kind for name, kind in self.types().items() if name not in self.partitions}
        return self._whole(filled_up(place_row(text), pa.schema(list(types.items()))) or pa.table({}))

    def _appended(self, rows: pa.Table) -> None:
        # A commit of another writer's since the look ends this try.
        deltalake.write_deltalake(self._table, rows, mode="append", **PACKED)

    def _merged(self, rows: pa.Table, key: str, order: str, step: PlaceStep | None) -> int:
        keyed = self._keyed(key, order)
        if keyed.possible() and (written := keyed.merge(rows)) is not None:
            self._updated()
            return written
        same = self._same(key)
        merge = self._table.merge(rows, same, source_alias="s", target_alias="t", streamed_exec=False, **PACKED)
        done: dict[str, Any] = (
            merge.when_matched_update_all(f"t.{order} is null or s.{order} >= t.{order}")
            .when_not_matched_insert_all()
            .execute()
        )
        return int(done["num_target_rows_inserted"]) + int(done["num_target_rows_updated"])

    def _same(self, key: str) -> str:
        """When a row of the table and one of a batch are of one key. Its bucket goes with it, and leaves files out."""
        return " and ".join(f"t.{name} = s.{name}" for name in [key, *filter(buckets_in, self.partitions)])

    @property
    def partitions(self) -> list[str]:
        """The columns that the table is partitioned by."""
        return list(self._table.metadata().partition_columns)

    def _are_new(self, rows: pa.Table, key: str) -> bool:
        """Whether rows are large, and the table holds none of their keys. Small ones are merged without asking.

        A merge reads whole rows of every file, and what that takes is not given back: 20,000 new rows of 100 kB took
        3 GB. To look for their keys reads that column alone.
        """
        if rows.nbytes < _LARGE_ROW_BYTES * rows.num_rows:
            return False
        wanted = ", ".join(quote_literal(str(one)) for one in rows[key].to_pylist())
        found = deltalake.QueryBuilder().register("t", self._table)
        return pa.table(found.execute(f"select {key} from t where {key} in ({wanted}) limit 1")).num_rows == 0

    def replace(self, made: Callable[[], pa.Table]) -> None:
        """Put rows in the place of all there are. Makes the table if need be. ``made`` is asked for them once more when
        somebody else has written since the table was last read: the commit fails then."""

        def write() -> None:
            rows = made()
            if not self.exists():
                self.create(rows.schema)
            deltalake.write_deltalake(self._table, rows, mode="overwrite", commit_properties=ONE_TRY)

        self._retry.call(write, again=self._reopen)
        crash_point("delta_note_written")

    def take(self, other: Delta) -> None:
        """Put rows, columns and partitions of another table in the place of all there are, in one commit."""
        schema, by = pa.schema(list(other.types().items())), other.partitions
        if not self.exists():
            self.create(schema, by)
        exchange = WholeExchange(
            self._keyed, lambda: (widened(batch, schema) for batch in other.batches(16_384)), schema, by
        )
        self._retry.call(lambda: exchange.write(other._keyed().wanted_bytes()), again=self._reopen)
        self._retry.call(exchange.commit, again=self._reopen)
        self._reopen()
        self.leave_out_bounds()

    def delete(self, predicate: str | None = None) -> None:
        """Delete the rows that meet an SQL predicate. All of them without one."""
        self._retry.call(lambda: self._deleted(predicate), again=self._reopen)
        self._line.stands(self.version)

    def _deleted(self, predicate: str | None) -> None:
        self._table.delete(predicate, commit_properties=ONE_TRY)

    def dataset(self) -> ds.Dataset:
        """The table as it is, for reading."""
        return self._retry.call(self._dataset, again=self._reopen)

    def batches(self, most: int) -> Iterator[pa.RecordBatch]:
        """All rows, so many at once. The table is opened at once, and later reads are not tried again."""
        if not self.vectored:
            return self.dataset().to_batches(batch_size=most, batch_readahead=2, fragment_readahead=1)
        schema = pa.schema(list(self.types().items()))
        found = self._retry.call(lambda: pa.RecordBatchReader.from_stream(self._table.scan()), again=self._reopen)
        return recut(found, schema, most)

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Some columns of all rows."""
        # Opened anew for another try: the files go with a folder that somebody exchanges.
        return self._retry.call(lambda: self._columns(list(names)), again=self._reopen)

    def _columns(self, names: list[str]) -> pa.Table:
        return pa.table(self._table.scan(columns=names)) if self.vectored else self._dataset().to_table(names)

    @property
    def vectored(self) -> bool:
        """Whether the table may have deletion vectors: rows of its files that count no more."""
        return "deletionVectors" in (self._table.protocol().reader_features or ())

    @property
    def writes_vectors(self) -> bool:
        """Whether those who write to it are asked to make some."""
        return self._table.metadata().configuration.get(VECTORS) == "true"

    def set_vectors(self, wanted: bool) -> None:
        """Ask those who write to the table to make deletion vectors, or none."""
        if self.writes_vectors != wanted:
            said = {VECTORS: str(wanted).lower()}
            self._retry.call(lambda: self._table.alter.set_table_properties(said), again=self._reopen)
            self._reopen()

    def row_bytes(self) -> float:
        """About how many bytes a row has on the disk. 0 where that is not known."""
        return self._retry.call(
            lambda: row_bytes(pa.table(self._table.get_add_actions(flatten=True))), again=self._reopen
        )

    def where(self, predicate: str) -> pa.Table:
        """The rows that meet an SQL predicate, in the types of :meth:`dataset`.

        Not by a filter on the dataset: after a merge, the files' statistics there are of a type (string_view)
        that no filter on text can be compared with (delta-rs 1.6, Arrow 26).
        """
        # Opened anew for another try: somebody else's VACUUM removes the files that a handle was opened with.
        return self._retry.call(lambda: self._where(predicate), again=self._reopen)

    def tidy(self) -> None:
        """Now and then: join small files, drop files that no reader needs any more."""
        now = self._clock.monotonic()
        if now - self._tidied < self.tidy_every_s:
            return
        self._tidied = now
        self._retry.call(self._tidy, again=self._reopen)
        self._line.stands(self.version)

    def _updated(self) -> None:
        self._table.update_incremental()
        self._place = _UNREAD

    def _dataset(self) -> ds.Dataset:
        return self._table.to_pyarrow_dataset()

    def _where(self, predicate: str) -> pa.Table:
        query = deltalake.QueryBuilder().register("t", self._table)
        found: pa.Table = pa.table(query.execute(f"select * from t where {predicate}"))
        return ordered(found, pa.schema(list(self.types().items())) if self.vectored else self._dataset().schema)

    def _tidy(self) -> None:
        table = self._table
        if len(table.file_uris()) > SMALL_FILES:
            self._join(FILE_BYTES)
        # By the table's own delta.deletedFileRetentionDuration. Full: a checkpoint forgets files that are due, and what
        # a killed writer left was never in the log.
        table.vacuum(dry_run=False, full=True)

    def _join(self, file_bytes: int) -> None:
        """Join the files that are smaller than that, or than what a table with keys has its files of."""
        keyed = self._keyed()
        if not keyed.exchangeable():
            self._table.optimize.compact(target_size=file_bytes)
        elif keyed.join():
            self._updated()

    def _keyed(self, key: str = KEY, order: str = POS) -> KeyedFiles:
        schema = pa.schema(list(self.types().items()))
        return KeyedFiles(
            table=self._table,
            schema=schema,
            key=key,
            order=order,
            folder=self.path,
            near=self._storage.local,
            options=self._options,
            least_bytes=self.least_bytes,
        )

    @property
    def _table(self) -> deltalake.DeltaTable:
        if self._opened is None and not self._open():
            raise Removed(f"there is no Delta table {self.path}", hint="the sink makes it anew and fills it")
        if self._opened is None:  # pragma: no cover - opened just above
            raise StoreAway(f"the Delta table {self.path} cannot be opened")
        return self._opened

    def _open(self) -> bool:
        if not deltalake.DeltaTable.is_deltatable(self.path, self._options):
            return False
        self._opened = deltalake.DeltaTable(self.path, storage_options=self._options)
        self._place = _UNREAD
        self._line.stands(self.version)
        return True

    def _reopen(self) -> None:
        self._opened = None

    def _whole(self, rows: pa.Table) -> pa.Table:
        """All columns of the table in its order. Unfit where it lacks one of the rows, or has it in another type: Spark
        would leave its values out in silence."""
        found = filled_up(partitioned(rows, self.partitions), pa.schema(list(self.types().items())))
        if found is None:
            raise Unfit.table(self.path, faults.COLUMNS)
        return found
