"""The figures of a snapshot: pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from cdc.record.position import Lsn
from cdc.record.state import ChunkState
from snapshot.first.manifest import DONE, Manifest
from snapshot.source.planned_tables import TableForm, block_count


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSummary:
    """A table. ``size_bytes``: of keys and values as records. ``duration_s``: while any chunk of it was read."""

    table: str
    rows: int
    size_bytes: int
    chunks: int
    duration_s: float
    gone: bool = False

    @property
    def rows_per_s(self) -> float:
        """Rows a second, while any chunk of the table was read. 0 for no time."""
        return self.rows / self.duration_s if self.duration_s else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The whole. ``read_s``: while anything was read, earlier runs included. ``elapsed_s``: of this run.

    ``requests``: sentences on tables that have to be read again once the stream has passed ``last_cut_lsn``.
    """

    tables: tuple[TableSummary, ...]
    rows: int
    size_bytes: int
    read_s: float
    elapsed_s: float
    consistent_point: Lsn
    last_cut_lsn: Lsn
    already_complete: bool = False
    requests: tuple[str, ...] = field(default=())

    @property
    def rows_per_s(self) -> float:
        """Rows a second, while anything was read. 0 for no time."""
        return self.rows / self.read_s if self.read_s else 0.0

    def document(self) -> dict[str, Any]:
        """As ``cdc snapshot --json`` prints it."""
        shown = asdict(self)
        shown["consistent_point"] = str(self.consistent_point)
        shown["last_cut_lsn"] = str(self.last_cut_lsn)
        shown["rows_per_s"] = round(self.rows_per_s, 1)
        for table, row in zip(self.tables, shown["tables"], strict=True):
            row["rows_per_s"] = round(table.rows_per_s, 1)
        return shown


def summarise(manifest: Manifest, *, elapsed_s: float, already_complete: bool, requests: Iterable[str]) -> Summary:
    """The figures that the manifest holds. ValueError before its head is written."""
    if manifest.head is None:
        raise ValueError("the snapshot has not begun")
    tables = []
    read: list[ChunkState] = []
    for table in manifest.tables():
        done = [chunk for chunk in manifest.chunks(table) if chunk.state == DONE]
        state = manifest.table(table)
        read += done
        tables.append(
            TableSummary(
                table=table,
                rows=sum(chunk.rows for chunk in done),
                size_bytes=sum(chunk.size_bytes for chunk in done),
                chunks=len(done),
                duration_s=covered_s(done),
                gone=state is not None and state.gone,
            )
        )
    return Summary(
        tables=tuple(tables),
        rows=sum(table.rows for table in tables),
        size_bytes=sum(table.size_bytes for table in tables),
        read_s=covered_s(read),
        elapsed_s=elapsed_s,
        consistent_point=Lsn(manifest.head.consistent_point),
        last_cut_lsn=Lsn(manifest.head.last_cut_lsn),
        already_complete=already_complete,
        requests=tuple(requests),
    )


def covered_s(chunks: Iterable[ChunkState]) -> float:
    """How long at least one of the chunks was being read."""
    covered, end = 0, 0
    for start, finish in sorted((chunk.started_ns, chunk.finished_ns) for chunk in chunks):
        covered += max(finish - max(start, end), 0)
        end = max(end, finish)
    return covered / 1e9


_ALMOST = 0.99


class Tally:
    """How far each table is, from what the manifest has and what the workers are at."""

    def __init__(self, manifest: Manifest, forms: Mapping[str, TableForm]) -> None:
        self._blocks = {(t, str(leaf.table)): leaf.heap_blocks for t, look in forms.items() for leaf in look.leaves}
        self._estimate = {t: look.row_estimate for t, look in forms.items()}
        self._total = {t: sum(map(self._size, manifest.chunks(t))) for t in forms}
        self._done_blocks: dict[str, int] = {}
        self._done_rows: dict[str, int] = {}
        self._under_way: dict[str, dict[int, int]] = {}
        for table in forms:
            for chunk in manifest.chunks(table):
                if chunk.state == DONE:
                    self.done(chunk)

    def reading(self, chunk: ChunkState, rows: int) -> None:
        """A chunk is at its ``rows``-th row."""
        self._under_way.setdefault(chunk.table, {})[chunk.number] = rows

    def done(self, chunk: ChunkState) -> None:
        """A chunk is done, or was."""
        self._under_way.get(chunk.table, {}).pop(chunk.number, None)
        self._done_rows[chunk.table] = self._done_rows.get(chunk.table, 0) + chunk.rows
        self._done_blocks[chunk.table] = self._done_blocks.get(chunk.table, 0) + self._size(chunk)

    def dropped(self, chunk: ChunkState) -> None:
        """A chunk has to be read again."""
        self._under_way.get(chunk.table, {}).pop(chunk.number, None)

    def rows(self, table: str) -> int:
        """How many rows of a table are read, finished chunks and those under way."""
        return self._done_rows.get(table, 0) + sum(self._under_way.get(table, {}).values())

    def share(self, table: str) -> float:
        """Part of the table that is read, by blocks. Inside a chunk by the planner's estimate of rows.

        1.0 only when every chunk is done.
        """
        total, done = self._total.get(table, 0), self._done_blocks.get(table, 0)
        if done >= total:
            return 1.0
        per_block = self._estimate.get(table, 0) / total
        inside = sum(self._under_way.get(table, {}).values()) / per_block if per_block else 0.0
        return min((done + inside) / total, _ALMOST)

    def _size(self, chunk: ChunkState) -> int:
        return block_count(self._blocks.get((chunk.table, chunk.leaf), 0), chunk.low, chunk.high)
