"""Tokens as text, and how a store's watermark relates to one: never by an LSN of another server."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.process.errors import DamagedError, UsageError
from cdc.record.position import Lsn
from cdc.record.progress import Progress, Watermark
from cdc.record.source_lineage import LsnRelation, SourceLineage
from cdc.record.state import SlotState
from cdc.record.tokens import Token, TokenRelation, sentence, standing

TEXT = "7301444403801980345/2:0/16B3D48"
TOKEN = Token.parse(TEXT)
PROMOTED = SourceLineage(TOKEN.system, 2, ((1, 1000),))


def at(lsn: int, lineage: SourceLineage | None = PROMOTED, *, epoch: int = 1) -> Watermark:
    return Watermark(epoch=epoch, lsn=lsn, lineage=lineage)


def token(lsn: int, timeline: int = 2, system: str = TOKEN.system) -> Token:
    return Token(system, timeline, Lsn(lsn))


def test_a_token_is_its_text_and_never_changes() -> None:
    assert (TOKEN.system, TOKEN.timeline, TOKEN.lsn) == ("7301444403801980345", 2, Lsn.parse("0/16B3D48"))
    assert str(TOKEN) == TEXT
    assert Token.parse(TEXT) == TOKEN
    assert {TOKEN, Token.parse(TEXT)} == {TOKEN}
    with pytest.raises(FrozenInstanceError):
        TOKEN.timeline = 3  # type: ignore[misc]


@given(st.integers(0, 2**64 - 1), st.integers(1, 2**32 - 1), st.integers(0, 2**64 - 1))
def test_every_token_reads_back_from_its_text(system: int, timeline: int, lsn: int) -> None:
    made = Token(str(system), timeline, Lsn(lsn))
    assert Token.parse(str(made)) == made


@pytest.mark.parametrize(
    "text",
    [
        "", "0/16B3D48", "7/0:0/1", "7/1:0", "7/1:0/1 ", " 7/1:0/1", "x/1:0/1", "7/1/0/1", "-7/1:0/1", "٧/1:0/1",
        f"{2**64}/1:0/1", f"7/{2**32}:0/1", "7/1:0/123456789", "7/1:0/1\n",
    ],
)  # fmt: skip
def test_any_other_text_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="is not a token") as refused:
        Token.parse(text)
    assert "cdc.read.token(connection)" in refused.value.hint


@pytest.mark.parametrize(
    ("asked", "watermark", "expected"),
    [
        (token(500), None, TokenRelation.EMPTY),
        (token(500), at(2000, None), TokenRelation.UNNAMED),
        (token(2000), at(1999), TokenRelation.BEHIND),
        (token(2000), at(2000), TokenRelation.SHOWN),
        (token(2000), at(1, epoch=9), TokenRelation.BEHIND),
        (token(1000, 1), at(999), TokenRelation.BEHIND),
        (token(1000, 1), at(1000), TokenRelation.SHOWN),
        (token(1001, 1), at(10**9), TokenRelation.LOST),
        (token(5, 3), at(10**9), TokenRelation.PROMOTION),
        (token(5, system="8"), at(10**9, epoch=9), TokenRelation.STRANGE),
        (token(5, 1), at(10**9, replace(PROMOTED, history=None)), TokenRelation.STRANGE),
        (token(5, 1), at(10**9, SourceLineage(TOKEN.system, 4, ((2, 7), (3, 9)))), TokenRelation.STRANGE),
        (token(5, 2), at(10**9, SourceLineage(TOKEN.system, 4, ((1, 7), (3, 9)))), TokenRelation.LOST),
    ],
)  # fmt: skip
def test_what_a_watermark_says_of_a_token(asked: Token, watermark: Watermark | None, expected: TokenRelation) -> None:
    assert standing(asked, watermark) is expected


def test_each_standing_has_its_own_sentence() -> None:
    said = [
        sentence("cache", asked, mark)
        for asked, mark in [
            (token(5), None), (token(5), at(2, None)), (token(5), at(2)), (token(1001, 1), at(2)),
            (token(5, 3), at(2)),
        ]
    ]  # fmt: skip
    assert said == [
        "cache has no watermark yet",
        "the watermark of cache does not name the server that its LSN belongs to",
        "cache stands at 0/2, and the token at 0/5",
        f"a promotion left {TOKEN.system}/1:0/3E9 behind: its commit may be lost, and cache never shows it",
        f"cache shows server {TOKEN.system}/2, and the token is of {TOKEN.system}/3",
    ]


def test_progress_and_watermark_read_back_with_their_lineage() -> None:
    mark, progress = at(8), Progress(epoch=1, lsn=8, lineage=PROMOTED)
    assert Watermark.from_json(mark.to_json()) == mark
    assert Progress.from_json(progress.to_json()) == progress
    assert orjson.loads(mark.to_json())["lineage"] == {
        "system": TOKEN.system, "timeline": 2, "history": [[1, 1000]],
    }  # fmt: skip
    assert "history" not in orjson.loads(at(8, replace(PROMOTED, history=None)).to_json())["lineage"]


def test_a_watermark_may_name_no_server() -> None:
    assert Watermark.from_json(b'{"format":1,"epoch":1,"lsn":8,"offsets":{}}') == Watermark(epoch=1, lsn=8)
    assert "lineage" not in orjson.loads(Watermark(epoch=1, lsn=8).to_json())
    named = b'{"format":1,"epoch":1,"lsn":8,"lineage":{"system":"7","timeline":1,"region":"eu"}}'
    assert Watermark.from_json(named).lineage == SourceLineage("7", 1)


@pytest.mark.parametrize(
    "lineage",
    [5, {}, {"system": "7"}, {"system": "x", "timeline": 1}, {"system": "7", "timeline": 0},
     {"system": "7", "timeline": 2, "history": [[1]]}, {"system": "7", "timeline": 2, "history": [[1, -1]]}],
)  # fmt: skip
def test_h101_a_lineage_that_cannot_be_is_damage(lineage: object) -> None:
    with pytest.raises(DamagedError, match="the watermark in the store"):
        Watermark.from_json(orjson.dumps({"format": 1, "epoch": 1, "lsn": 8, "lineage": lineage}))


@pytest.mark.parametrize("history", [None, [], [[1, 1000]]])
def test_a_slots_server_gives_the_lineage(history: list[list[int]] | None) -> None:
    slot = SlotState(
        epoch=1,
        system_identifier="7",
        timeline=2,
        database="shop",
        database_oid=5,
        slot="s",
        publication="p",
        consistent_point=1,
        history=history,
    )
    found = SourceLineage.of_slot(slot)
    assert (found.system, found.timeline) == ("7", 2)
    assert found.history == (None if history is None else tuple((a, b) for a, b in history))
    assert found.kinship("7", 2, 1) is LsnRelation.SAME
