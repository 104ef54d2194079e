"""What a store says of itself, over every store."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from cdc.freshness.rules import NotShown, WaitUseless
from cdc.process.errors import DamagedError, Exit, FormatError, Retry
from cdc.record.progress import Watermark
from cdc.record.source_lineage import SourceLineage
from cdc.record.tokens import Token
from sinks.contract.attempt_limits import looking
from sinks.contract.memory_store import MemoryStore
from sinks.contract.store_freshness import StoreFreshness
from sinks.contract.store_notes import WATERMARK, KeptColumns
from tests.contract.orders import SHAPES, order
from tests.contract.stores import Store
from tests.contract.topics import ORDERS, Topic, at, batch
from tests.waiting import TIME_SCALE


@pytest.mark.by_spark("iceberg")
def test_a_watermark_is_read_back_as_written(store: Store) -> None:
    sink = store.open()
    assert sink.watermarks.read() is None
    lacking = {"shop.public.orders": 'public.orders is set aside, and lacks changes: "it" waits'}
    mark = Watermark(epoch=2, lsn=0x16B3D48, offsets={"shop.public.orders": {0: 17, 11: 2**40}}, aside=lacking)
    sink.sink.apply(batch(Topic().upsert(order(1), at(1))), SHAPES)
    sink.commit(mark)
    assert sink.watermarks.read() == mark
    later = Watermark(epoch=2, lsn=0x16B3D50, offsets=mark.offsets)
    sink.watermarks.write(later)
    assert store.open().watermarks.read() == later


def test_a_token_is_waited_for_by_the_store_alone(store: Store) -> None:
    mark = Watermark(epoch=2, lsn=0x50, lineage=SourceLineage("7301444403801980345", 2, ((1, 0x40),)))
    store.open().commit(mark)
    assert store.open().watermarks.read() == mark
    if store.spec is None:
        return  # nobody else can open the one in memory
    with StoreFreshness.of(store.spec, "the store") as freshness:
        for shown in ("2:0/50", "1:0/40"):
            token = Token.parse(f"7301444403801980345/{shown}")
            assert freshness.wait(token, timeout_s=20 * TIME_SCALE) == mark
        for unknown in ("7301444403801980345/2:0/51", "7301444403801980346/2:0/1", "7301444403801980345/3:0/1"):
            with pytest.raises(NotShown):
                freshness.wait(Token.parse(unknown), timeout_s=0.1)
        with pytest.raises(WaitUseless, match="a promotion left"):
            freshness.wait(Token.parse("7301444403801980345/1:0/41"), timeout_s=20 * TIME_SCALE)


def test_a_commit_shows_the_rows_to_others(store: Store) -> None:
    sink, other = store.open(), store.open()
    sink.sink.apply(batch(Topic().upsert(order(1), at(1))), SHAPES)
    sink.commit(Watermark(epoch=1, lsn=8))
    assert [row["key"] for found in other.reader.scan(ORDERS) for row in found.to_pylist()] == ["1"]


class _Moved(Exception):
    """What a check finds."""


def test_h162_the_place_is_checked_behind_the_rows_shown(store: Store) -> None:
    sink, mark = store.open(), Watermark(epoch=1, lsn=8)
    sink.commit(mark)
    sink.sink.apply(batch(Topic().upsert(order(1), at(1))), SHAPES)
    seen: list[object] = []

    def check() -> None:
        if not sink.transactional:
            seen.extend(row["key"] for found in store.open().reader.scan(ORDERS) for row in found.to_pylist())
        raise _Moved

    with pytest.raises(_Moved):
        sink.commit(Watermark(epoch=1, lsn=16), check)
    assert seen == ([] if sink.transactional else ["1"])
    assert store.open().watermarks.read() == mark


@pytest.mark.parametrize(
    "text",
    [
        b"7",
        b"[]",
        b"{}",
        b'{"epoch":1}',
        b'"text"',
        b'{"offsets":7,"epoch":1,"lsn":2}',
        b'{"offsets":{"t":{"0":-1}},"epoch":1,"lsn":2}',
        b'{"offsets":{},"epoch":1,"lsn":-2}',
        b'{"offsets":{},"epoch":-1,"lsn":2}',
        b'{"offsets":{},"epoch":1,"lsn":2,"level_ms":-1}',
    ],
)
def test_h101_a_watermark_by_somebody_else_s_hand_claims_nothing(text: bytes) -> None:
    store = MemoryStore(notes={WATERMARK: text})
    opened = store.open()
    assert opened.watermarks.read() is None
    opened.commit(Watermark(epoch=1, lsn=8))
    assert opened.watermarks.read() == Watermark(epoch=1, lsn=8)


@pytest.mark.parametrize(
    "text", [b"{", b"7", b"[]", b"{}", b'{"floor":"","sweeps":7}', b'{"floor":"","sweeps":{"a":[]}}']
)
def test_h113_a_floor_written_by_hand_is_refused_in_a_sentence(text: bytes) -> None:
    opened = MemoryStore(notes={'floor:["public","orders"]': text}).open()
    with pytest.raises(DamagedError, match="a table's floor in the store") as refused:
        opened.sink.apply(batch(Topic().upsert(order(1), at(1))), SHAPES)
    assert (refused.value.exit, refused.value.retry) == (Exit.POISON, Retry.NEVER)


@pytest.mark.parametrize("text", [b"{", b"7", b"[[]]", b'[{"id":1}]'])
def test_h113_columns_made_by_hand_are_refused_in_a_sentence(text: bytes) -> None:
    with pytest.raises(DamagedError, match="a table's columns"):
        KeptColumns(_Noted({'columns:["public","orders"]': text})).of(ORDERS.table)


class _Noted(dict[str, bytes]):
    """:class:`sinks.contract.store_notes.Notes` in a dict."""

    def read(self) -> Mapping[str, bytes]:
        return self

    def write(self, name: str, text: bytes) -> None:
        self[name] = text


class _Grown(Watermark):
    """As a later version writes it: with a member more, and in a format that this one does not know."""

    def to_json(self) -> bytes:
        return super().to_json().replace(b'"format":1', b'"format":9,"later":[1]')


class _Wider(Watermark):
    """With a member more, in today's format."""

    def to_json(self) -> bytes:
        return super().to_json().replace(b'"format":1', b'"format":1,"later":[1]')


class _Damaged(Watermark):
    """With an LSN that is no number."""

    def to_json(self) -> bytes:
        return super().to_json().replace(b'"lsn":8', b'"lsn":"8"')


@pytest.mark.by_spark("iceberg")
def test_h113_a_newer_watermark_is_refused_by_each_store(store: Store) -> None:
    sink = store.open()
    sink.watermarks.write(_Wider(epoch=1, lsn=8))
    assert sink.watermarks.read() == Watermark(epoch=1, lsn=8)
    sink.watermarks.write(_Grown(epoch=1, lsn=8))
    with pytest.raises(FormatError) as refused:
        store.open().watermarks.read()
    assert refused.value.exit is Exit.FORMAT
    sink.watermarks.write(_Damaged(epoch=1, lsn=8))
    assert store.open().watermarks.read() is None
    with looking(), pytest.raises(DamagedError, match="the watermark in the store"):
        store.open().watermarks.read()
