"""Values that capture could not have, on their way into a store.

None of them reaches a store. A value that did not change is taken from an earlier event of the same key in the
batch, else from the row that the store holds. Where neither has it, the record is passed over if the log is sure
to say more of that row, and refused otherwise. So it is where the log may have lost a change between the
stored row and the record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from cdc.schema import TableSchema
from cdc.wire.debezium.present_run import UNBROKEN_FROM
from cdc.wire.format import DELETE_OP, OWN_SOURCE, SOURCE, UNAVAILABLE, UPDATE_OP, member
from cdc.wire.plain import PlainTable
from cdc.wire.row import row_of
from cdc.wire.types import NESTED_KINDS
from cdc.wire.unavailable import BASE64, NULL_OR_UNCHANGED, NUMBERS, UUID, may_be_unavailable, missing
from sinks.batch import Event
from sinks.members import members

_MARK = f'"{UNBROKEN_FROM}":'.encode()


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


def follows(pos: str, value: bytes | None) -> bool:
    """Whether the log is sure to say more of a row whose record at ``pos`` lacks a value.

    Our capture writes the placeholder only where the row was gone when it asked for the value, or its column. The
    delete, a later event or a chunk comes behind. Debezium writes it for every unchanged value. Its positions have
    the tx_seq 0, but for flat rows and Oracle's. These do not name it in their source, as ours do.
    """
    own = member(member(orjson.loads(value or b"null"), SOURCE), OWN_SOURCE[0]) is not None
    return own and pos[24:] != "00000000"


class FilledEarlier(NamedTuple):
    """A row as on the wire, filled from earlier events. ``from_store``: whether what it still lacks may be in the
    store: not when the key was deleted or created on the way. ``unbroken``: its columns that were lacking all along,
    each with the position below which no stored row has it for sure. Empty: every one has."""

    row: dict[str, Any]
    from_store: bool
    unbroken: Mapping[str, str]


def fill_from_earlier(history: Sequence[Event], schema: TableSchema) -> FilledEarlier:
    """The last row of a key's events, oldest first, each unavailable value from the event before.

    Events of several versions of the shape: columns are the same where their names are. ``schema``: the last one's.
    ValueError when an event is not readable.
    """
    row: dict[str, Any] | None = None
    from_store, unbroken = True, dict[str, str]()
    for event in history:
        if event.op == DELETE_OP or event.value is None:
            row, from_store = None, False
            continue
        after = orjson.loads(row_of(event.value))
        if event.op == UPDATE_OP:
            earlier, lacking = row or {}, missing(after, schema)
            after.update({name: _before(name, after, earlier) for name in lacking if name in earlier})
            # Of several events that lack a value the first one takes it from the store.
            mark = _unbroken_from(event.value)
            unbroken = {name: unbroken.get(name, "") if name in earlier else mark for name in lacking}
        else:
            from_store = False
        row = after
    if row is None:
        raise ValueError("the record holds no row")
    return FilledEarlier(row, from_store, unbroken)


def _unbroken_from(value: bytes) -> str:
    return str(member(orjson.loads(value), UNBROKEN_FROM) or "") if _MARK in value else ""


def require_unbroken(unbroken: Mapping[str, str], stored: str) -> None:
    """Raise ValueError where the log may lack a change between a row that is stored at this position and the record
    that it would fill."""
    doubtful = [name for name, mark in unbroken.items() if stored < mark]
    if doubtful:
        raise ValueError(
            f"the value of {', '.join(doubtful)} did not change, and the cleaner may have taken a change of it between "
            "the stored row and this record: cdc connect signal snapshot brings the row whole, and with REPLICA "
            "IDENTITY FULL on the table each record has the value"
        )


def _before(name: str, after: Mapping[str, Any], row: Mapping[str, Any]) -> Any:
    """The value of an event before. ValueError where it may have become NULL since."""
    before = row[name]
    if after[name] == NULL_OR_UNCHANGED and before is not None and before != NULL_OR_UNCHANGED:
        raise _either([name])
    return before


def _either(names: Sequence[str]) -> ValueError:
    return ValueError(
        f"the value of {', '.join(names)} became NULL or did not change, and Debezium does not say which: "
        "REPLICA IDENTITY FULL on the table says it"
    )


def fill_from_stored(after: Mapping[str, Any], stored: bytes | None, plain: PlainTable) -> dict[str, Any]:
    """A row as plain values, each unavailable one from the stored row.

    Raises :class:`Unheld`, which names the columns that the stored row lacks.
    """
    known = _members_of(stored) if stored is not None else {}
    lacking = missing(after, plain.schema)
    # A row that was stored before the column was added has none of it, and nothing out of line.
    either = {name: known.get(name, b"null") for name in lacking if after[name] == NULL_OR_UNCHANGED}
    if either and (stored is None or set(either.values()) != {b"null"}):
        raise _either([name for name, raw in either.items() if stored is None or raw != b"null"])
    known = {**known, **either}
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
