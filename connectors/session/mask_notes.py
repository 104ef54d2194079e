"""Under which masks each table's rows were read, so that a table whose masks changed is read again.

Without that its topic and the stores would go on with what they hold: plain values, or those of another key.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from cdc.clock import Clock
from cdc.crash import crash_point, declare
from cdc.errors import ConfigError
from cdc.mask_rules import Masks
from cdc.masks import MaskState
from cdc.ports import CompactedTopic
from cdc.schema import TableSchema
from cdc.state import ReadingState, RequestState, find_all, requests_of
from connectors.session.mask_lineage import partitions_of

log = logging.getLogger(__name__)

declare("masks_noted")


def note_masks(
    state: CompactedTopic,
    documents: Mapping[bytes, bytes],
    *,
    tables: Collection[str],
    masks: Masks,
    shapes: Iterable[TableSchema],
    clock: Clock,
) -> MaskState:
    """Ask for each captured table to be read again whose masks are others than its rows were read under, and note those
    of now. Once more where a reading that was asked for them failed or was cancelled.

    ``documents``: the state topic's. ``shapes``: every version of every table's. Rows may have been written under each
    that was registered since the note. Returns the note. ConfigError for masks of a table that is not captured. Raises
    LogError.
    """
    require_captured(masks, tables)
    found = MaskState.find(documents) or MaskState()
    since: dict[str, list[TableSchema]] = defaultdict(list)
    newest: dict[str, int] = {}
    for shape in shapes:
        name = str(shape.table)
        newest[name] = max(shape.version, newest.get(name, 0))
        if shape.version > found.versions.get(name, 0):
            since[name].append(shape)
    wanted = {table: masks.noted_of(table) for table in tables}
    changed = [
        table
        for table, now in sorted(wanted.items())
        if found.tables.get(table, now) != now
        or any(shape.noted_masks != masks.noted_among(shape) for shape in since.get(table, ()))
    ]
    kept = {table: now for table, now in wanted.items() if now or table in found.tables or table in changed}
    unread = _unread({table: serial for table, serial in found.asked.items() if table in kept}, documents)
    asked = [_request(table, documents, clock.now_ns()) for table in sorted({*changed, *_unasked(unread, documents)})]
    note = MaskState(
        tables=kept,
        versions={table: newest[table] for table in kept if table in newest},
        partitions=_partitions(kept, documents),
        asked=unread | {one.table: one.serial for one in asked},
    )
    if asked or note != found:
        # The requests first: a note without its request would be believed.
        state.write([(document.key(), document.to_json()) for document in (*asked, note)])
        crash_point("masks_noted")
    for table in changed:
        was = found.tables.get(table) or next((one.noted_masks for one in since.get(table, ())), {})
        columns = sorted(column for column in {*was, *wanted[table]} if was.get(column) != wanted[table].get(column))
        log.warning("masks_changed", extra={"table": table, "columns": ", ".join(columns), "then": "read again"})
    return note


def note_read(state: CompactedTopic, note: MaskState, reading: ReadingState) -> MaskState:
    """Note that a reading is over: one of the whole table was asked for no more. Raises LogError."""
    left = _without_read(note.asked, [reading])
    if left == note.asked:
        return note
    now = replace(note, asked=left)
    state.write([(now.key(), now.to_json())])
    return now


def note_partitions(state: CompactedTopic, note: MaskState, seen: Mapping[str, Iterable[int]]) -> MaskState:
    """Note partitions of tables with masks. ``seen``: oids by table. Raises LogError."""
    more = {
        table: sorted({*note.partitions.get(table, ()), *oids}) for table, oids in seen.items() if table in note.tables
    }
    now = replace(note, partitions={**note.partitions, **more})
    if now != note:
        state.write([(now.key(), now.to_json())])
    return now


def require_captured(masks: Masks, tables: Collection[str]) -> None:
    """ConfigError for masks of a table that is not captured: its name is likely to be meant for another one, which
    would be written as it is."""
    for name in sorted(masks.tables.keys() - set(tables)):
        raise ConfigError(
            f'[tables."{name}"] is no captured table',
            hint="name it as [source] tables does, a partitioned table by its own name and not by its partitions'; "
            "of a table that is new, cdc init first",
        )


def _unread(asked: Mapping[str, int], documents: Mapping[bytes, bytes]) -> dict[str, int]:
    """Those of the requests that no reading has carried out."""
    return _without_read(asked, find_all(documents, ReadingState))


def _without_read(asked: Mapping[str, int], readings: Iterable[ReadingState]) -> dict[str, int]:
    read = {one.table: one.serial for one in readings if (one.id, one.state) == (f"snapshot:{one.table}", "done")}
    return {table: serial for table, serial in asked.items() if read.get(table, -1) < serial}


def _unasked(unread: Collection[str], documents: Mapping[bytes, bytes]) -> set[str]:
    """Those of the tables of which nothing is asked any more."""
    return set(unread) - {
        one.table for one in requests_of(documents) if one.id == f"snapshot:{one.table}" and one.state != "cancelled"
    }


def _partitions(kept: Collection[str], documents: Mapping[bytes, bytes]) -> dict[str, list[int]]:
    known: dict[str, list[int]] = defaultdict(list)
    for oid, table in sorted(partitions_of(documents).items()):
        if table in kept:
            known[table].append(oid)
    return dict(known)


def _request(table: str, documents: Mapping[bytes, bytes], now_ns: int) -> RequestState:
    """One for every row. A pending request of the table goes on in it: it may bring the first rows, be paused, or be
    asked for by an operator."""
    reason = f"{table} has other masks than its rows were read under"
    asked = RequestState(id=f"snapshot:{table}", table=table, after_lsn=0, reason=reason, serial=now_ns)
    pending = next((one for one in requests_of(documents) if one.id == asked.id and one.state != "cancelled"), None)
    if pending is None:
        return asked
    return replace(
        asked,
        after_lsn=pending.after_lsn,
        state=pending.state,
        serial=max(now_ns, pending.serial + 1),
        first=pending.first,
        by_hand=pending.by_hand,
    )
