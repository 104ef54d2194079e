"""The progress record and the watermark: what stands in topics and stores is read as it was meant."""

from __future__ import annotations

import orjson
import pytest

from cdc.errors import DamagedError
from cdc.position import Position
from cdc.progress import PROGRESS_KEY, Hold, Progress, Watermark

OFFSETS = {"shop.public.orders": {0: 7, 11: 2**40}}


def test_a_progress_record_reads_back_with_all_that_it_says() -> None:
    whole = Progress(epoch=2, lsn=8, offsets=OFFSETS, ahead={"shop.public.orders": {11: "0" * 32}}, numbering=1)
    assert Progress.from_json(whole.to_json()) == whole
    assert "ahead" not in orjson.loads(Progress(epoch=2, lsn=8).to_json())
    assert PROGRESS_KEY == b'{"what":"progress"}', "running pipelines have theirs under it"


def test_h113_a_record_without_a_numbering_has_the_first_one() -> None:
    assert Progress.from_json(b'{"format":1,"epoch":1,"lsn":8,"offsets":{}}') == Progress(epoch=1, lsn=8, numbering=1)
    today = Progress(epoch=1, lsn=8, ahead={"shop.public.orders": {0: Position(1, 8, 1).text()}})
    assert orjson.loads(today.to_json())["numbering"] == 2
    assert Progress.from_json(today.to_json()) == today


def test_h119_a_record_with_tables_aside_has_the_second_format() -> None:
    lacking = Progress(epoch=1, lsn=8, aside={"shop.public.t": "it is locked"})
    assert orjson.loads(lacking.to_json())["format"] == 2
    assert Progress.from_json(lacking.to_json()) == lacking


def test_h100_a_watermark_reads_back_with_its_held_tables() -> None:
    held = {"shop.public.t": Hold(table="public.t", reason="public.t: no column takes it", since_ms=17)}
    mark = Watermark(epoch=1, lsn=8, offsets=OFFSETS, topic_ids={"shop.public.orders": "id1"}, held=held, level_ms=4)
    again = Watermark.from_json(mark.to_json())
    assert again == mark
    assert (again.held["shop.public.t"].since_ms, again.level_ms) == (17, 4)
    assert "held" not in orjson.loads(Watermark(epoch=1, lsn=8).to_json())


def test_h100_a_held_table_is_named_with_its_reason_and_a_remedy() -> None:
    assert Hold(table="public.t", reason="public.t: no column takes it").sentence("cache") == (
        "cache holds public.t: no column takes it; its changes wait in the log: cdc rebuild cache"
    )
    assert Hold(table="public.t").sentence("cache") == "cache: public.t was held and is being brought up to date"


@pytest.mark.parametrize(
    "wrong",
    [
        {"lsn": -5}, {"epoch": 0}, {"epoch": -1}, {"epoch": 128}, {"offsets": {"t": {"0": -1}}},
        {"ahead": {"t": {"0": "zz"}}}, {"ahead": {"t": {"0": "0" * 33}}},
    ],
)  # fmt: skip
def test_h159_a_record_whose_numbers_cannot_be_is_damaged(wrong: dict[str, object]) -> None:
    sound = orjson.loads(Progress(epoch=1, lsn=80, offsets={"t": {0: 3, 1: 0}, "u": {}}).to_json())
    assert Progress.from_json(orjson.dumps(sound)).lsn == 80
    with pytest.raises(DamagedError):
        Progress.from_json(orjson.dumps({**sound, **wrong}))
