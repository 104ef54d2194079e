"""How many documents a change concerns, by statistics of the source."""

from __future__ import annotations

import pytest

from cdc.record.schema import Column, Identity, TableSchema
from cdc.record.topic_names import TableName
from cdc.views.lookups import ColumnStatistics, TableStatistics, fan_outs, state_bytes_of
from cdc.views.view_plan import ViewPlan, planned


def _table(name: str, *columns: str) -> TableSchema:
    return TableSchema(
        table=TableName("public", name),
        topic=name,
        version=1,
        oid=1,
        encoding="readable",
        identity=Identity.DEFAULT,
        columns=tuple(
            Column(name=c, attnum=i, type="int4", type_oid=23, kind="int4", key_position=1 if c == "id" else None)
            for i, c in enumerate(columns, start=1)
        ),
    )


def _plan() -> ViewPlan:
    tables = [_table("orders", "id", "customer_id"), _table("customers", "id", "city_id"), _table("cities", "id", "n")]
    tables += [_table("lines", "id", "order_id"), _table("notes", "id", "order_id", "kind")]
    return planned(
        "select o.id, c.id as customer, t.n, (select count(*) from lines l where l.order_id = o.id) as lines,"
        " (select count(*) from notes x where x.order_id = o.id) as notes"
        " from orders o join customers c on c.id = o.customer_id join cities t on t.id = c.city_id",
        tables,
    )


STATISTICS = {
    TableName("public", "orders"): TableStatistics(
        1000, {"id": ColumnStatistics(1000, 0, 4), "customer_id": ColumnStatistics(100, 0.25, 4)}
    ),
    TableName("public", "customers"): TableStatistics(
        100, {"id": ColumnStatistics(100, 0, 4), "city_id": ColumnStatistics(5, 0.5, 4)}
    ),
    TableName("public", "cities"): TableStatistics(
        5, {"id": ColumnStatistics(5, 0, 4), "n": ColumnStatistics(5, 0, 4)}
    ),
    TableName("public", "lines"): TableStatistics(3000, {"id": ColumnStatistics(3000, 0, 4)}),
}


def test_a_row_that_many_show_concerns_as_many() -> None:
    found = {one.occurrence.alias: (one.usual, one.most) for one in fan_outs(_plan(), STATISTICS)}
    # A customer has 10 orders, the commonest 250. A city has 20 customers, the commonest 50: 50 * 250 at most.
    assert found == {"c": (10, 250), "t": (200, 12_500), "l": (1, 1), "x": (1, 1)}


def test_what_was_never_analyzed_is_left_out() -> None:
    bare = {**STATISTICS, TableName("public", "orders"): TableStatistics(0, {})}
    assert {one.occurrence.alias for one in fan_outs(_plan(), bare)} == {"l", "x"}
    assert {one.occurrence.alias for one in fan_outs(_plan(), {})} == {"l", "x"}
    assert state_bytes_of(_plan(), STATISTICS) is None


@pytest.mark.parametrize("rows", [1_000, 100_000])
def test_the_state_grows_with_the_rows(rows: int) -> None:
    columns = {name: ColumnStatistics(rows, 0, 4) for name in ("id", "customer_id", "city_id", "n", "order_id", "kind")}
    every = {table: TableStatistics(rows, columns) for table in _plan().relations}
    found = state_bytes_of(_plan(), every)
    assert found is not None
    assert 5 * 48 * rows < found < 5 * 150 * rows
