"""The state of an Iceberg table and its files, by its snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError
from pyiceberg.manifest import DataFileContent
from pyiceberg.serializers import FromInputFile

from sinks.iceberg.iceberg_upkeep import FileSizes

if TYPE_CHECKING:
    from pyiceberg.table import Table


class Version(NamedTuple):
    """A state of a table. ``snapshot`` 0: of one that has none yet."""

    uuid: str
    snapshot: int
    sequence: int


def version_of(table: Table) -> Version:
    """The state of a table."""
    metadata: Any = table.metadata
    return Version(str(metadata.table_uuid), metadata.current_snapshot_id or 0, metadata.last_sequence_number)


def is_later(table: Table, noted: Version) -> bool:
    """Whether a table came from that state: neither another one, nor one that was gone back with since. Snapshots from
    before may have expired."""
    now = version_of(table)
    if now.uuid != noted.uuid or now.sequence < noted.sequence:
        return False
    snapshot = table.current_snapshot()
    if not noted.snapshot:
        return True
    if snapshot is None:
        return False
    while snapshot.snapshot_id != noted.snapshot:
        sequence, parent = snapshot.sequence_number or 0, snapshot.parent_snapshot_id
        if sequence <= noted.sequence or parent is None:
            return False  # Rows that a statement replaced have no state before.
        before = table.snapshot_by_id(parent)
        if before is None:
            # It has expired. Right behind the noted state can be that one alone.
            behind = sequence > noted.sequence + 1 and not _stood_before(table, noted)
            return parent == noted.snapshot or behind
        snapshot = before
    return True


def _stood_before(table: Table, noted: Version) -> bool:
    """Whether the table stood at a state of before, once it had the noted one: it was gone back with, and the states
    that others wrote upon that have expired. By its former metadata, as far as it is kept."""
    for entry in reversed(table.metadata.metadata_log):
        try:
            former: Any = FromInputFile.table_metadata(table.io.new_input(entry.metadata_file))
        except (OSError, ValidationError):
            return False  # It was removed: what it would say is not known.
        if former.last_sequence_number < noted.sequence:
            return False
        current = former.current_snapshot()
        if current is not None and current.snapshot_id == noted.snapshot:
            return False  # Each one before that had led to it.
        if current is None or (current.sequence_number or 0) < noted.sequence:
            return True
    return False


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
