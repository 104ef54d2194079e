"""Which topics a sink can read, by what is noted and by the schema topic."""

from __future__ import annotations

from cdc.schema import TableSchema
from cdc.state import TopicsState
from cdc.topic import TableName
from connectors.sink_log import known_topics
from tests.unit.connectors.postgres import written as w

A, B = TableName("public", "a"), TableName("public", "b")
NOTED = TopicsState(cluster_id="c", topics={}, tables={"public.a": "shop.public.a", "public.b": "shop.public.b"})


def shape(name: str) -> TableSchema:
    return w.table(w.column("id", "int4", 0), name=name)


def test_a_table_is_read_once_its_shape_is_known() -> None:
    shapes = [shape("a"), shape("dropped")]
    assert known_topics(NOTED, shapes, embedded=False) == {A: "shop.public.a"}


def test_shapes_that_come_with_the_records_are_not_waited_for() -> None:
    assert known_topics(NOTED, [], embedded=True) == {A: "shop.public.a", B: "shop.public.b"}
