from __future__ import annotations

from dataclasses import replace

from cdc.record.topic_names import TableName
from snapshot.source.planned_tables import form_change, largest_first
from tests.unit.snapshot.source.example_forms import BLOCK, leaf, look


def test_h71_a_change_that_no_event_tells_is_seen_in_the_form() -> None:
    planned = look(leaf(1, 10), leaf(2, 10))
    assert form_change(planned, look(leaf(2, 99), leaf(1, 0))) is None, "sizes and order say nothing"
    assert form_change(planned, look(leaf(1, 10), leaf(2, 10, filenode=77))) == "was rewritten or truncated"
    assert form_change(planned, look(leaf(1, 10))) == "has other partitions now"
    assert form_change(planned, look(leaf(1, 10), leaf(2, 10), leaf(3, 1))) == "has other partitions now"
    assert form_change(planned, replace(planned, oid=9)) == "was dropped and made anew"
    assert form_change(planned, replace(planned, version=2)) == "has other columns now"
    renamed = replace(leaf(2, 10), table=TableName("public", "leaf2_old"))
    assert form_change(planned, look(leaf(1, 10), renamed)) == "has renamed partitions now"


def test_big_tables_are_read_first() -> None:
    small, large, equal = look(leaf(1, 1), name="b"), look(leaf(2, 9), name="c"), look(leaf(3, 1), name="a")
    assert largest_first([small, large, equal]) == [large, equal, small]


def test_a_table_is_as_large_as_its_leaves() -> None:
    table = look(replace(leaf(1, 10), row_estimate=7), replace(leaf(2, 1), row_estimate=5), leaf(3, 1))
    assert (table.size_bytes, table.row_estimate) == (12 * BLOCK, 12), "of one the planner says nothing"
    assert (look().size_bytes, look().row_estimate) == (0, 0)
