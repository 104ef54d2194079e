"""The rules of a view's runner: when a state is thrown away, which tables are waited for, when a cut is whole, and
what was published before. No I/O of its own but that of the log's port.

A table that is set aside lacks changes until it was read again. So does one that was never read whole. While one of a
view's tables does, nothing of the view is published and its LSN stays: nobody knows which documents are wrong.

A statement may give rows other values without an event. Capture notices it by the catalog, asks for the
table to be read again, and the log has the rows then. A table that was dropped, or that nobody publishes, brings no
events at all. The documents of such a table go out as the log has it, and no LSN is claimed for them.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from cdc.process.clock import Clock
from cdc.record.position import Position
from cdc.record.state import FormState, ReadingState, find_all, requests_of
from cdc.record.tables_aside import asides_of
from cdc.record.topic_names import TableName
from cdc.views.log_cut import BEFORE_ALL, NEVER, Fence, fence_at
from cdc.views.lookups import Row
from cdc.views.post_functions import Post, finished
from cdc.views.record_changes import CutReading
from cdc.views.state_reach import Reached
from cdc.views.syntax import NotComputable
from cdc.views.view_ports import ViewInput, ViewOutput
from cdc.views.view_records import NUMBERS, ViewRecord, ViewRecords

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


_MOST_TOLD = 10
"""Unreadable records of one cut that are named."""


def of_another_topic(reached: Reached, topic_id: str) -> bool:
    """Whether a state was published into another topic than the view's present one: of nothing that it knows to be
    published is any there. One that does not know its topic is taken for one of this. It is logged.

    >>> of_another_topic(Reached(plan="p", generation=1, topic_id="a"), "a")
    False
    """
    other = reached.topic_id not in ("", topic_id)
    if other:
        log.warning("view_state_of_another_topic", extra={"topic_id": reached.topic_id})
    return other


def too_old(reached: Reached, retention_s: float, now_ns: int) -> bool:
    """Whether a state is older than the topics keep deletions: some may be gone unread. It is logged."""
    age_s = now_ns / 1e9 - reached.level_ms / 1000
    old = bool(reached.level_ms) and age_s > retention_s
    if old:
        log.warning("view_state_too_old", extra={"age_s": int(age_s)})
    return old


def noted_after(
    cut: CutReading,
    reached: Reached,
    *,
    proven: bool,
    letters: int,
    lacking: tuple[Mapping[str, str], Mapping[str, str]],
    now_ms: int,
) -> dict[str, Any]:
    """The members of :class:`cdc.views.state_reach.Reached` that are others behind a cut. ``letters``: where the dead
    letters end. ``lacking``: of :meth:`cdc.views.runner_rules.AwaitedTables.lacking`."""
    built = reached.built or proven
    return {
        "fence": cut.fence,
        "offsets": cut.offsets,
        "built": built,
        "proven": proven,
        # Nothing of this state is out yet, and everything goes out at that fence or later.
        "sweep": max(cut.fence, reached.published) if built and not reached.built else reached.sweep,
        "marks": cut.marks,
        "swept": cut.swept,
        "later": tuple(cut.later),
        "cleared": cut.cleared,
        "letters": letters,
        "held": lacking[0],
        "awaited": lacking[1],
        "level_ms": now_ms if proven else reached.level_ms,
    }


def unswept_tables(reached: Reached, tables: Iterable[TableName]) -> list[str]:
    """In a new epoch the rows of the one before are there until each table was swept: those that were not yet."""
    if reached.fence.epoch <= 1:
        return []
    return sorted(name for name in map(str, tables) if reached.swept.get(name, 0) < reached.fence.epoch)


def cut_is_whole(log_input: ViewInput, cut: CutReading, topics: Iterable[str], now_ns: int) -> bool:
    """Whether the cleaner took nothing of the cut that was just read.

    It takes a row for a newer one that is as old as the lag. Behind the cut there is none, or none so old: what
    was read bounds its age, and what was not read is about as young as the progress record. Half of the lag is for
    the time that a record needed to arrive.
    """
    oldest_ms = min(log_input.progress_ms, cut.beyond_ms or log_input.progress_ms)
    if now_ns / 1e9 - oldest_ms / 1000 < log_input.compaction_lag_s / 2:
        return True
    offsets = cut.offsets
    return not log_input.beyond({topic: offsets.get(topic, {}) for topic in topics})


def shown_up_to(reached: Reached, topic_claim: Fence) -> Fence:
    """Up to where documents are as published of which no key waits. Below the fence of a state that is not proven a
    change may be missing, which a later record shows: so it is up to where the topic claims."""
    if not reached.built:
        return BEFORE_ALL
    return reached.fence if reached.proven else min(reached.fence, topic_claim)


def published_before(
    reached: Reached, claimed: Fence, newest: Position | None, above: Fence, *, anew: bool
) -> dict[str, Any]:
    """The members of :class:`cdc.views.state_reach.Reached` that follow from what was ever published of a view, by its
    state, its claim and its topic. ``newest``: there, behind what the state knows. ``above``: of the generations before
    its own. :data:`cdc.views.log_cut.NEVER` says nothing. ``anew``: its documents may be others now, at the same fence.
    """
    others = BEFORE_ALL if above == NEVER else above
    published = max(reached.published, claimed, others, BEFORE_ALL if newest is None else fence_at(newest))
    own = reached.numbered_above(reached.published)
    met = [own._replace(tx_seq=own.tx_seq + NUMBERS)] if anew else [own]
    # A state before may have known a value that this one does not, and have published otherwise at this fence.
    return {
        "published": published,
        "met": max([*met, newest] if newest is not None else met).text(),
        # The sweep of a build leaves nothing of what other generations have published since.
        "sweep": reached.sweep and max(reached.sweep, others),
    }


def log_cut(cut: CutReading, waits: bool, progress_ms: int, unswept: Iterable[str]) -> None:
    """Log the records that were passed over, and what is waited for. ``waits``: for a newer progress record."""
    if cut.foreign:
        log.warning("view_foreign_records", extra={"records": cut.foreign})
    for record in cut.unreadable[:_MOST_TOLD]:
        place = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
        log.error("view_record_unreadable", extra=place | {"records": len(cut.unreadable)})
    if waits:
        log.warning("view_waits_for_progress", extra={"since_ms": progress_ms})
    tables = list(unswept)
    if tables:
        log.warning("view_waits_for_sweep", extra={"tables": tables})


LACKS = "a row that it is made of is put aside, or stands in the log as it was later alone"


@dataclass(slots=True)
class DocumentPiece:
    """``written``: records for the topic. ``digests``: of what is published, None for a deletion. ``parked``: documents
    that cannot be, each with why."""

    written: list[ViewRecord] = field(default_factory=list)
    digests: dict[Row, bytes | None] = field(default_factory=dict)
    parked: dict[Row, str] = field(default_factory=dict)


class PieceMaker:
    """``post``: the user's function on finished documents. ``largest``: bytes of a document's row."""

    def __init__(self, records: ViewRecords, post: Post | None, largest: int) -> None:
        self._records = records
        self._post = post
        self._largest = largest

    def _finished(self, row: str | NotComputable | None) -> str | NotComputable | None:
        """A computed row as it is published. NotComputable, with the reason, for one that cannot be."""
        made = finished(self._post, row)
        if isinstance(made, str) and len(made) > self._largest and len(made.encode()) > self._largest:
            return NotComputable(f"the document is larger than {self._largest} bytes")
        return made

    def of(
        self,
        computed: Mapping[Row, str | NotComputable | None],
        known: Mapping[Row, bytes],
        blocked: Collection[Row],
        above: Position,
        now_ns: int,
    ) -> DocumentPiece:
        """``computed``: a row for each key. ``known``: digests of what was published last. ``blocked``: documents of
        which a row is not known. ``above``: the position that records are numbered above.
        """
        piece = DocumentPiece()
        for key, found in computed.items():
            if key in blocked:
                piece.parked[key] = LACKS
                continue
            row = self._finished(found)
            if isinstance(row, NotComputable):
                piece.parked[key] = str(row)
            elif row is not None:
                digest = blake2b(row.encode(), digest_size=16).digest()
                if known.get(key) != digest:
                    piece.written += self._records.document(key, row, above, known=key in known, now_ns=now_ns)
                    piece.digests[key] = digest
            elif key in known:
                piece.written += self._records.deletion(key, above, now_ns)
                piece.digests[key] = None
        return piece
