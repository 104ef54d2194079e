"""Values that capture could not have, on their way into a store.

None of them reaches a store. A value that did not change is taken from an earlier event of the same key in the
batch, else from the row that the store holds. Where neither has it, the record is passed over: our capture leaves a
value out only where the row was gone when it asked for it, or its column. The delete, a later event or a chunk comes
behind. Debezium's records without a value are no events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from cdc.schema import TableSchema
from cdc.wire.format import DELETE_OP, UNAVAILABLE, UPDATE_OP
from cdc.wire.plain import PlainTable
from cdc.wire.row import row_of
from cdc.wire.types import NESTED_KINDS
from cdc.wire.unavailable import BASE64, NUMBERS, UUID, may_be_unavailable, missing
from sinks.batch import Event
from sinks.members import members


def patterns(schema: TableSchema) -> list[bytes]:
    """Bytes of which some are in every row of this table that holds a placeholder. Empty: none can."""
    kinds = {(c.kind, c.array) for c in schema.columns if may_be_unavailable(c)}
    found = [UNAVAILABLE] if kinds else []
    if any(kind == "bytea" for kind, _ in kinds):
        found.append(BASE64)
    if any(array and kind.startswith("int") for kind, array in kinds):
        found.append(orjson.dumps(NUMBERS).decode())
    if ("uuid", True) in kinds:
        found.append(UUID)
    return [text.encode() for text in found]


class Unheld(ValueError):
    """Neither the batch nor the store has a value that the record lacks."""


class FilledEarlier(NamedTuple):
    """A row as on the wire, filled from earlier events. ``from_store``: whether what it still lacks may be in the
    store: not when the key was deleted or created on the way."""

    row: dict[str, Any]
    from_store: bool


def fill_from_earlier(history: Sequence[Event], schema: TableSchema) -> FilledEarlier:
    """The last row of a key's events, oldest first, each unavailable value from the event before.

    Events of several versions of the shape: columns are the same where their names are. ``schema``: the last one's.
    ValueError when an event is not readable.
    """
    row: dict[str, Any] | None = None
    from_store = True
    for event in history:
        if event.op == DELETE_OP or event.value is None:
            row, from_store = None, False
            continue
        after = orjson.loads(row_of(event.value))
        if event.op == UPDATE_OP:
            earlier = row or {}
            after.update({name: earlier[name] for name in missing(after, schema) if name in earlier})
        else:
            from_store = False
        row = after
    if row is None:
        raise ValueError("the record holds no row")
    return FilledEarlier(row, from_store)


def fill_from_stored(after: Mapping[str, Any], stored: bytes | None, plain: PlainTable) -> dict[str, Any]:
    """A row as plain values, each unavailable one from the stored row.

    Raises :class:`Unheld`, which names the columns that the stored row lacks.
    """
    known = _members_of(stored) if stored is not None else {}
    lacking = missing(after, plain.schema)
    unknown = [name for name in lacking if name not in known]
    if unknown:
        raise Unheld(f"the value of {', '.join(unknown)} did not change and nothing here holds it")
    kinds = {c.name: c.kind for c in plain.schema.columns}
    row = plain.values({name: None if name in lacking else value for name, value in after.items()})
    for name in lacking:
        raw = known[name]
        nested = kinds[name] in NESTED_KINDS and raw != b"null"
        row[name] = orjson.Fragment(raw) if nested else orjson.loads(raw)
    return row


def _members_of(stored: bytes) -> Mapping[str, bytes]:
    try:
        return members(stored)
    except ValueError:
        raise ValueError(
            "a value did not change, and the store's own row is none of ours: cdc verify --repair writes it anew"
        ) from None
