"""Which topics a sink can read, by what is noted and by the schema topic."""

from __future__ import annotations

import pytest

from cdc.process.errors import TopicError
from cdc.record.schema import TableSchema
from cdc.record.state import TopicsState
from cdc.record.topic_names import TableName
from connectors.kafka.topic_problems import TopicFacts
from connectors.spark_log.sink_log import known_topics, unraised_partitions
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


def facts(partitions: int) -> dict[str, TopicFacts]:
    return {"t": TopicFacts(topic="t", topic_id="i", partitions=partitions, replication_factor=1, config={})}


def test_h212_added_partitions_are_refused() -> None:
    """A row that moved to another partition would lie below what it was before, for ever."""
    assert unraised_partitions(facts(2), {"t": {"partitions": 2}}) == {"t": 2}
    with pytest.raises(TopicError, match="raised from 2 to 5 partitions, and its records are in order within one"):
        unraised_partitions(facts(5), {"t": {"partitions": 2}})
