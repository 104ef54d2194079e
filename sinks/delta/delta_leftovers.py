"""Files of a Delta table that no reader of its newest version needs, and what its log says of the values in them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

import deltalake
import orjson
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake.fs import DeltaStorageHandler

from sinks.arrow import pc
from sinks.delta.delta_storage import Storage
from sinks.warehouse.warehouse_columns import DELETED, KEY, POS

_LOG = "_delta_log"
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint.*\.parquet")
_INTERVAL = re.compile(r"(?:interval )?(\d+) (\w+?)s?")
_UNITS_MS = {"millisecond": 1, "second": 1000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
_UNITS_MS["week"] = 7 * _UNITS_MS["day"]
_ROW: tuple[tuple[str, pa.DataType], ...] = ((KEY, pa.string()), (POS, pa.string()), (DELETED, pa.bool_()))


class Leftover(NamedTuple):
    """A file that is left. ``time_ms``: when it was written, since 1970. ``version``: of a file of the log, else -1."""

    path: str
    time_ms: int
    version: int = -1


class DeltaLeftovers:
    """One table, as it was when this was made."""

    def __init__(self, storage: Storage, path: str) -> None:
        uri, options = f"{storage.root}/{path}", dict(storage.options) or None
        self._table = deltalake.DeltaTable(uri, storage_options=options)
        self._files = pafs.PyFileSystem(DeltaStorageHandler(self._table.table_uri, options))
        self._settings: Mapping[str, Any] = self._table.metadata().configuration

    @property
    def file_retention_ms(self) -> int:
        """How long a replaced file stays, by the table's own settings."""
        return self._interval("delta.deletedFileRetentionDuration", "1 week")

    @property
    def log_retention_ms(self) -> int:
        """The same for files of the log that a checkpoint stands in for."""
        return self._interval("delta.logRetentionDuration", "30 days")

    def _interval(self, name: str, otherwise: str) -> int:
        found = _INTERVAL.fullmatch(str(self._settings.get(name) or otherwise).lower())
        return int(found[1]) * _UNITS_MS.get(found[2], _UNITS_MS["week"]) if found else _UNITS_MS["week"]

    def clean(self, now_ms: int) -> None:
        """Remove what the table's own settings let go by now: replaced files, and the log below a checkpoint.

        With deletion vectors no files: they would go with those that are in use (hazard H310). Spark removes them."""
        if not self._vectored and self._table.vacuum(dry_run=True, full=True):
            self._table.vacuum(dry_run=False, full=True)
            self._table.update_incremental()
        old = [one for one in self.log_files() if one.time_ms < now_ms - self.log_retention_ms]
        if not old:
            return
        checkpoints = {one.version for one in self.log_files() if one.path.endswith(".parquet")}
        if not checkpoints - {one.version for one in old}:
            # The log below it goes when this one has reached that age, too.
            self._table.create_checkpoint()
        self._table.cleanup_metadata()

    def replaced(self) -> list[Leftover]:
        """Data files that the newest version has not, those of the table's folder that no version had too."""
        paths = self._table.vacuum(retention_hours=0, dry_run=True, enforce_retention_duration=False, full=True)
        found = [self._files.get_file_info(path) for path in paths if path.endswith(".parquet")]
        return [Leftover(one.path, _ms(one)) for one in found if one.type == pafs.FileType.File]

    @property
    def _vectored(self) -> bool:
        return "deletionVectors" in (self._table.protocol().reader_features or ())

    def hidden(self) -> Iterator[pa.Table]:
        """Of each file with a deletion vector, the rows that stand in it and count no more. As :meth:`rows_of`."""
        if not self._vectored:
            return
        added: Any = pa.table(self._table.get_add_actions())
        # Below the folders of partitions, too.
        paths = {path.rsplit("/", 1)[-1]: unquote(path) for path in added["path"].to_pylist()}
        for found in pa.RecordBatchReader.from_stream(self._table.deletion_vectors()):
            for row in found.to_pylist():
                rows = self.rows_of(Leftover(paths[row["filepath"].rsplit("/", 1)[-1]], 0))
                kept = (row["selection_vector"] + [True] * rows.num_rows)[: rows.num_rows]
                yield rows.filter(pa.array([not one for one in kept], pa.bool_()))

    def rows_of(self, leftover: Leftover) -> pa.Table:
        """Key, position and whether it is deleted, of each row of a data file."""
        with self._files.open_input_file(leftover.path) as file:
            whole = pq.ParquetFile(file)
            wanted = [(name, kind) for name, kind in _ROW if name in whole.schema_arrow.names]
            # delta-rs writes what a merge has kept as string_view, which no filter of Arrow takes (hazard H367).
            return whole.read([name for name, _ in wanted]).cast(pa.schema(wanted))

    def log_files(self) -> list[Leftover]:
        """The commits and checkpoints of the table's log."""
        found = []
        for one in self._files.get_file_info(pafs.FileSelector(_LOG, allow_not_found=True)):
            name = one.path.rsplit("/", 1)[-1]
            match = _COMMIT.fullmatch(name) or _CHECKPOINT.fullmatch(name)
            if match is not None:
                found.append(Leftover(one.path, _ms(one), int(match[1])))
        return sorted(found, key=lambda one: (one.version, one.path))

    def bounds(self, leftover: Leftover) -> Iterator[Mapping[str, Any]]:
        """The statistics of data files that a file of the log adds and the newest version has no more.

        They hold the least and the greatest value of each column: values of rows (hazard H280).
        """
        live = {uri.rsplit("/", 1)[-1] for uri in self._table.file_uris()}
        for path, stats in self._added(leftover):
            if stats and path.rsplit("/", 1)[-1] not in live:
                yield orjson.loads(stats)

    def _added(self, leftover: Leftover) -> Iterator[tuple[str, str | None]]:
        with self._files.open_input_file(leftover.path) as file:
            if leftover.path.endswith(".parquet"):
                rows = pq.ParquetFile(file).read(["add.path", "add.stats"]).column("add").to_pylist()
                yield from ((row["path"], row.get("stats")) for row in rows if row and row.get("path"))
                return
            for line in file.read().splitlines():
                added = orjson.loads(line).get("add")
                if added:
                    yield added["path"], added.get("stats")


