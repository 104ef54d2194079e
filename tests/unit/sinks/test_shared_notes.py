"""The notes of a store that is fed in shares, and the change of their number, killed at each step."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from cdc import crash
from cdc.errors import ActiveError, DamagedError, NewerError, UsageError
from cdc.progress import SharedWatermark, Watermark
from cdc.shares import Share, owner
from cdc.stored import read_members
from sinks.memory import MemoryStore
from sinks.notes import FORGOTTEN, WATERMARK, NotedWatermarks, Notes, read_watermark
from sinks.shared_notes import NotesApart, ShareNotes, WholeNotes, change
from sinks.tries import looking

TOPICS = [f"shop.public.t{number}" for number in range(12)]


class FolderNotes:
    """A file for each note, so that a process may die between two. Implements :class:`sinks.notes.Notes`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self) -> Mapping[str, bytes]:
        files = [path for path in self._folder.iterdir() if path.is_file()]
        return {bytes.fromhex(path.name).decode(): path.read_bytes() for path in files}

    def write(self, name: str, text: bytes) -> None:
        (self._folder / name.encode().hex()).write_bytes(text)


def _mark(topics: list[str], lsn: int = 7) -> Watermark:
    return Watermark(
        epoch=1, lsn=lsn, offsets={topic: {0: 3} for topic in topics}, topic_ids=dict.fromkeys(topics, "id")
    )


def _fed(notes: Notes, count: int) -> None:
    """Each share says that it shows 10 and its number."""
    for number in range(1, count + 1):
        mine = [topic for topic in TOPICS if owner(topic, count) == number]
        own = NotedWatermarks(ShareNotes(notes, Share(number, count)))
        own.write(_mark(mine, 10 + number))


def test_shares_are_read_as_one(tmp_path: Path) -> None:
    notes = FolderNotes(tmp_path)
    _fed(notes, 3)
    whole = NotedWatermarks(notes).read()
    assert isinstance(whole, SharedWatermark)
    assert whole.lsn == 11
    assert set(whole.topic_ids) == set(TOPICS)
    own = NotedWatermarks(ShareNotes(notes, Share(3, 3))).read()
    assert own == _mark([topic for topic in TOPICS if owner(topic, 3) == 3], 13)


def test_a_reader_of_before_takes_no_share_for_all(tmp_path: Path) -> None:
    notes = FolderNotes(tmp_path)
    _fed(notes, 2)
    text = notes.read()[WATERMARK]
    with pytest.raises(NewerError):
        read_members(text, "the watermark in the store")
    assert json.loads(text)["lsn"] == 0


def test_h370_other_numbers_of_shares_are_refused(tmp_path: Path) -> None:
    notes = FolderNotes(tmp_path)
    _fed(notes, 3)
    with pytest.raises(ActiveError, match=r"fed in 3 shares, and this application is share 2/4"):
        ShareNotes(notes, Share(2, 4)).read()
    with pytest.raises(ActiveError, match="fed in 3 shares, and this application feeds all tables"):
        WholeNotes(notes).read()
    with pytest.raises(ActiveError):
        NotedWatermarks(ShareNotes(notes, Share(2, 4))).write(_mark(TOPICS))
    change(notes, 1)
    with pytest.raises(ActiveError, match="one application feeds the whole store, and this application is share 1/3"):
        ShareNotes(notes, Share(1, 3)).read()


def test_h370_a_share_that_goes_on_after_a_move_counts_not(tmp_path: Path) -> None:
    """It has read the notes before the move, and writes behind it."""
    notes = FolderNotes(tmp_path)
    _fed(notes, 2)
    [late] = [name for name in notes.read() if name.endswith("1/2")]
    change(notes, 3)
    change(notes, 2)
    notes.write(late, _mark(TOPICS, 99).to_json())
    whole = read_watermark(notes.read())
    assert whole is not None and whole.lsn == 11


def test_a_share_that_lost_its_place_forgets_its_own_alone() -> None:
    store = MemoryStore()
    _fed(store.open_notes().notes, 2)
    NotedWatermarks(ShareNotes(store.open_notes().notes, Share(1, 2))).forget()
    forgotten = store.open(Share(1, 2)).watermarks.read()
    assert forgotten is not None and (forgotten.lsn, forgotten.offsets) == (0, {}), "its rows are known to be old"
    assert store.open(Share(2, 2)).watermarks.read() is not None
    whole = store.open().watermarks.read()
    assert whole is not None and whole.lsn == 0


def test_a_share_without_a_table_is_refused(tmp_path: Path) -> None:
    notes = FolderNotes(tmp_path)
    NotedWatermarks(notes).write(_mark(TOPICS[:1]))
    before = notes.read()
    with pytest.raises(UsageError, match="of 3 shares only 1 would have a table"):
        change(notes, 3)
    assert notes.read() == before


