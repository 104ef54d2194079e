"""A batch that is joined with a history ends where the store shows it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cdc.process.errors import SinkError, TopicError
from cdc.record.position import Position
from cdc.record.progress import Hold, Watermark
from sinks.contract.sink_spec import SinkSpec
from sinks.contract.table_places import TablePlace
from spark.frames.event_cuts import EventCut
from spark.frames.history_watermarks import STILL_S, HeldCuts, HistoryWatermark, KeptHistory, behind, shown_up_to
from spark.frames.pickled_source import told
from spark.streams.past_join import refusal_in
from tests.contract.topics import ORDERS

SPEC = SinkSpec(
    kind="delta",
    opener="sinks.delta.delta_store:open_delta",
    prefix="shop",
    options={"path": "lake"},
    secrets={"storage.key": "hunter2"},
    references={"storage.key": "env:KEY"},
)
HISTORY = KeptHistory(sink="lake", spec=SPEC, shape=ORDERS)
TOPIC = HISTORY.kept.topic
BEGINNING = EventCut(offsets={}, floors={})


def pos(lsn: int, seq: int = 0, epoch: int = 1) -> str:
    return Position(epoch, lsn, seq).text()


def cut(lsn: int, ahead: int = 0) -> EventCut:
    """A cut of this LSN. ``ahead``: of an event below its offsets that lies above it."""
    return EventCut(offsets={0: lsn}, at_us=lsn, floors={0: pos(lsn), 1: pos(ahead, 1) if ahead else pos(lsn)})


def test_e11_a_store_shows_what_it_claims_and_has() -> None:
    mark = Watermark(epoch=2, lsn=64, offsets={TOPIC: {0: 5, 1: 0}})
    place = TablePlace(topic_id="id", offsets={0: 5})
    assert shown_up_to(mark, place, TOPIC) == pos(64, epoch=2)
    assert shown_up_to(None, place, TOPIC) == ""
    assert shown_up_to(mark, place, "shop.public.other.history") == ""
    # The table was taken away, or back, behind the watermark.
    assert shown_up_to(mark, None, TOPIC) == ""
    assert shown_up_to(mark, TablePlace(topic_id="id", offsets={0: 4}), TOPIC) == ""
    held = Watermark(epoch=2, lsn=64, offsets=mark.offsets, held={TOPIC: Hold(table="public.orders", reason="x")})
    assert shown_up_to(held, place, TOPIC) == ""


def test_e11_a_batch_waits_for_the_watermark() -> None:
    held = HeldCuts(HISTORY)
    assert held.given(cut(8), BEGINNING, pos(7), 0) is BEGINNING
    # Of the one that was held, though newer ones come meanwhile.
    first = held.given(cut(16), BEGINNING, pos(8), 1)
    assert first.offsets == {0: 8}
    assert held.given(cut(24), first, pos(15), 2) is first
    second = held.given(cut(24), first, pos(16), 3)
    assert second.offsets == {0: 16}
    # At once where the newest is shown.
    assert held.given(cut(32), second, pos(32), 4).offsets == {0: 32}
    # An event above the cut's LSN is waited for, too: its commit has to lie below the watermark.
    assert held.given(cut(40, ahead=48), second, pos(48), 5) is second
    assert held.given(cut(40, ahead=48), second, pos(56), 6).offsets == {0: 40}
    # A topic without events waits for nothing.
    assert held.given(EventCut(offsets={}, at_us=9, floors={}), second, "", 7).at_us == 9


def test_e11_a_store_that_stands_still_is_named() -> None:
    held = HeldCuts(HISTORY)
    for now_s, shown in ((0.0, ""), (STILL_S - 1, ""), (STILL_S, pos(7)), (2 * STILL_S - 1, pos(7))):
        assert held.given(cut(8), BEGINNING, shown, now_s) is BEGINNING
    with pytest.raises(SinkError, match=r"lake shows public\.orders__history up to 0/7, and events wait for it at 0/8"):
        held.given(cut(8), BEGINNING, pos(7), 2 * STILL_S)


def test_a_history_is_an_option_without_secrets() -> None:
    option = HISTORY.option()
    assert "hunter2" not in option
    assert KeptHistory.read(option) == replace(HISTORY, spec=replace(SPEC, secrets={}))


def test_a_store_that_is_not_there_shows_nothing(tmp_path: Path) -> None:
    spec = SinkSpec(kind="delta", opener=SPEC.opener, prefix="shop", options={"path": f"{tmp_path}/none"})
    watermark = HistoryWatermark(KeptHistory(sink="lake", spec=spec, shape=ORDERS))
    assert watermark.shown() == ""
    with pytest.raises(SinkError, match=r"does not show public\.orders__history yet"):
        watermark.require(pos(8))
    watermark.require("")
    watermark.close()


def test_e11_what_spark_says_is_told_in_our_words() -> None:
    tables = {"requests": "public.orders"}
    waits = refusal_in("s", tables, f"[PYTHON] {told(behind(HISTORY, pos(7), pos(8)))}\nat x")
    assert isinstance(waits, SinkError)
    assert waits.message.endswith("and events wait for it at 0/8")
    assert waits.hint.startswith("cdc sink lake")
    found = refusal_in("s", tables, f"[USER_RAISED_EXCEPTION] cdc_as_of:requests:unknown:{pos(8, 1)} SQLSTATE: P0001")
    assert isinstance(found, TopicError)
    assert found.message == (
        "the stream s cannot join public.orders with an event of 0/8: its history begins later, or has a gap there"
    )
    assert refusal_in("s", tables, f"cdc_as_of:others:unknown:{pos(8)}") is None
    assert refusal_in("s", {}, "OutOfMemoryError") is None
