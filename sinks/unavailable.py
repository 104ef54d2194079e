"""Values that capture could not have, on their way into a store.

None of them reaches a store. A value that did not change is taken from an earlier event of the same key in the
batch, else from the row that the store holds. Where neither has it, the record is passed over if the log is sure
to say more of that row, and refused otherwise (hazard H38).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from cdc.plain import NESTED_KINDS, UNAVAILABLE, PlainTable
from cdc.schema import TableSchema
from cdc.unavailable import BASE64, NUMBERS, may_be_unavailable, missing
from sinks.batch import Event
from sinks.envelope import row_of
from sinks.members import members


def patterns(schema: TableSchema) -> list[bytes]:
    """Bytes of which some are in every row of this table that holds a placeholder; empty: none can."""
    kinds = {(c.kind, c.array) for c in schema.columns if may_be_unavailable(c)}
    found = [UNAVAILABLE] if kinds else []
    if any(kind == "bytea" for kind, _ in kinds):
        found.append(BASE64)
    if any(array and kind.startswith("int") for kind, array in kinds):
        found.append(orjson.dumps(NUMBERS).decode())
    return [text.encode() for text in found]


class Unheld(ValueError):
    """Neither the batch nor the store has a value that the record lacks."""


def follows(pos: str) -> bool:
    """Whether the log is sure to say more of a row whose record at ``pos`` lacks a value.

    Our capture writes the placeholder only where the row was gone when it asked for the value, or its column; the
    delete, a later event or a chunk comes behind. Debezium writes it for every unchanged value; its positions have
    the tx_seq 0.
    """
    return pos[24:] != "00000000"


def fill_from_earlier(history: Sequence[Event], schema: TableSchema) -> tuple[dict[str, Any], bool]:
    """The last row of a key's events, oldest first, each unavailable value from the event before.

    Events of several versions of the shape: columns are the same where their names are. ``schema``: the last one's.
    Returns the row as on the wire and whether what it still lacks may be in the store: not when the key was
    deleted or created on the way. ValueError when an event is not readable.
    """
    row: dict[str, Any] | None = None
    from_store = True
    for event in history:
        if event.op == "d" or event.value is None:
            row, from_store = None, False
            continue
        after = orjson.loads(row_of(event.value))
        if event.op == "u" and row is not None:
            after.update({name: row[name] for name in missing(after, schema) if name in row})
        if event.op != "u":
            from_store = False
        row = after
    if row is None:
        raise ValueError("the record holds no row")
    return row, from_store


def fill_from_stored(after: Mapping[str, Any], stored: bytes | None, plain: PlainTable) -> dict[str, Any]:
    """A row as plain values, each unavailable one from the stored row. ValueError names the columns it lacks."""
    held = members(stored) if stored is not None else {}
    lacking = missing(after, plain.schema)
    unknown = [name for name in lacking if name not in held]
    if unknown:
        raise Unheld(f"the value of {', '.join(unknown)} did not change and nothing here holds it")
    kinds = {c.name: c.kind for c in plain.schema.columns}
    row = plain.values({name: None if name in lacking else value for name, value in after.items()})
    for name in lacking:
        raw = held[name]
        nested = kinds[name] in NESTED_KINDS and raw != b"null"
        row[name] = orjson.Fragment(raw) if nested else orjson.loads(raw)
    return row