def test_an_empty_store_takes_any_number(tmp_path: Path) -> None:
    notes = FolderNotes(tmp_path)
    for count in (3, 2, 1, 2):
        assert change(notes, count) is None
    _fed(notes, 2)
    whole = read_watermark(notes.read())
    assert whole is not None and whole.lsn == 11


def test_a_damaged_layout_is_said_to_readers_and_filled_anew(tmp_path: Path) -> None:
    notes = FolderNotes(tmp_path)
    _fed(notes, 2)
    for text in (b'{"format":2,"layout":0,"shares":2}', b'{"format":2}', b"nonsense"):
        notes.write(WATERMARK, text)
        with looking(), pytest.raises(DamagedError):
            NotedWatermarks(notes).read()
        assert NotedWatermarks(ShareNotes(notes, Share(1, 2))).read() is None
    NotedWatermarks(ShareNotes(notes, Share(1, 2))).write(_mark(TOPICS, 5))
    # What stood there before the damage is of an earlier layout.
    whole = read_watermark(notes.read())
    assert whole is not None and whole.lsn == 0


def apart(folder: Path, share: Share | None = None) -> NotesApart:
    """Each share's watermark in a folder of its own."""

    def place(name: str) -> FolderNotes:
        (folder / f"_{name.encode().hex()}").mkdir(exist_ok=True)
        return FolderNotes(folder / f"_{name.encode().hex()}")

    return NotesApart(FolderNotes(folder), place, share)


KINDS = pytest.mark.parametrize("opened", [FolderNotes, apart], ids=["together", "apart"])


def _killed(notes: Notes, count: int, where: str) -> int:
    child = os.fork()
    if child == 0:
        crash.arm(where)
        change(notes, count)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


POINTS = [
    *(f"share_after_note:{number}" for number in (1, 2, 3, 4)),
    "share_after_switch",
    *(f"share_after_tidying:{number}" for number in (1, 2)),
]


@KINDS
@pytest.mark.parametrize("where", POINTS)
@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 4), (4, 3), (3, 1)])
def test_h371_a_move_killed_at_each_step_goes_on(
    tmp_path: Path, before: int, after: int, where: str, opened: Callable[[Path], Notes]
) -> None:
    notes = opened(tmp_path)
    if before == 1:
        NotedWatermarks(notes).write(_mark(TOPICS, 11))
    else:
        _fed(notes, before)
    offsets = {topic: {0: 3} for topic in TOPICS}
    assert _killed(opened(tmp_path), after, where) in (0, crash.CRASH_EXIT)
    # Whole at any moment, and claims what it did.
    between = read_watermark(notes.read())
    assert between is not None and between.offsets == offsets
    assert between.lsn == 11 and len(between.parts) in (before, after)
    done = change(notes, after)
    assert done is not None and done.offsets == offsets
    assert done.lsn == 11 and len(done.parts) == after
    left = [text for name, text in notes.read().items() if name.startswith("share:") and text != FORGOTTEN]
    assert len(left) == (after if after > 1 else 0)
    assert change(notes, after) == done


@KINDS
def test_every_step_of_a_move_is_died_at(tmp_path: Path, opened: Callable[[Path], Notes]) -> None:
    _fed(opened(tmp_path), 3)
    died = {where for where in ("share_after_note:2", "share_after_switch", "share_after_tidying:2")}
    for number, where in enumerate(sorted(died)):
        assert _killed(opened(tmp_path), 4 + number, where) == crash.CRASH_EXIT


def test_an_application_reads_its_own_place_alone(tmp_path: Path) -> None:
    _fed(apart(tmp_path), 3)
    found = apart(tmp_path, Share(2, 3)).read()
    [own] = [text for name, text in found.items() if name.endswith(":2/3")]
    assert Watermark.from_json(own).lsn == 12
    assert [text for name, text in found.items() if name.endswith((":1/3", ":3/3"))] == [b'"apart"'] * 2


def test_a_share_of_one_is_ended_by_one_application(tmp_path: Path) -> None:
    """Nobody is to begin one. One that has is no dead end."""
    notes = FolderNotes(tmp_path)
    _fed(notes, 1)
    done = change(notes, 1)
    assert done is not None and len(done.parts) == 1
    assert WholeNotes(notes).read()[WATERMARK] == done.to_json()


def test_the_versions_of_tables_move_with_them(tmp_path: Path) -> None:
    notes = FolderNotes(tmp_path)
    versions = {topic: number for number, topic in enumerate(TOPICS)}
    NotedWatermarks(notes).write(replace(_mark(TOPICS), versions=versions))
    for count in (3, 4, 1):
        done = change(notes, count)
        assert done is not None
        for part in done.parts:
            assert part.versions == {topic: versions[topic] for topic in part.topic_ids}
    assert sorted(versions) == sorted(TOPICS)
