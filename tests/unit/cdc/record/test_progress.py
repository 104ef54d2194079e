"""The progress record and the watermark: what stands in topics and stores is read as it was meant."""

from __future__ import annotations

import orjson
import pytest

from cdc.process.errors import DamagedError
from cdc.record.position import MAX_EPOCH
from cdc.record.progress import CATCHING_UP, PROGRESS_KEY, Hold, Progress, Watermark

OFFSETS = {"shop.public.orders": {0: 7, 11: 2**40}}


def test_a_progress_record_reads_back_with_all_that_it_says() -> None:
    whole = Progress(epoch=2, lsn=8, offsets=OFFSETS, ahead={"shop.public.orders": {11: "0" * 32}})
    assert Progress.from_json(whole.to_json()) == whole
    assert "ahead" not in orjson.loads(Progress(epoch=2, lsn=8).to_json())
    assert PROGRESS_KEY == b'{"what":"progress"}', "running pipelines have theirs under it"


def test_a_progress_record_says_when_the_source_was_heard() -> None:
    heard = Progress(epoch=2, lsn=8, heartbeat_ms=1_700_000_000_123)
    assert Progress.from_json(heard.to_json()).heartbeat_ms == 1_700_000_000_123
    behind_a_change = Progress(epoch=2, lsn=8)
    assert "heartbeat_ms" not in orjson.loads(behind_a_change.to_json())
    assert Progress.from_json(behind_a_change.to_json()).heartbeat_ms == 0


def test_h100_a_watermark_reads_back_with_its_held_tables() -> None:
    held = {"shop.public.t": Hold(table="public.t", reason="public.t: no column takes it", since_ms=17)}
    mark = Watermark(epoch=1, lsn=8, offsets=OFFSETS, topic_ids={"shop.public.orders": "id1"}, held=held, level_ms=4)
    again = Watermark.from_json(mark.to_json())
    assert again == mark
    assert (again.held["shop.public.t"].since_ms, again.level_ms) == (17, 4)
    assert "held" not in orjson.loads(Watermark(epoch=1, lsn=8).to_json())


def test_h227_a_watermark_names_its_epoch() -> None:
    mark = Watermark(epoch=2, lsn=8, epoch_id="second")
    assert Watermark.from_json(mark.to_json()) == mark
    assert mark != Watermark(epoch=2, lsn=8)
    assert "epoch_id" not in orjson.loads(Watermark(epoch=2, lsn=8).to_json())


def test_h100_a_held_table_is_named_with_its_reason_and_a_remedy() -> None:
    assert Hold(table="public.t", reason="public.t: no column takes it").sentence("cache") == (
        "cache holds public.t: no column takes it; its changes wait in the log: cdc rebuild cache"
    )
    assert Hold(table="public.t").sentence("cache") == "cache: public.t was held and is being brought up to date"
    assert Hold(table="view.orders", reason="the view orders waits for public.t").sentence("cache") == (
        "cache: the view orders waits for public.t: it does not show the view as far as its LSN says"
    )


@pytest.mark.parametrize(
    ("reason", "passing"),
    [("", True), (f"the view orders {CATCHING_UP}", True), (f"public.t {CATCHING_UP}: no column takes it", False)],
)
def test_h100_a_hold_passes_once_nothing_is_in_its_way(reason: str, passing: bool) -> None:
    """A comparison waits for such a table. The rows of any other are said to be held."""
    assert Hold(table="public.t", reason=reason).passing is passing


@pytest.mark.parametrize(
    "wrong",
    [
        {"lsn": -1}, {"lsn": -5}, {"epoch": 0}, {"epoch": -1}, {"epoch": MAX_EPOCH + 1}, {"offsets": {"t": {"0": -1}}},
        {"offsets": {"t": {"0": 5, "1": -1}}}, {"offsets": {"t": {"0": 3}, "u": {"0": -1}, "v": {"0": 7}}},
        {"ahead": {"t": {"0": "zz"}}}, {"ahead": {"t": {"0": "0" * 33}}},
    ],
)  # fmt: skip
def test_h159_a_record_whose_numbers_cannot_be_is_damaged(wrong: dict[str, object]) -> None:
    sound = orjson.loads(Progress(epoch=1, lsn=80, offsets={"t": {0: 3, 1: 0}, "u": {}}).to_json())
    assert Progress.from_json(orjson.dumps(sound)).lsn == 80
    with pytest.raises(DamagedError):
        Progress.from_json(orjson.dumps({**sound, **wrong}))


@pytest.mark.parametrize("record", [Progress(epoch=MAX_EPOCH, lsn=8), Progress(epoch=1, lsn=0, offsets={"t": {0: 0}})])
def test_h159_the_highest_epoch_and_the_first_lsn_are_read(record: Progress) -> None:
    assert Progress.from_json(record.to_json()) == record


@pytest.mark.parametrize(
    "wrong", [{"epoch": -1}, {"lsn": -1}, {"level_ms": -1}, {"offsets": {"t": {"0": 5, "1": -1}, "u": {"0": 7}}}]
)
def test_h159_a_watermark_with_a_number_below_0_is_damaged(wrong: dict[str, object]) -> None:
    """To Kafka an offset of -1 is the end of the log: what the store lacks would be passed over."""
    sound = orjson.loads(Watermark(epoch=1, lsn=80, offsets={"t": {0: 0}}, level_ms=7).to_json())
    assert Watermark.from_json(orjson.dumps({**sound, "lsn": 0})) == Watermark(epoch=1, lsn=0, offsets={"t": {0: 0}})
    with pytest.raises(DamagedError, match="the watermark in the store has a number below 0"):
        Watermark.from_json(orjson.dumps({**sound, **wrong}))
