"""Shapes, progress and state documents read back what they wrote."""

from dataclasses import replace
from typing import Any

import pytest

from cdc.record.progress import Progress, Watermark
from cdc.record.schema import Column, Identity, TableSchema
from cdc.record.state import ChunkState, SlotState, TopicsState
from cdc.record.topic_names import TableName

ORDERS = TableSchema(
    table=TableName("public", "order items"),
    topic="shop.public.order_items",
    version=3,
    oid=16400,
    encoding="readable",
    identity=Identity.DEFAULT,
    columns=(
        Column(name="line", attnum=2, type="int4", type_oid=23, kind="int4", nullable=False, key_position=2),
        Column(name="id", attnum=1, type="int8", type_oid=20, kind="int8", nullable=False, key_position=1),
        Column(name="tags", attnum=3, type="_text", type_oid=1009, kind="text", array=True),
    ),
)


def test_a_schema_reads_back() -> None:
    assert TableSchema.from_json(ORDERS.to_json()) == ORDERS


def test_the_key_stands_in_key_order() -> None:
    assert [c.name for c in ORDERS.key] == ["id", "line"]


def test_the_version_alone_makes_no_other_shape() -> None:
    assert ORDERS.same_shape(replace(ORDERS, version=9))
    assert not ORDERS.same_shape(replace(ORDERS, identity=Identity.FULL))


def test_the_keys_form_is_what_its_bytes_in_the_topic_depend_on() -> None:
    def with_id(**changes: Any) -> TableSchema:
        line, id_, tags = ORDERS.columns
        return replace(ORDERS, columns=(line, replace(id_, **changes), tags))

    assert with_id(kind="int4", type="int4", type_oid=23).key_form == ORDERS.key_form
    assert with_id(attnum=7, nullable=True).key_form == ORDERS.key_form
    for changes in ({"name": "ident"}, {"kind": "text"}, {"key_position": None}, {"key_position": 3}):
        assert with_id(**changes).key_form != ORDERS.key_form


@pytest.mark.parametrize(
    ("typmod", "precision", "scale"),
    [(-1, None, None), ((10 << 16 | 2) + 4, 10, 2), ((5 << 16 | (-3 & 0x7FF)) + 4, 5, -3), ((1000 << 16) + 4, 1000, 0)],
)
def test_numeric_precision_and_scale_come_from_the_typmod(
    typmod: int, precision: int | None, scale: int | None
) -> None:
    column = Column(name="n", attnum=1, type="numeric", type_oid=1700, kind="numeric", typmod=typmod)
    assert (column.precision, column.scale) == (precision, scale)


def test_lengths_and_fractions_come_from_the_typmod() -> None:
    def precision(kind: str, typmod: int) -> int | None:
        return Column(name="c", attnum=1, type=kind, type_oid=1, kind=kind, typmod=typmod).precision

    assert precision("bpchar", 14) == 10
    assert precision("timestamp", 3) == 3
    assert precision("bit", 5) == 5
    assert precision("interval", 0x7FFF0003) == 3


def test_progress_reads_back() -> None:
    progress = Progress(epoch=1, lsn=2**40, offsets={"a": {0: 5, 11: 7}})
    assert Progress.from_json(progress.to_json()) == progress


def test_a_watermark_reads_back() -> None:
    watermark = Watermark(epoch=2, lsn=9, offsets={"t": {1: 2}}, topic_ids={"t": "a1"})
    assert Watermark.from_json(watermark.to_json()) == watermark


def test_state_documents_read_back_and_have_keys_of_their_own() -> None:
    slot = SlotState(
        epoch=1,
        system_identifier="7440000000000000001",
        timeline=1,
        database="shop",
        database_oid=5,
        slot="cdc_shop",
        publication="cdc_shop",
        consistent_point=24,
    )
    topics = TopicsState(cluster_id="c", topics={"t": {"id": "x", "partitions": 4}}, tables={"public.a": "t"})
    one = ChunkState(table="public.a", leaf="public.a", number=1, filenode=7, low=0, high=10)
    two = replace(one, number=2)
    assert SlotState.from_json(slot.to_json()) == slot
    assert TopicsState.from_json(topics.to_json()) == topics
    assert ChunkState.from_json(one.to_json()) == one
    assert len({slot.key(), topics.key(), one.key(), two.key()}) == 4
