"""Under which masks each table's rows were read, so that a table whose masks changed is read again.

Without that its topic and the stores would go on with what they hold: plain values, or those of another key.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from cdc.clock import Clock
from cdc.crash import crash_point, declare
from cdc.mask_rules import Masks
from cdc.masks import MaskState
from cdc.ports import CompactedTopic
from cdc.schema import TableSchema
from cdc.state import RequestState

log = logging.getLogger(__name__)

declare("masks_noted")

Noted = Mapping[str, str]
"""Column -> its rule as noted."""


def note_masks(
    state: CompactedTopic,
    documents: Mapping[bytes, bytes],
    *,
    tables: Iterable[str],
    masks: Masks,
    shapes: Iterable[TableSchema],
    clock: Clock,
) -> list[str]:
    """Ask for each captured table to be read again whose masks are others than noted, and note those of now.

    ``documents``: the state topic's. ``shapes``: every version of every table's, older ones first: a table of which
    nothing is noted was read first under the masks of its first. Returns the tables. Raises LogError.
    """
    found = MaskState.find(documents)
    noted = found.tables if found is not None else {}
    first = {str(shape.table): shape.noted_masks for shape in reversed(list(shapes))}
    wanted = {table: masks.noted_of(table) for table in tables}
    changed = {t: now for t, now in sorted(wanted.items()) if now != noted.get(t, first.get(t, now))}
    kept = {table: now for table, now in wanted.items() if now or table in noted}
    asked = [_request(table, clock.now_ns()) for table in changed]
    if kept != noted:
        # The requests first: a note without its request would be believed.
        documents_now = [*asked, MaskState(tables=kept)]
        state.write([(document.key(), document.to_json()) for document in documents_now])
        crash_point("masks_noted")
    for table, now in changed.items():
        was = noted.get(table, first.get(table, {}))
        columns = sorted(column for column in {*was, *now} if was.get(column) != now.get(column))
        log.warning("masks_changed", extra={"table": table, "columns": ", ".join(columns), "then": "read again"})
    return list(changed)


def _request(table: str, serial: int) -> RequestState:
    reason = f"{table} has other masks than its rows were read under"
    return RequestState(id=f"snapshot:{table}", table=table, after_lsn=0, reason=reason, serial=serial)
