"""Rows that lack values: what the store holds is read and let go a portion at a time (hazard H102)."""

from __future__ import annotations

from collections.abc import Sequence

import orjson
import pytest

from cdc.record.schema import TableSchema
from cdc.wire.format import UNAVAILABLE
from sinks.contract.batch_plan import IncompleteRows, plan
from sinks.contract.port import StoredRow
from sinks.contract.store import PORTION_BYTES, BatchSlice, Filler
from tests.contract.topics import ORDERS, Shapes, Topic, at, batch


class Held:
    """A store whose rows have given sizes; keeps how many bytes each question brought."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self.asked: list[int] = []
        self.read_bytes: list[int] = []

    def __call__(self, schema: TableSchema, keys: Sequence[str]) -> dict[str, StoredRow]:
        found = {}
        for key in keys:
            row = orjson.dumps({"id": int(key), "status": "x", "note": "n" * self._sizes[int(key)]})
            found[key] = StoredRow(key=key, pos=at(1).text(), row=row)
        self.asked.append(len(keys))
        self.read_bytes.append(sum(len(row.row or b"") for row in found.values()))
        return found


def updates(count: int, whole: int = 0) -> IncompleteRows:
    """Small updates of rows whose note did not change, behind some that are whole."""
    topic = Topic()
    events = [topic.upsert({"id": n, "status": "new", "note": "own"}, at(n + 2)) for n in range(whole)]
    for n in range(whole, count):
        events.append(topic.upsert({"id": n, "status": "new", "note": UNAVAILABLE}, at(n + 2)))
    [readable] = plan(batch(events), Shapes(ORDERS), lambda _table: "").batches
    return readable


def filled(portions: Sequence[BatchSlice]) -> list[int]:
    """The length of each note, in order."""
    return [len(row["note"]) for portion in portions for _, row in sorted(portion.batch.filled.items())]


def test_h102_stored_rows_are_read_and_let_go_by_their_bytes() -> None:
    held = Held([100_000] * 1500)
    sizes = []
    for portion in Filler(held).portions(updates(1500)):
        assert portion.refused == () and portion.stale == 0
        sizes.append(sum(filled([portion])))
    assert sum(sizes) == 150_000_000
    assert max(sizes) <= PORTION_BYTES + 64 * 100_000


@pytest.mark.parametrize("small", [0, 3000])
def test_h102_large_rows_behind_small_ones_are_noticed(small: int) -> None:
    held = Held([10] * small + [100_000] * 3000)
    row_bytes: dict[str, int] = {}
    portions = Filler(held, row_bytes).portions(updates(small + 3000))
    assert sum(filled(list(portions))) == 10 * small + 3000 * 100_000
    assert sum(size > PORTION_BYTES for size in held.read_bytes) <= bool(small)
    asked = len(held.asked)
    assert held.asked[asked - 1] <= PORTION_BYTES // 100_000
    list(Filler(held, row_bytes).portions(updates(small + 100, whole=small)))
    assert held.asked[asked] <= PORTION_BYTES // 100_000, "what was learnt of a table is kept"


def test_h102_one_row_larger_than_a_portion_is_a_portion() -> None:
    held = Held([10] * 64 + [2 * PORTION_BYTES] * 3)
    row_bytes = {ORDERS.topic: 2 * PORTION_BYTES}
    counts = [len(portion.batch) for portion in Filler(held, row_bytes).portions(updates(67, whole=64))]
    assert counts == [64, 1, 1, 1]


def test_small_rows_are_one_portion_by_few_questions() -> None:
    held = Held([100] * 5000)
    [whole, lacking] = Filler(held).portions(updates(5000, whole=1000))
    assert (len(whole.batch), len(lacking.batch)) == (1000, 4000)
    assert len(held.asked) == 6
