"""Small updates of rows of 100 kB: what did not change is taken from the store, a portion at a time (hazard H102)."""

from __future__ import annotations

import random

import orjson
import pytest

from cdc.wire.format import UNAVAILABLE
from sinks.contract.store import PORTION_BYTES
from tests.contract.orders import SHAPES
from tests.contract.stores import Store, live
from tests.contract.topics import ORDERS, Topic, at, batch

# Just more than one portion: every store is written all of it three times.
ROW_BYTES, COUNT = 100_000, 340


@pytest.mark.slow
@pytest.mark.parametrize("store", ["redis", "opensearch", "delta", "postgres"], indirect=True)
def test_h102_small_updates_of_large_rows_are_filled_in_portions(store: Store) -> None:
    assert COUNT * ROW_BYTES > PORTION_BYTES
    chance, topic, sink = random.Random(7), Topic(), store.open()
    notes = [chance.randbytes(ROW_BYTES // 2).hex() for _ in range(COUNT)]
    for first in range(0, COUNT, 85):
        rows = [{"id": n, "status": "old", "note": notes[n]} for n in range(first, first + 85)]
        sink.sink.apply(batch([topic.upsert(row, at(1)) for row in rows]), SHAPES)
    small = [topic.upsert({"id": n, "status": "new", "note": UNAVAILABLE}, at(2)) for n in range(COUNT)]
    own = topic.upsert({"id": COUNT, "status": "new", "note": "own"}, at(2))
    done = sink.sink.apply(batch([*small, own]), SHAPES)
    assert (done.applied, done.stale, done.refused) == (COUNT + 1, 0, ())
    assert sink.sink.apply(batch([*small, own]), SHAPES).refused == (), "the same again"
    sink.sink.show()
    shown = {key: orjson.loads(row) for key, row in live(sink, ORDERS).items()}
    assert shown == {str(n): [n, "new", note] for n, note in enumerate([*notes, "own"])}
