"""Whose turn it is, and when the two would write other keys."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.operate.handover_rules import key_problems, key_questions, shaping_options
from cdc.process.errors import ConfigError
from cdc.record.progress import Writer, WriterState, require_turn
from cdc.record.schema import Column, Encoding, Identity, TableSchema
from cdc.record.topic_names import TableName


def table(kind: str, *, encoding: Encoding = "readable", identity: Identity = Identity.DEFAULT) -> TableSchema:
    key = Column(name="k", attnum=1, type=kind, type_oid=1, kind=kind, nullable=False, key_position=1)
    return TableSchema(
        table=TableName("public", "t"),
        topic="t",
        version=1,
        oid=1,
        encoding=encoding,
        identity=identity,
        columns=(key,),
    )


@pytest.mark.parametrize("kind", ["int4", "int8", "text", "uuid", "numeric", "timestamptz", "enum", "bytea"])
def test_ordinary_keys_are_the_same_bytes(kind: str) -> None:
    assert key_problems([table(kind)], {"public.t": ["k"]}) == []


@pytest.mark.parametrize(("kind", "rule"), [("name", "D5"), ("float4", "D21"), ("float8", "D21"), ("other", "D2")])
def test_keys_that_are_written_otherwise_are_refused(kind: str, rule: str) -> None:
    (problem,) = key_problems([table(kind)], {"public.t": ["k"]})
    assert f"({rule})" in problem


def test_a_key_of_an_array_or_a_negative_scale_is_refused() -> None:
    for rule, more in (("D7", {"array": True}), ("D8", {"kind": "numeric", "typmod": (4 << 16 | 0x7FE) + 4})):
        shape = table("int4")
        column = replace(shape.columns[0], **more)
        (problem,) = key_problems([replace(shape, columns=(column,))], {"public.t": ["k"]})
        assert f"({rule})" in problem
    assert key_problems([table("hstore")], {"public.t": ["k"]}) != []


def test_a_readable_interval_is_the_same_bytes() -> None:
    assert key_problems([table("interval")], {"public.t": ["k"]}) == []
    assert len(key_problems([table("interval", encoding="debezium")], {"public.t": ["k"]})) == 1


def test_an_identity_index_beside_a_primary_key_is_refused() -> None:
    (problem,) = key_problems([table("int4", identity=Identity.INDEX)], {"public.t": ["id"]})
    assert "D9" in problem
    assert key_problems([table("int4", identity=Identity.INDEX)], {"public.t": ["k"]}) == []


def test_kinds_with_odd_values_ask_the_rows() -> None:
    assert [q.rule for kind in ("numeric", "date", "time", "int4") for q in key_questions([table(kind)])] == [
        "D4",
        "D6",
        "D19",
    ]


def test_options_that_shape_keys_and_topics_are_found() -> None:
    options = ["poll.interval.ms", "message.key.columns", "topic.naming.strategy", "topic.creation.default.partitions"]
    assert shaping_options(options) == ["message.key.columns", "topic.naming.strategy"]


def test_only_the_one_whose_turn_it_is_may_write() -> None:
    require_turn({}, "native")
    require_turn({}, "debezium")
    settled = WriterState(step="done", lsn=0x10, ends={"t": {"0": 7}})
    held = {settled.key(): settled.to_json()}
    require_turn(held, "native")
    with pytest.raises(ConfigError, match="the native capture writes this pipeline's topics since 0/10") as refused:
        require_turn(held, "debezium")
    assert "cdc connect resnapshot" in refused.value.hint
    half = WriterState(step="stopped", lsn=0x10)
    writers: tuple[Writer, Writer] = ("native", "debezium")
    for writer in writers:
        with pytest.raises(ConfigError, match="begun and not finished"):
            require_turn({half.key(): half.to_json()}, writer)
    assert settled.offsets == {"t": {0: 7}}
