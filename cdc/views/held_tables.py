"""Tables of which the log lacks rows for now, among those that a view uses. Pure.

A table that is set aside lacks changes until it was read again. So does one that was never read whole. While one of a
view's tables does, nothing of the view is published and its LSN stays: nobody knows which documents are wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cdc.aside import asides_of
from cdc.position import Position
from cdc.state import ReadingState, find_all, requests_of
from cdc.views.fences import Fence


def held_tables(
    documents: Mapping[bytes, bytes],
    tables: Iterable[str],
    *,
    fence: Fence,
    before: Fence,
    held: Mapping[str, str],
    cleared: Mapping[str, str],
) -> dict[str, str]:
    """Table -> why the view cannot go on, from the state topic's records as of a time behind the progress record.

    ``fence``: of the cut. ``before``: of the cut before. ``held``: what was held at that one. ``cleared``: the
    greatest floor of each table that the state has applied.
    """
    wanted = set(tables)
    found = {
        table: one.sentence()
        for table, one in asides_of(documents).items()
        if table in wanted and one.due and one.epoch == fence.epoch
    }
    readings = {
        state.table: state for state in find_all(documents, ReadingState) if state.id == f"snapshot:{state.table}"
    }
    for request in requests_of(documents):
        if request.first and request.table in wanted and request.table not in readings:
            found.setdefault(request.table, f"{request.table} is to be read for the first time")
    for table in wanted & readings.keys():
        why = _unread(readings[table], before, table in held, cleared.get(table, ""))
        if why and readings[table].epoch == fence.epoch:
            found.setdefault(table, why)
    return found


def _unread(state: ReadingState, before: Fence, held: bool, cleared: str) -> str:
    """Why a reading of a whole table holds the view, and empty where it does not.

    Of a reading that began behind the cut before nobody here knows whether the table was set aside meanwhile.
    """
    if state.first and state.state != "done":
        return f"{state.table} is being read for the first time"
    if state.state != "done":
        return f"{state.table} is being read again" if held else ""
    if not state.floor or cleared >= state.floor:
        return ""
    floor = Position.parse(state.floor)
    unknown = (floor.epoch, floor.commit_lsn) >= before
    return f"{state.table} was read again, and the view has not come to its rows yet" if held or unknown else ""
