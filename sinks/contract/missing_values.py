"""Values that capture could not have, on their way into a store, and JSON members by their own text.

Capture's side is :mod:`connectors.postgres.server.reselect`: there an unchanged TOAST value is read from the table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, NamedTuple

import orjson

from cdc.record.documents import dumped
from cdc.record.schema import TableSchema
from cdc.wire.envelope import BASE64, NUMBERS, UUID, may_be_unavailable, missing, row_of
from cdc.wire.format import DELETE_OP, UNAVAILABLE, UPDATE_OP
from cdc.wire.jsontree import blank, expect, loads, value_at, written
from cdc.wire.plain import PlainTable
from cdc.wire.types import NESTED_KINDS
from sinks.contract.batch import Event


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


_INEXACT = re.compile(rb"[\[:,\s]-?(?:[0-9][0-9.]{15}|[0-9]+[.]?[0-9]*[eE]|0[.]?0*[,\]}\s])|^[\s-]*[0-9]")
"""Where a number may stand that a double does not hold, or a zero whose sign it loses. Within a string it may stand
too: that costs time only."""
_string: Any = scanstring


def members(document: bytes) -> dict[str, bytes]:
    """Name -> text of each member of a JSON object. ValueError when it is no JSON object.

    >>> members(b'{"a": 1e400, "b" : [1.10, {}]}')
    {'a': b'1e400', 'b': b'[1.10, {}]'}
    """
    text = document.decode("utf-8")
    found: dict[str, bytes] = {}
    at = expect(text, 0, "{")
    at = blank(text, at)
    if text[at : at + 1] == "}":
        return found
    while True:
        at = expect(text, at, '"')
        name, at = _string(text, at, True)
        start = blank(text, expect(text, at, ":"))
        _, at = value_at(text, start, str)
        found[name] = text[start:at].encode("utf-8")
        at = blank(text, at)
        if text[at : at + 1] == "}":
            return found
        at = expect(text, at, ",")


def loads_exact(document: bytes) -> Any:
    """As ``orjson.loads``, but a number that it would not read exactly becomes an orjson.Fragment of its text.

    ValueError when it is not JSON.

    >>> orjson.dumps(loads_exact(b'{"a":1e400,"b":12345678901234567890123}'))
    b'{"a":1e400,"b":12345678901234567890123}'
    """
    if _INEXACT.search(document) is None:
        try:
            return orjson.loads(document)
        except orjson.JSONDecodeError:  # half a surrogate pair, which json may hold
            pass
    return loads(document.decode("utf-8", "surrogatepass"), _number)


def dumps_exact(value: Any) -> bytes:
    """As ``orjson.dumps``, and half a surrogate pair as the escape it was.

    >>> dumps_exact({"a": "\\ud800", "b": orjson.Fragment("1e400")})
    b'{"a":"\\\\ud800","b":1e400}'
    """
    try:
        return dumped(value)
    except TypeError:
        return written(value, _leaf).encode()


def _leaf(value: Any) -> str:
    return json.dumps(value) if isinstance(value, str) else orjson.dumps(value).decode()


def _number(text: str) -> Any:
    try:
        number = orjson.loads(text)
    except orjson.JSONDecodeError:
        return orjson.Fragment(text)
    return number if orjson.dumps(number) == text.encode() else orjson.Fragment(text)
