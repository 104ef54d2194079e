"""The notes of a store that several applications feed, each its share of the tables, and the change of their number.

An application of a share finds its own watermark where it would find that of the whole, so nothing else of a sink
knows of shares. The number of shares is changed by one write, behind those of all new watermarks: killed before it,
nothing has changed, and behind it everything.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cdc.crash import crash_point, declare
from cdc.errors import ActiveError, DamagedError, Retry, UsageError
from cdc.progress import Watermark
from cdc.shares import Share, moved
from sinks.notes import FORGOTTEN, SHARE, WATERMARK, Notes, ShareLayout, read_watermark
from sinks.registry import SinkSpec

log = logging.getLogger("headrace.sinks")

_APART = b'"apart"'

declare("share_after_note", "share_after_switch", "share_after_tidying")


@dataclass(frozen=True, slots=True)
class OpenNotes:
    """The notes of a store's generation in use, opened. ``close`` never raises."""

    notes: Notes
    close: Callable[[], None]


def noted(notes: Notes, spec: SinkSpec) -> Notes:
    """The notes as who opens the store by this spec sees them."""
    if spec.share is not None:
        return ShareNotes(notes, spec.share)
    return WholeNotes(notes) if spec.leads else notes


def beneath(notes: Notes) -> Notes:
    """The same for one who is not let into them any more, and has something to tidy up."""
    return notes.all if isinstance(notes, WholeNotes | ShareNotes) else notes


class NotesApart:
    """Notes of a store where applications that write to one place at once would be in each other's way: the watermark
    of each share is in a place of its own. Implements :class:`sinks.notes.Notes`.

    ``notes``: the others, among them a mark for each of these places. ``place`` opens the notes of one by its name.
    ``share``: the only one whose watermark is read. None: all are.
    """

    def __init__(self, notes: Notes, place: Callable[[str], Notes], share: Share | None = None) -> None:
        self._notes = notes
        self._place = place
        self._share = share
        self._places: dict[str, Notes] = {}
        self._marked: set[str] = set()

    def read(self) -> Mapping[str, bytes]:
        # The marks first. A place is never emptied, so it has what it had when the mark was read, or a later one.
        found = dict(self._notes.read())
        self._marked = {name for name, text in found.items() if name.startswith(SHARE) and text == _APART}
        for name in self._marked:
            if self._share is None or name.endswith(f":{self._share}"):
                found[name] = self._of(name).read().get(WATERMARK, FORGOTTEN)
        return found

    def write(self, name: str, text: bytes) -> None:
        if not name.startswith(SHARE):
            self._notes.write(name, text)
            return
        if text == FORGOTTEN:
            self._notes.write(name, FORGOTTEN)
            self._marked.discard(name)
            return
        self._of(name).write(WATERMARK, text)
        if name not in self._marked:
            self._notes.write(name, _APART)
            self._marked.add(name)

    def _of(self, name: str) -> Notes:
        if name not in self._places:
            self._places[name] = self._place(name)
        return self._places[name]


class WholeNotes:
    """For an application that feeds all tables: ActiveError in a store that is fed in shares. Implements
    :class:`sinks.notes.Notes`."""

    def __init__(self, notes: Notes) -> None:
        self.all = notes

    def read(self) -> Mapping[str, bytes]:
        found = self.all.read()
        layout = _layout(found)
        if layout is not None:
            raise _refusal(f"the store is fed in {layout.shares} shares, and this application feeds all tables", 1)
        return found

    def write(self, name: str, text: bytes) -> None:
        self.all.write(name, text)


class ShareNotes:
    """For an application of a share: its own watermark is the only one. ActiveError in a store that is fed in another
    number of shares. Implements :class:`sinks.notes.Notes`."""

    def __init__(self, notes: Notes, share: Share) -> None:
        self.all = notes
        self._share = share

    def read(self) -> Mapping[str, bytes]:
        found = self.all.read()
        layout = self._mine(found)
        own = found.get(layout.note(self._share.number), FORGOTTEN) if layout is not None else FORGOTTEN
        return {**found, WATERMARK: own}

    def write(self, name: str, text: bytes) -> None:
        if name != WATERMARK:
            self.all.write(name, text)
            return
        # Read anew each time: the number may have changed since, and what is written under the old one counts no more.
        found = self.all.read()
        layout = self._mine(found)
        if layout is None:
            layout = _next(found, self._share.count)
            self.all.write(WATERMARK, layout.to_json())
        self.all.write(layout.note(self._share.number), text)

    def _mine(self, found: Mapping[str, bytes]) -> ShareLayout | None:
        """None in a store without a watermark."""
        layout = _layout(found)
        if layout is None and _has_watermark(found):
            fed = "one application feeds the whole store"
        elif layout is not None and layout.shares != self._share.count:
            fed = f"the store is fed in {layout.shares} shares"
        else:
            return layout
        raise _refusal(f"{fed}, and this application is share {self._share}", self._share.count)


def change(notes: Notes, count: int) -> Watermark | None:
    """Have a store fed in so many shares from now on: 1 for one application of all tables. Returns its watermark.

    Killed anywhere, the same call goes on. UsageError where a share would have no table.
    """
    found = notes.read()
    layout, old = _layout(found), read_watermark(found)
    same = layout.shares == count > 1 if layout is not None else count == 1
    if not same and old is not None:
        _switch(notes, found, moved(old, count))
    elif not same:
        notes.write(WATERMARK, _next(found, count).to_json() if count > 1 else FORGOTTEN)
    found = notes.read()
    layout = _layout(found)
    for name, text in found.items():
        if _is_left(name, layout) and text != FORGOTTEN:
            notes.write(name, FORGOTTEN)
            crash_point("share_after_tidying")
    return read_watermark(found)


def _switch(notes: Notes, found: Mapping[str, bytes], wanted: list[Watermark | None]) -> None:
    count = len(wanted)
    texts = [share.to_json() for share in wanted if share is not None]
    if len(texts) < count:
        raise UsageError(
            f"of {count} shares only {len(texts)} would have a table", hint="take fewer shares; a table is in one share"
        )
    if count == 1:
        notes.write(WATERMARK, texts[0])
    else:
        layout = _next(found, count)
        for number, text in enumerate(texts, 1):
            notes.write(layout.note(number), text)
            crash_point("share_after_note")
        notes.write(WATERMARK, layout.to_json())
    crash_point("share_after_switch")


def _is_left(name: str, layout: ShareLayout | None) -> bool:
    return name.startswith(SHARE) and (layout is None or _number(name) != layout.layout)


def _next(found: Mapping[str, bytes], count: int) -> ShareLayout:
    """Above every layout that was ever written here: an application of an earlier one may still write."""
    used = [_number(name) for name in found if name.startswith(SHARE)]
    layout = _layout(found)
    return ShareLayout(layout=1 + max([*used, layout.layout if layout is not None else 0]), shares=count)


def _number(name: str) -> int:
    number = name.removeprefix(SHARE).partition(":")[0]
    return int(number) if number.isdecimal() else 0


def _layout(found: Mapping[str, bytes]) -> ShareLayout | None:
    try:
        return ShareLayout.find(found)
    except DamagedError:
        # Somebody else's hand (hazard H101): the store is filled anew, as for a watermark that cannot be read.
        log.warning("watermark_unreadable")
        return None


def _has_watermark(found: Mapping[str, bytes]) -> bool:
    try:
        return read_watermark(found) is not None
    except DamagedError:
        return False


def _refusal(why: str, count: int) -> ActiveError:
    hint = f"stop what feeds the store, then: cdc share SINK {count}"
    return ActiveError(why, hint=hint, retry=Retry.NEVER)
