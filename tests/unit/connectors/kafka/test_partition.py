"""Java's partitioner, in three implementations that must agree (H56)."""

from __future__ import annotations

import pytest
from confluent_kafka import murmur2 as native
from hypothesis import given
from hypothesis import strategies as st

from cdc.record.topic_names import murmur2, partition_of

# org.apache.kafka.common.utils.UtilsTest.testMurmur2
JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "hashed"), JAVA.items())
def test_h56_java_vectors(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed & 0xFFFFFFFF
    assert native(key, 1_000_003) == (hashed & 0x7FFFFFFF) % 1_000_003


@given(st.binary(max_size=64), st.integers(1, 500))
def test_h56_the_producing_path_agrees(key: bytes, partitions: int) -> None:
    assert native(key, partitions) == partition_of(key, partitions)
