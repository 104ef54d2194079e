"""The registry of shapes, on a topic in memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.errors import ConfigError
from cdc.schema import TableSchema
from cdc.testing import MemoryCompactedTopic
from connectors.kafka.schema_registry import EmbeddedShapes, SchemaRegistry
from tests.unit.connectors.postgres import written as w


def shape(name: str, *more: str) -> TableSchema:
    return w.table(w.column("id", "int4", 0), *(w.column(column, "text") for column in more), name=name)


def test_many_shapes_are_one_write_of_the_new_ones() -> None:
    topic = MemoryCompactedTopic()
    registry = SchemaRegistry(topic)
    known = registry.register_all([shape("a"), shape("b", "v")])
    assert [schema.version for schema in known] == [1, 1]
    assert topic.writes == 1
    again = registry.register_all([shape("a"), shape("b", "v", "n"), shape("c")])
    assert [schema.version for schema in again] == [1, 2, 1]
    registry.register_all([shape("a"), shape("c")])
    assert topic.writes == 2
    assert len(topic.read()) == 4
    assert SchemaRegistry(topic).versions() == registry.versions()


def test_a_shape_that_comes_with_records_keeps_its_first_number() -> None:
    topic = MemoryCompactedTopic()
    shapes = EmbeddedShapes(SchemaRegistry(topic))
    old, new = shape("a"), shape("a", "v")
    assert shapes.version(old.topic, None) == 0
    assert [shapes.version(old.topic, one) for one in (old, new, old, new)] == [1, 2, 1, 2]
    assert shapes.version(old.topic, None) == 2
    assert topic.writes == 2


def test_a_shape_written_by_another_is_read_before_a_write() -> None:
    topic = MemoryCompactedTopic()
    mine, other = EmbeddedShapes(SchemaRegistry(topic)), EmbeddedShapes(SchemaRegistry(topic))
    assert other.version("shop.public.a", shape("a")) == mine.version("shop.public.a", shape("a")) == 1
    assert topic.writes == 1


def test_h230_a_shape_with_another_key_is_known_as_that() -> None:
    topic = MemoryCompactedTopic()
    shapes = EmbeddedShapes(SchemaRegistry(topic))
    old, wider = shape("a"), shape("a", "v")
    other = replace(wider, columns=tuple(replace(c, key_position=n) for n, c in enumerate(wider.columns, 1)))
    assert not shapes.rekeys(old.topic, old), "nothing is known of the table"
    shapes.version(old.topic, old)
    late = EmbeddedShapes(SchemaRegistry(topic))
    assert not late.rekeys(old.topic, wider)
    assert late.rekeys(old.topic, other)
    late.version(old.topic, other)
    assert shapes.version(old.topic, other) == 2
    assert not shapes.rekeys(old.topic, other)
    assert shapes.rekeys(old.topic, wider), "as where the former key comes back"


def test_h236_a_key_that_comes_back_becomes_the_newest() -> None:
    topic = MemoryCompactedTopic()
    shapes, late = EmbeddedShapes(SchemaRegistry(topic)), EmbeddedShapes(SchemaRegistry(topic))
    old = shape("a", "v")
    other = replace(old, columns=tuple(replace(c, key_position=n) for n, c in enumerate(old.columns, 1)))
    assert [shapes.version(old.topic, one, key=one.key_form) for one in (old, other)] == [1, 2]
    assert shapes.version(old.topic, old) == 1, "as a rebuild reads it"
    assert shapes.version(old.topic, old, key=old.key_form) == 3
    assert not shapes.rekeys(old.topic, old)
    # Whoever knew less reads before it writes.
    assert [late.version(old.topic, old, key=old.key_form), late.version(old.topic, other)] == [3, 2]
    assert topic.writes == 3


def test_w1_a_key_that_is_written_otherwise_is_another_one() -> None:
    """A topic of a former version has the key in a form that several values share: it is read anew first."""
    registry = SchemaRegistry(MemoryCompactedTopic())
    before = w.table(replace(w.column("at", "timetz", 0), type="time with time zone"), name="a")
    (column,) = before.columns
    after = replace(before, columns=(replace(column, kind="other"),))
    registry.register(before)
    with pytest.raises(ConfigError, match=r"public\.a \(at time with time zone\) is written otherwise now"):
        registry.register(after)
    assert registry.register(after, new_key=True).version == 2
