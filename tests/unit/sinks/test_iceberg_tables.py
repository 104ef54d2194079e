"""An Iceberg table without Spark, in a catalog in a file: what others did to it between a look and a commit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.table.update import AddSnapshotUpdate

from cdc.clock import SYSTEM_CLOCK
from sinks.iceberg.iceberg_columns import OWN_FIELDS, whole_rows
from sinks.iceberg.iceberg_faults import LakeRemoved
from sinks.iceberg.iceberg_snapshots import is_later, version_of
from sinks.iceberg.iceberg_table import IcebergTable
from tests.lakes import FileCatalog, go_back

SHAPE = pa.schema([("status", pa.string()), *OWN_FIELDS])


class TableWithoutSpark(IcebergTable):
    """Also in a process where other tests have started one."""

    def _beside_spark(self) -> bool:
        return False


def no_spark() -> NoReturn:
    raise AssertionError("Spark is asked for")


def without_spark(catalog: FileCatalog) -> IcebergTable:
    made = TableWithoutSpark(catalog, "orders", SYSTEM_CLOCK, no_spark)
    made.create(SHAPE)
    return made


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[FileCatalog]:
    with closing(FileCatalog(tmp_path)) as opened:
        yield opened


@pytest.fixture
def table(catalog: FileCatalog) -> IcebergTable:
    return without_spark(catalog)


def rows(key: str, pos: str, status: str) -> pa.Table:
    given: dict[str, Any] = {"status": [status], "cdc_key": [key], "cdc_pos": [pos], "cdc_deleted": [False]}
    return whole_rows(pa.table(given), dict(zip(SHAPE.names, SHAPE.types, strict=True)))


def foreign(catalog: FileCatalog) -> Table:
    found = catalog.load("shop", "orders")
    assert found is not None
    return found


def statuses(catalog: FileCatalog) -> list[str]:
    return sorted(map(str, foreign(catalog).scan().to_arrow()["status"].to_pylist()))


def newest(catalog: FileCatalog) -> int:
    current = foreign(catalog).current_snapshot()
    assert current is not None
    return current.snapshot_id


def exchange(catalog: FileCatalog) -> None:
    """Another table takes the place of orders."""
    catalog.opened.drop_table(("shop", "orders"))
    without_spark(catalog)


def test_h383_a_rollback_behind_the_look_is_noticed(catalog: FileCatalog, table: IcebergTable) -> None:
    table.put(rows("1", "0", "a"))
    first = newest(catalog)
    table.put(rows("2", "1", "b"))
    table.check()
    before = table.version
    go_back(foreign(catalog), first)
    for _ in range(2):
        with pytest.raises(LakeRemoved, match="an older state"):
            table.put(rows("3", "2", "c"))
        assert table.version == before, "the next watermark notes what it speaks of"
    with pytest.raises(LakeRemoved):
        table.exists()
    assert statuses(catalog) == ["a"]


def test_h383_a_rollback_between_two_lots_is_noticed(catalog: FileCatalog, table: IcebergTable) -> None:
    """A commit's answer brings pyiceberg's own repetitions back, which would commit upon the older state."""
    table.put(rows("1", "0", "a"))
    first = newest(catalog)
    table.put(rows("2", "1", "b"))
    go_back(foreign(catalog), first)
    with pytest.raises(LakeRemoved):
        table.put(rows("3", "2", "c"))
    assert statuses(catalog) == ["a"]


def test_h383_another_table_is_noticed_by_every_look(catalog: FileCatalog, table: IcebergTable) -> None:
    table.put(rows("1", "0", "a"))
    exchange(catalog)
    table._reopen()
    with pytest.raises(LakeRemoved, match="another Iceberg table"):
        table.exists()
    with pytest.raises(LakeRemoved):
        table.put(rows("2", "1", "b"))
    assert statuses(catalog) == []


def test_h383_commits_of_others_are_gone_on_from(catalog: FileCatalog, table: IcebergTable) -> None:
    table.put(rows("1", "0", "a"))
    table.check()
    foreign(catalog).append(rows("2", "1", "theirs"))
    assert table.put(rows("1", "2", "b")) == 1
    table.check()
    assert statuses(catalog) == ["b", "theirs"]
    assert table.version is not None
    assert table.version.snapshot == newest(catalog)


def without_totals(table: Table, added: pa.Table) -> None:
    """A commit whose summary states no totals, which are optional."""
    with table.transaction() as change:
        change.append(added)
        for one in change._updates:
            if isinstance(one, AddSnapshotUpdate) and one.snapshot.summary is not None:
                stated = one.snapshot.summary._additional_properties
                for name in [name for name in stated if name.startswith("total-")]:
                    del stated[name]


def test_h384_a_summary_without_totals_is_no_empty_table(catalog: FileCatalog, table: IcebergTable) -> None:
    table.put(rows("1", "0", "a"))
    without_totals(foreign(catalog), rows("9", "0", "theirs"))
    summary = foreign(catalog).metadata.snapshots[-1].summary
    assert summary is not None
    assert summary["total-records"] is None
    table.check()
    assert table.row_bytes() == 0.0
    assert table.put(rows("1", "1", "b")) == 1
    assert statuses(catalog) == ["b", "theirs"]


def test_h384_rows_below_a_floor_go_without_totals(catalog: FileCatalog, table: IcebergTable) -> None:
    table.put(rows("1", "5", "a"))
    without_totals(foreign(catalog), rows("9", "0", "theirs"))
    table.check()
    table.remove_below("3")
    assert statuses(catalog) == ["a"]


def expired(catalog: FileCatalog) -> Table:
    """The table once all states but the newest have expired by Spark, which keeps the number of the one before."""
    found = foreign(catalog)
    kept = found.metadata.model_copy(update={"snapshots": [found.current_snapshot()]})
    return Table(found.name(), kept, found.metadata_location, found.io, catalog.opened)


@pytest.mark.parametrize("gone", [True, False])
def test_h506_a_rollback_that_others_wrote_upon_is_noticed(
    catalog: FileCatalog, table: IcebergTable, gone: bool
) -> None:
    """Twice, and the states between have expired. What others wrote upon the noted state does no harm."""
    table.put(rows("1", "0", "a"))
    first = newest(catalog)
    table.put(rows("2", "1", "b"))
    noted = version_of(foreign(catalog))
    if gone:
        go_back(foreign(catalog), first)
    for _ in range(3):
        theirs = foreign(catalog)
        theirs.append(theirs.scan().to_arrow().slice(0, 1))
    assert is_later(foreign(catalog), noted) is not gone
    assert is_later(expired(catalog), noted) is not gone
    for entry in foreign(catalog).metadata.metadata_log:
        Path(entry.metadata_file.removeprefix("file://")).unlink()
    assert is_later(expired(catalog), noted), "of what is not kept nobody knows"
