"""The files of an Iceberg table, by its snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.manifest import DataFileContent

from sinks.iceberg.iceberg_upkeep import FileSizes

if TYPE_CHECKING:
    from pyiceberg.table import Table


def summary_count(table: Table, name: str) -> int | None:
    """A count that the newest snapshot states. 0 in a table without one. None where it does not state it, as it need
    not: that says nothing."""
    current = table.current_snapshot()
    if current is None:
        return 0
    said = current.summary[name] if current.summary is not None else None
    return int(said) if said is not None else None


def file_sizes(table: Table) -> FileSizes:
    """The sizes of its files, by its manifests."""
    snapshot = table.current_snapshot()
    data: list[int] = []
    positions: list[int] = []
    for manifest in snapshot.manifests(table.io) if snapshot is not None else ():
        for entry in manifest.fetch_manifest_entry(table.io):
            sizes = data if entry.data_file.content is DataFileContent.DATA else positions
            sizes.append(entry.data_file.file_size_in_bytes)
    rows, deletes = (summary_count(table, name) or 0 for name in ("total-records", "total-position-deletes"))
    return FileSizes(data=data, positions=positions, rows=rows, deletes=deletes)
