"""MongoDB's patches on their way into a store: the document made from the one that is stored.

A patch is applied to the document that the store holds, or to an earlier one of the batch, each patch once and in
the order of pos: what lies at or below the stored row's is in it already. Where there is no document, or where the
log may lack a change between it and the patch, the record is refused, and its key waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from cdc.wire.debezium.mongodb_read import DOCUMENT, PATCH, UNBROKEN_FROM
from cdc.wire.debezium.patch import Patch, Patched
from cdc.wire.format import AFTER, DELETE_OP, UNAVAILABLE
from cdc.wire.plain import PlainTable
from cdc.wire.row import row_of
from sinks.batch import Event
from sinks.members import dumps_exact, loads_exact, members
from sinks.port import StoredRow

_MARK = f'"{PATCH}":{{'.encode()
_CURE = "a snapshot of the document brings it whole, and so does capture.mode=change_streams_update_full"
_NONE = f"it is a patch, and nothing here holds the document that it changes: {_CURE}"
_BROKEN = f"it is a patch, and the log may have lost one between it and the document held here: {_CURE}"
_UNPLACED = f"it is a patch, and the document held here has no place for what it sets: {_CURE}"


def is_patch(value: bytes | None) -> bool:
    """Whether a record says what changed in its document, and not the document."""
    if value is None or _MARK not in value or UNAVAILABLE.encode() not in value:
        return False
    try:
        return bool(orjson.loads(row_of(value)).get(DOCUMENT) == UNAVAILABLE)
    except ValueError:
        return False


def after_patches(history: Sequence[Event], stored: StoredRow | None, plain: PlainTable) -> dict[str, Any]:
    """The row after a key's events, oldest first, as plain values. The last one is a patch newer than ``stored``.

    ValueError where its document cannot be made, in a sentence for the dead letters.
    """
    document: Patched | None = None
    at, fault = "", _NONE
    if stored is not None:
        at, document = stored.pos, _document_of(stored)
    row: dict[str, Any] = {}
    for event in history:
        pos = event.pos or ""
        if pos <= at:
            continue
        if event.op == DELETE_OP or event.value is None:
            document, fault = None, _NONE
        elif not is_patch(event.value):
            document = Patched(_whole(event.value))
        else:
            envelope = orjson.loads(event.value)
            row = envelope[AFTER]
            if document is not None and at < envelope.get(UNBROKEN_FROM, ""):
                document, fault = None, _BROKEN
            if document is not None:
                document.apply(Patch.read(envelope[PATCH], lambda text: loads_exact(text.encode())))
        at = pos
    if document is None:
        raise ValueError(fault)
    if document.unplaced:
        raise ValueError(_UNPLACED)
    made = plain.values({**row, DOCUMENT: None})
    return {**made, DOCUMENT: orjson.Fragment(dumps_exact(document.document))}


def _document_of(stored: StoredRow) -> Patched | None:
    text = members(stored.row).get(DOCUMENT) if stored.row is not None else None
    document = loads_exact(text) if text is not None else None
    return Patched(document) if isinstance(document, dict) else None


def _whole(value: bytes) -> dict[str, Any]:
    document = loads_exact(str(orjson.loads(row_of(value)).get(DOCUMENT)).encode())
    if not isinstance(document, dict):
        raise ValueError(f"the value of column {DOCUMENT} does not fit its type")
    return document
