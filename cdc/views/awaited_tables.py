"""Tables of which the log lacks rows for now, or has them as they were, among those that a view uses: pure, and a watch
over them.

A table that is set aside lacks changes until it was read again. So does one that was never read whole. While one of a
view's tables does, nothing of the view is published and its LSN stays: nobody knows which documents are wrong.

A statement may give rows other values without an event. Capture notices it by the catalog, asks for the
table to be read again, and the log has the rows then. A table that was dropped, or that nobody publishes, brings no
events at all. The documents of such a table go out as the log has it, and no LSN is claimed for them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from cdc.process.clock import Clock
from cdc.record.position import Position
from cdc.record.state import FormState, ReadingState, find_all, requests_of
from cdc.record.tables_aside import asides_of
from cdc.record.topic_names import TableName
from cdc.views.fences import Fence
from cdc.views.record_changes import CutReading
from cdc.views.state_reach import Reached
from cdc.views.view_ports import ViewInput, ViewOutput

log = logging.getLogger(__name__)
_LOOK_S = 2.0
_SHOWS = "documents may show what was before"


def awaited_tables(
    documents: Mapping[bytes, bytes],
    tables: Iterable[str],
    *,
    fence: Fence,
    cleared: Mapping[str, str],
    before: Mapping[str, str],
    progress_ms: int,
) -> dict[str, str]:
    """Table -> why no LSN is claimed, from the state topic's records as of a time behind the progress record.

    ``fence``: of the cut. ``cleared``: the greatest floor of each table that the state has applied. ``before``: what
    was found at the cut before. ``progress_ms``: when the progress record was written.

    A reading that an operator asks for is one of a table that nothing is known to be wrong with, unless one before has
    failed.
    """
    wanted = set(tables)
    found = {table: said for table in sorted(wanted) if (said := _unsent(documents, table))}
    readings = {one.id: one for one in find_all(documents, ReadingState) if one.epoch == fence.epoch and not one.first}
    for request in requests_of(documents):
        whole = request.where is None and request.keys is None
        asked = not request.by_hand or (whole and request.table in before)
        if request.table not in wanted or not asked or request.first or request.state == "cancelled":
            continue
        reading = readings.get(request.id)
        if reading is None or reading.serial < request.serial or not reading.over:
            # One sentence, whether it waits or goes on: it waits for a lock, goes on, and waits for the next.
            found.setdefault(request.table, f"{request.reason}, and is to be read again: {_SHOWS}")
    for table in wanted:
        for reading_id in (f"snapshot:{table}", f"snapshot:{table}:partitions"):
            reading = readings.get(reading_id)
            if reading is not None and (said := _lacks(reading, table in before, cleared.get(table, ""), progress_ms)):
                found.setdefault(table, said)
    return found


def _lacks(reading: ReadingState, awaited: bool, cleared: str, progress_ms: int) -> str:
    """Of a reading that is over: its request is gone by then. Of one that nobody here has seen begin
    :func:`held_tables` knows."""
    table = reading.table
    if reading.state == "failed":
        return f"{table} could not be read again ({reading.detail}): {_SHOWS}; cdc snapshot {table}"
    if reading.state != "done" or not awaited:
        return ""
    # Of partitions alone no mark is written behind the rows. Both times are of capture's own clock.
    parts = reading.id != f"snapshot:{table}"
    there = progress_ms >= reading.finished_ns // 1_000_000 if parts else cleared >= reading.floor
    return "" if there else f"{table} was read again, and the view has not come to its rows: {_SHOWS}"


def _unsent(documents: Mapping[bytes, bytes], table: str) -> str:
    """By the catalog watch's note of the table, where it has left one."""
    note = documents.get(FormState(table=table, oid=0, columns=[], leaves=[], publication="").key())
    if note is None or FormState.from_json(note).publication:
        return ""
    return (
        f"{table} was dropped, or is captured no more, so nothing of it comes: documents keep what they show of it; "
        "publish it again (cdc init), or give the view another text"
    )


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


def _log_held(held: Mapping[str, str]) -> None:
    """Log the tables that hold a view, each with its sentence."""
    if held:
        log.warning("view_held", extra={"tables": sorted(held), "why": "; ".join(held.values())})


class AwaitedTables:
    """:func:`awaited_tables` of one view's tables, and what is told of them. For one thread."""

    def __init__(self, log_input: ViewInput, output: ViewOutput, tables: Iterable[TableName], clock: Clock) -> None:
        self._input = log_input
        self._output = output
        self._tables = list(tables)
        self._clock = clock
        self._look_s = clock.monotonic()
        self._told: Mapping[str, str] | None = None

    def lacking(
        self, documents: Mapping[bytes, bytes], cut: CutReading, reached: Reached
    ) -> tuple[dict[str, str], dict[str, str]]:
        """The tables that hold the view behind a cut, and those that are awaited. ``reached``: of the state before."""
        held = held_tables(
            documents,
            map(str, self._tables),
            fence=cut.fence,
            before=reached.fence,
            held=reached.held,
            cleared=cut.cleared,
        )
        return held, self._of(documents, cut.fence, cut.cleared, reached)

    def changed(self, reached: Reached) -> dict[str, str] | None:
        """The same while no cut comes, about every two seconds: a source may rest behind the statement. None where it
        is as before, or not looked at."""
        if self._clock.monotonic() - self._look_s < _LOOK_S:
            return None
        found = self._of(self._input.documents(), reached.fence, reached.cleared, reached)
        return found if found != reached.awaited else None

    def _of(
        self, documents: Mapping[bytes, bytes], fence: Fence, cleared: Mapping[str, str], reached: Reached
    ) -> dict[str, str]:
        self._look_s = self._clock.monotonic()
        return awaited_tables(
            documents,
            map(str, self._tables),
            fence=fence,
            cleared=cleared,
            before=reached.awaited,
            progress_ms=self._input.progress_ms,
        )

    def tell(self, held: Mapping[str, str], awaited: Mapping[str, str], *, behind: bool) -> None:
        """Tell it where it is news. ``held``: the tables for which nothing goes out at all. ``behind``: the claim is
        behind the fence. Then the next claim ends a hold: the former one is true of documents that are not there
        yet."""
        both = {**awaited, **held}
        if both != self._told:
            _log_held(both)
            if both or not behind:
                self._output.tell([both[table] for table in sorted(both)])
            self._told = both
