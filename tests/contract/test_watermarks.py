"""What a store says of itself, over every store."""

from __future__ import annotations

from cdc.progress import Watermark
from tests.contract.orders import SHAPES, order
from tests.contract.stores import Store
from tests.contract.topics import ORDERS, Topic, at, batch


def test_a_watermark_is_read_back_as_written(store: Store) -> None:
    sink = store.open()
    assert sink.watermarks.read() is None
    mark = Watermark(epoch=2, lsn=0x16B3D48, offsets={"shop.public.orders": {0: 17, 11: 2**40}})
    sink.sink.apply(batch(Topic().upsert(order(1), at(1))), SHAPES)
    sink.commit(mark)
    assert sink.watermarks.read() == mark
    later = Watermark(epoch=2, lsn=0x16B3D50, offsets=mark.offsets)
    sink.watermarks.write(later)
    assert store.open().watermarks.read() == later


def test_a_commit_shows_the_rows_to_others(store: Store) -> None:
    sink, other = store.open(), store.open()
    sink.sink.apply(batch(Topic().upsert(order(1), at(1))), SHAPES)
    sink.commit(Watermark(epoch=1, lsn=8))
    assert [row["key"] for found in other.reader.scan(ORDERS) for row in found.to_pylist()] == ["1"]
