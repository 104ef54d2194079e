"""Topic names and partitions."""

import confluent_kafka
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.record.position import Lsn
from cdc.record.topic_names import (
    TableName,
    collisions,
    dead_topic,
    murmur2,
    partition_of,
    progress_topic,
    reserved_topics,
    schema_topic,
    starred,
    state_topic,
    table_topic,
)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_h56_murmur2_is_javas(data: bytes, expected: int) -> None:
    """Vectors of Kafka's own UtilsTest.testMurmur2."""
    assert murmur2(data) == expected & 0xFFFFFFFF


@given(st.binary(min_size=1, max_size=40), st.integers(1, 200))
def test_h56_the_partition_equals_librdkafkas_murmur2(key: bytes, count: int) -> None:
    assert partition_of(key, count) == confluent_kafka.murmur2(key, count)


@given(st.text(min_size=1), st.text(min_size=1))
def test_a_topic_name_has_only_what_kafka_takes(schema: str, table: str) -> None:
    topic = table_topic("shop", TableName(schema, table))
    assert topic.startswith("shop.")
    assert all(c.isascii() and (c.isalnum() or c in "._-") for c in topic)


def test_two_tables_on_one_topic_are_named() -> None:
    names = [TableName("public", "a b"), TableName("public", "a_b"), TableName("public", "c")]
    found = collisions("shop", [(t, table_topic("shop", t)) for t in names])
    assert found == ["the tables public.a b and public.a_b would share the topic shop.public.a_b"]


def test_a_reserved_name_and_a_name_too_long_are_refused() -> None:
    table = TableName("x", "y")
    assert "reserved" in collisions("shop", [(table, "shop.state")])[0]
    assert "longer" in collisions("shop", [(table, "t" * 250)])[0]
    assert "shop.progress" in reserved_topics("shop")


def test_the_pipelines_own_topics() -> None:
    own = [state_topic("shop"), schema_topic("shop"), progress_topic("shop"), dead_topic("shop")]
    assert own == ["shop.state", "shop.schema", "shop.progress", "shop.dead"]
    assert reserved_topics("shop") == {*own, "shop.views", "shop.message"}


def test_the_longest_name_that_kafka_takes() -> None:
    table = TableName("x", "y")
    assert collisions("shop", [(table, "t" * 249)]) == []
    assert len(collisions("shop", [(table, "t" * 250)])) == 1


@pytest.mark.parametrize(
    ("text", "meets", "not_met"),
    [
        ("a*b*c", ["abc", "axbxc", "abcbc", "abbc"], ["ab", "abcx", "ac"]),
        ("*", ["", "anything\nat all"], []),
        ("a*", ["a", "ab"], ["ba"]),
        ("*_log", ["_log", "web_log_log"], ["log", "_logs"]),
        ("a**b", ["ab", "axb"], ["a"]),
        ("a.b", ["a.b"], ["axb"]),
    ],
)
def test_a_star_is_any_characters(text: str, meets: list[str], not_met: list[str]) -> None:
    assert all(starred(text).fullmatch(name) for name in meets)
    assert not any(starred(text).fullmatch(name) for name in not_met)


def test_an_lsn_is_formatted_as_a_number_when_asked() -> None:
    assert f"{Lsn(0x16B3D48):016x}" == "00000000016b3d48"
