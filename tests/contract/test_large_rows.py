"""Rows of 100 kB: they are read back some megabytes at a time (hazard H102)."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.contract.port import READ_BYTES, rows_at_once
from tests.contract.orders import SHAPES
from tests.contract.stores import Store
from tests.contract.topics import ORDERS, Topic, at, batch

ROW_BYTES, COUNT = 100_000, 240
IN_MEMORY = ("memory", "folder")


@pytest.mark.slow
@pytest.mark.by_spark("iceberg")
def test_h102_a_scan_of_large_rows_returns_a_few_mb_at_a_time(store: Store) -> None:
    if store.kind in IN_MEMORY:
        pytest.skip("it has its rows in memory")
    chance, topic, sink = random.Random(7), Topic(), store.open()
    for first in range(0, COUNT, 80):
        rows = (
            {"id": n, "status": chance.randbytes(ROW_BYTES // 2).hex(), "note": None} for n in range(first, first + 80)
        )
        assert sink.sink.apply(batch([topic.upsert(row, at(1)) for row in rows]), SHAPES).applied == 80
    sink.sink.show()
    sizes = [(found.num_rows, found.nbytes) for found in sink.reader.scan(ORDERS)]
    assert sum(rows for rows, _ in sizes) == COUNT
    assert max(size for _, size in sizes) <= 2 * READ_BYTES


@given(st.floats(0, 1e12), st.integers(1, 100_000))
def test_h102_rows_at_once_are_one_at_least_and_within_the_bytes(row_bytes: float, most: int) -> None:
    count = rows_at_once(row_bytes, most)
    assert 1 <= count <= most
    assert count == 1 or count * row_bytes <= READ_BYTES
