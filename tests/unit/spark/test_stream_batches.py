"""A stream's batches: once each, in their order, and a checkpoint that fits them."""

from __future__ import annotations

import dataclasses

import pytest
from confluent_kafka import murmur2
from pyspark.sql.types import DecimalType, LongType, StringType, StructField, StructType, TimestampType

from cdc.process.errors import ActiveError, ConfigError, PoisonError, TopicError
from cdc.views.known_views import BatchNote
from spark.frames.ports import EventTopic
from spark.streams.checkpoint import checkpoint_folder, is_sound, require_beginning, require_rows
from spark.streams.ports import is_published
from spark.streams.stream_rows import ResultRecords, set_apart_records, shape_of
from spark.streams.verification import Published, compared, rows_of

NOTE = BatchNote(batch=4, cuts=["a", "b"], set_apart={"late": 2})
RESULT = StructType(
    [StructField("start", TimestampType()), StructField("n", LongType()), StructField("sum", DecimalType(12, 2))]
)


def test_e8_a_batch_is_written_once() -> None:
    assert is_published(NOTE, 4, ["a", "b"], "s")
    assert not is_published(NOTE, 5, ["c", "b"], "s")
    assert not is_published(None, 0, ["a"], "s")
    with pytest.raises(TopicError, match="ends elsewhere"):
        is_published(NOTE, 4, ["a", "c"], "s")
    for out_of_turn in (3, 6):
        with pytest.raises(ActiveError, match="is at batch 4"):
            is_published(NOTE, out_of_turn, ["a", "b"], "s")
    assert BatchNote.from_json(NOTE.to_json()) == NOTE
    assert b'"late":{"late":2}' in NOTE.to_json()


def test_e8_a_checkpoint_goes_on_at_its_topics_batch_alone() -> None:
    assert [newest for newest in range(-1, 8) if is_sound(NOTE, range(newest + 1))] == [4, 5]
    assert [newest for newest in range(-1, 3) if is_sound(None, range(newest + 1))] == [-1, 0]
    # The folder was removed under the query, which goes on to write.
    assert not is_sound(NOTE, [5])
    topic = EventTopic(
        topic="t", id="i", partitions=1, starts={0: 0}, ours=True, compacted=False, append_time=False, keep_ms=-1
    )
    require_beginning("s", [topic])
    with pytest.raises(TopicError, match="no longer holds its beginning"):
        require_beginning("s", [topic, dataclasses.replace(topic, starts={0: 1})])
    require_rows("s", [topic])
    with pytest.raises(TopicError, match="a new generation of the stream s lacks what was counted of it"):
        require_rows("s", [topic, dataclasses.replace(topic, starts={0: 1})])
    assert checkpoint_folder("s3a://b/c/", "s", 2) == "s3a://b/c/stream.s.2"
    assert checkpoint_folder("/c", "s", 2) == "/c/stream.s.2"


def test_e8_rows_have_positions_by_batch_and_key() -> None:
    made = ResultRecords("shop", "s", "t", 4, 3, "update", partition=murmur2)
    found = made.rows(6, [('{"k":2}', '{"k":2}'), ('{"k":1}', '{"k":1}')], 9, 9)
    assert [(one.key, dict(one.headers)["pos"]) for one in found] == [
        (b'{"k":1}', b"00000003000000000000003800000001"),
        (b'{"k":2}', b"00000003000000000000003800000002"),
    ]
    rows = rows_of((one.key or b"", one.value, b"x") for one in found)
    assert rows == {'{"k":1}': '{"k":1}', '{"k":2}': '{"k":2}'}
    with pytest.raises(PoisonError, match="two rows of the stream s"):
        made.rows(6, [("{}", "{}"), ("{}", "{}")], 9, 9)
    assert {one.partition for one in made.sweep(1, 9, 9)} == {0, 1, 2, 3}


def test_a_result_is_a_table() -> None:
    shape = shape_of("s", "t", RESULT, ["start"])
    assert [(one.name, one.kind, one.key_position) for one in shape.columns] == [
        ("start", "timestamptz", 1), ("n", "int8", None), ("sum", "numeric", None),
    ]  # fmt: skip
    with pytest.raises(ConfigError, match="key names road"):
        shape_of("s", "t", RESULT, ["road"])
    with pytest.raises(ConfigError, match="no key's"):
        shape_of("s", "t", StructType([StructField("w", RESULT)]), ["w"])
    with pytest.raises(ConfigError, match="two columns a"):
        shape_of("s", "t", StructType([StructField("a", StringType()), StructField("a", StringType())]), ["a"])


def test_e9_what_is_set_apart_stays_as_it_was() -> None:
    one = {
        "topic": "t",
        "partition": 1,
        "offset": 7,
        "pos": "p",
        "at_us": 5,
        "key": None,
        "value": b"v",
        "reason": "late",
    }
    (record,) = set_apart_records("l", 1, 10_000, [one], 2)
    assert (record.topic, record.partition, record.key, record.value) == ("l", 0, None, b"v")
    assert dict(record.headers)["reason"] == b"late"
    assert dict(record.headers)["generation"] == b"2"
    (record,) = set_apart_records("l", 1, 10_000, [one | {"value": b"v" * 9_000}], 2)
    assert (record.value, dict(record.headers)["bytes"]) == (None, b"9000")


def test_e8_a_difference_is_named() -> None:
    found = compared(
        {"a": "1", "b": "2", "c": "0.1"}, Published(rows={"a": "1", "c": "0.2", "d": "4"}, set_apart={}), 9, {"late": 1}
    )
    assert not found.is_clean
    said = list(found.sentences("s"))
    assert said[0] == "s: 3 keys, of 9 events; 1 events are set apart"
    assert said[1:4] == ["s: b is missing", "s: d should not be there", "s: c differs"]
    assert "set apart are {}" in said[4]
    assert compared({"a": "0.1"}, Published(rows={"a": "0.10000000000000001"}, set_apart={}), 1, {}).is_clean
