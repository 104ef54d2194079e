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

from cdc.process.clock import SYSTEM_CLOCK
from sinks.contract.table_places import PlaceStep
from sinks.iceberg.iceberg_columns import OWN_FIELDS, outward, whole_rows
from sinks.iceberg.iceberg_faults import LakeExchanged
from sinks.iceberg.iceberg_table import IcebergTable
from sinks.warehouse.warehouse_rows import place_row
from tests.contract.topics import ORDERS
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


def placed(some: pa.Table, before: bytes | None, after: bytes) -> tuple[pa.Table, PlaceStep]:
    """Rows with the table's place, and the step that it takes."""
    row = whole_rows(outward(place_row(after)), dict(zip(SHAPE.names, SHAPE.types, strict=True)))
    return pa.concat_tables([some, row]), PlaceStep(ORDERS, frozenset((before,)), after)


@pytest.fixture
def twice(catalog: FileCatalog, table: IcebergTable) -> int:
    """Two batches with their places. The snapshot of the first one."""
    table.put(*placed(rows("1", "0", "a"), None, b"one"))
    first = newest(catalog)
    table.put(*placed(rows("2", "1", "b"), b"one", b"two"))
    assert table.place() == b"two"
    return first


def test_h383_a_rollback_behind_the_look_is_noticed(catalog: FileCatalog, table: IcebergTable, twice: int) -> None:
    table.check()
    go_back(foreign(catalog), twice)
    for _ in range(2):
        with pytest.raises(LakeExchanged, match="another state"):
            table.put(*placed(rows("3", "2", "c"), b"two", b"three"))
    assert statuses(catalog) == ["None", "a"]


def test_h383_another_table_is_noticed_by_its_place(catalog: FileCatalog, table: IcebergTable, twice: int) -> None:
    exchange(catalog)
    table.check()
    assert table.place() is None
    with pytest.raises(LakeExchanged):
        table.put(*placed(rows("2", "1", "b"), b"two", b"three"))
    assert statuses(catalog) == []


def test_h383_commits_of_others_are_gone_on_from(catalog: FileCatalog, table: IcebergTable, twice: int) -> None:
    table.check()
    foreign(catalog).append(rows("7", "1", "theirs"))
    assert table.put(*placed(rows("1", "2", "b"), b"two", b"three")) == 2
    table.check()
    assert (statuses(catalog), table.place()) == (["None", "b", "b", "theirs"], b"three")


def test_h383_a_batch_repeated_behind_its_commit_is_taken(table: IcebergTable, twice: int) -> None:
    assert table.put(*placed(rows("2", "1", "b"), b"one", b"two")) == 2
    assert table.place() == b"two"


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
