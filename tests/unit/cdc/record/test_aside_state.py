"""What the state topic says of tables that are set aside: when one is followed again, and what a start leaves out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.record.position import CHUNK_SEQ, Position
from cdc.record.state import Document, ReadingState
from cdc.record.tables_aside import AsideState, Cause, TableState, asides_of, left_out

ASIDE = AsideState(
    table="public.t", epoch=2, state=TableState.ASIDE, cause=Cause.LOCKED, detail="it is locked", since_lsn=0x1000,
    since_ms=7,
)  # fmt: skip
READING = replace(ASIDE, state=TableState.READING, from_lsn=0x200000013)
"""Its changes from there on are in the log; a commit is aligned, so the reading has to begin at 0x200000010."""


def read(lsn: int, **others: object) -> ReadingState:
    whole = ReadingState(
        id="snapshot:public.t", table="public.t", serial=1, epoch=2, state="done",
        floor=Position(2, lsn, CHUNK_SEQ).text(),
    )  # fmt: skip
    return replace(whole, **others)  # type: ignore[arg-type]


DONE = read(0x200000010)


def held(*documents: Document) -> dict[bytes, bytes]:
    return {one.key(): one.to_json() for one in documents}


def test_h113_documents_of_running_pipelines_have_these_names() -> None:
    assert list(Cause) == ["locked", "changed", "not_followed", "not_readable"]
    assert list(TableState) == ["following", "waiting", "aside", "reading"]
    assert ASIDE.key() == b'{"what":"aside","table":"public.t"}'
    assert (ASIDE.xid, ASIDE.from_lsn, ASIDE.new_key) == (0, 0, False)
    assert AsideState.from_json(READING.to_json()) == READING


def test_h119_what_is_said_of_a_table() -> None:
    waiting = replace(ASIDE, state=TableState.WAITING)
    assert waiting.sentence() == "public.t waits, and all others flow: it is locked"
    assert READING.sentence() == "public.t was set aside, and is being read again"
    assert [one.due for one in (waiting, ASIDE, READING)] == [False, True, True]


@pytest.mark.parametrize(
    ("state", "whole"),
    [
        (DONE, True),
        (read(0x200000018), True),
        (read(0x8000000000000000), True),
        (read(0x200000008), False),
        (replace(DONE, id="snapshot:public.t:1"), False),
        (replace(DONE, state="failed"), False),
        (replace(DONE, epoch=1), False),
        (replace(DONE, floor=""), False),
    ],
)
def test_h119_a_whole_reading_behind_the_gap_makes_a_table_whole(state: ReadingState, whole: bool) -> None:
    assert READING.read_again(state) is whole
    assert ASIDE.read_again(state) is False, "its changes are still dropped"
    kept = held(READING, state, replace(DONE, id="snapshot:public.u", table="public.u"))
    assert asides_of(kept) == ({} if whole else {"public.t": READING})


def test_h119_a_reading_of_a_part_hides_no_reading_of_the_whole() -> None:
    part = replace(DONE, id="part", floor="")
    assert asides_of(held(READING, DONE, part)) == {}
    assert asides_of(held(READING, part, DONE)) == {}


def test_h119_a_start_leaves_out_what_a_whole_reading_covers() -> None:
    assert left_out(held(DONE), 2) == {"public.t": Position(2, 0x200000010, CHUNK_SEQ)}
    for other in (
        replace(DONE, id="part"), replace(DONE, state="running"), replace(DONE, epoch=1), replace(DONE, floor=""),
    ):  # fmt: skip
        assert left_out(held(other), 2) == {}, other


def test_h119_a_start_leaves_out_what_was_dropped_while_aside() -> None:
    assert left_out(held(READING), 2) == {"public.t": Position(2, 0x200000010, CHUNK_SEQ)}
    aligned = replace(READING, from_lsn=0x200000010)
    assert left_out(held(aligned), 2) == {"public.t": Position(2, 0x200000008, CHUNK_SEQ)}, "that commit itself is in"
    behind = replace(READING, from_lsn=0x200000011)
    assert left_out(held(behind), 2) == {"public.t": Position(2, 0x200000010, CHUNK_SEQ)}
    assert left_out(held(ASIDE), 2) == {}
    assert left_out(held(replace(READING, epoch=1)), 2) == {}


@pytest.mark.parametrize(("lsn", "until"), [(0x100, 0x200000010), (0x300000000, 0x300000000)])
def test_h119_the_higher_of_reading_and_dropped_changes_decides(lsn: int, until: int) -> None:
    assert left_out(held(READING, read(lsn)), 2) == {"public.t": Position(2, until, CHUNK_SEQ)}
