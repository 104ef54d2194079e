"""Whether an Iceberg table came from a state that was noted, by its snapshots alone."""

from __future__ import annotations

import uuid

import pytest
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from sinks.iceberg.iceberg_snapshots import Version, is_later

IDENTITY = uuid.UUID(int=7)
NOTED = Version(str(IDENTITY), 3, 3)


def _table(*snapshots: tuple[int, int | None, int]) -> Table:
    """``snapshots``: the number of each, that of the one before it, and its sequence number. The last is current."""
    known = [
        Snapshot(
            snapshot_id=number,
            parent_snapshot_id=parent,
            sequence_number=sequence,
            timestamp_ms=sequence,
            manifest_list="",
            summary=Summary(Operation.APPEND),
        )
        for number, parent, sequence in snapshots
    ]
    metadata = TableMetadataV2(
        location="file:///t",
        table_uuid=IDENTITY,
        last_column_id=0,
        schemas=[Schema()],
        current_schema_id=0,
        partition_specs=[PartitionSpec()],
        snapshots=known,
        current_snapshot_id=known[-1].snapshot_id,
        last_sequence_number=known[-1].sequence_number or 0,
    )
    return Table(("n", "t"), metadata, "", PyArrowFileIO(), NoopCatalog("none"))


@pytest.mark.parametrize(
    ("snapshots", "later"),
    [
        ([(3, 2, 3)], True),
        ([(3, 2, 3), (4, 3, 4), (5, 4, 5)], True),
        ([(5, 4, 5)], True),
        ([(4, 3, 4)], True),
        ([(3, 2, 3), (4, None, 4), (5, 4, 5)], False),
        ([(3, 2, 3), (4, None, 5)], False),
        ([(4, 1, 4)], False),
        ([(1, None, 1), (3, 2, 3), (4, 1, 4)], False),
    ],
    ids=[
        "the same",
        "behind it",
        "those between expired",
        "right behind it, that expired",
        "replaced, and written to",
        "replaced later",
        "of an older one, those between expired",
        "of an older one",
    ],
)
def test_h485_a_table_came_from_a_noted_state_or_not(snapshots: list[tuple[int, int | None, int]], later: bool) -> None:
    assert is_later(_table(*snapshots), NOTED) is later