def live_keys(rows: pa.Table) -> pa.Table:
    """Those of a file's rows that are no memory of a delete."""
    if DELETED not in rows.column_names:
        return rows
    return rows.filter(pc.invert(pc.fill_null(rows[DELETED], False)))


def spans(stats: Mapping[str, Any], keys: Collection[str]) -> bool:
    """Whether a file of such statistics may have one of these keys. Long texts are cut: the least one shorter, the
    greatest one to one that is greater."""
    low, high = stats.get("minValues", {}).get(KEY), stats.get("maxValues", {}).get(KEY)
    return any((low is None or low <= key) and (high is None or key <= high) for key in keys)


def begins_below(stats: Mapping[str, Any], position: str) -> bool:
    """Whether such a file has a row up to a position."""
    low = stats.get("minValues", {}).get(POS)
    return low is None or low <= position


def superseded(old: pa.Table, current: Collection[tuple[Any, Any]], position: str) -> bool:
    """Whether some of these rows are up to a position and stand no more as they are. ``current``: key and position."""
    rows = zip(old[KEY].to_pylist(), old[POS].to_pylist(), strict=True)
    return any((pos or "") <= position and (key, pos) not in current for key, pos in rows)


def newest_ms(found: Iterable[Leftover]) -> int:
    """When the newest of them was written. 0 for none."""
    return max((one.time_ms for one in found), default=0)


def _ms(info: Any) -> int:
    return int(info.mtime_ns // 1_000_000) if info.mtime_ns else 0
