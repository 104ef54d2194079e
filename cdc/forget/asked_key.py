"""A key as a person writes it, to the text that the stores have. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from urllib.parse import unquote
from uuid import UUID

import orjson

from cdc.errors import UsageError
from cdc.foreign import quoted
from cdc.schema import Column, TableSchema
from cdc.wire.plain import HASHED_KEY, PlainTable, escape_key, store_key
from cdc.wire.types import INTEGERS

_ESCAPED = re.compile(r"(?:[^%:]|%25|%3A)*")
_HMAC = re.compile("[0-9a-f]{64}")
_DATE, _CLOCK = r"[+-]?\d{4,}-\d\d-\d\d", r"\d\d:\d\d:\d\d(?:\.\d+)?"
_FORMS = {
    "bool": re.compile("true|false"),
    "date": re.compile(f"{_DATE}Z|-?infinity"),
    "time": re.compile(f"{_CLOCK}Z"),
    "timetz": re.compile(f"{_CLOCK}Z"),
    "timestamp": re.compile(f"{_DATE}T{_CLOCK}Z|-?infinity"),
    "timestamptz": re.compile(f"{_DATE}T{_CLOCK}Z|-?infinity"),
    "numeric": re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|NaN|-?Infinity"),
    "bytea": re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"),
}
"""The text of a value in the stores, by kind. Another text, as psql shows it, is the key of no row there."""
_WITHOUT_ZONE = frozenset(("date", "time", "timestamp"))
"""Their text in psql is understood."""


def asked_key(typed: str, shape: TableSchema) -> str:
    """The key as the stores have it: of its columns' values joined by ``:``, or of JSON of the key's columns.

    A key of one column may have a ``:`` in it. UsageError for what is no key of the table, and for a masked column that
    is not written as its HMAC: nothing stands under its value.
    """
    if not shape.key:
        raise UsageError(f"{shape.table} has no key", hint="cdc forget asks for the key of a row")
    record = _of_json(typed, shape)
    parts = _parts(typed, shape) if record is None else [str(record[column.name]) for column in shape.key]
    for part, column in zip(parts, shape.key, strict=True):
        if column.mask is not None and not _HMAC.fullmatch(part):
            raise UsageError(
                f"the key of {shape.table} is masked, and that is no HMAC of {column.name}",
                hint="write it as the stores and cdc events have it: 64 hex digits for each masked column",
            )
    if record is not None:
        try:
            text = PlainTable(shape).key(typed.encode())
        except ValueError as error:
            raise UsageError(f"that is no key of {shape.table}: {quoted(error)}", hint=_hint(shape)) from None
        if text.startswith(HASHED_KEY):
            return text
        parts = [unquote(part) for part in text.split(":")]
    return store_key([escape_key(_value(part, column)) for part, column in zip(parts, shape.key, strict=True)])


def _of_json(typed: str, shape: TableSchema) -> dict[str, object] | None:
    """None for what is no JSON of exactly the key's columns."""
    with suppress(orjson.JSONDecodeError):
        found = orjson.loads(typed)
        if isinstance(found, dict) and set(found) == {column.name for column in shape.key}:
            return found
    return None


def _parts(typed: str, shape: TableSchema) -> Sequence[str]:
    parts = typed.split(":")
    if len(parts) == len(shape.key) and all(map(_ESCAPED.fullmatch, parts)):
        return [unquote(part) for part in parts]
    if len(shape.key) == 1:
        return [typed]
    raise UsageError(f"that is no key of {shape.table}: it has {len(shape.key)} columns", hint=_hint(shape))


def _value(part: str, column: Column) -> str:
    try:
        if column.array:
            return part
        if column.kind in INTEGERS:
            return str(int(part))
        if column.kind == "uuid":
            return str(UUID(part))
        if "\0" in part:
            raise ValueError
        form = _FORMS.get(column.kind)
        texts = [part, f"{part}Z", f"{part.replace(' ', 'T', 1)}Z"] if column.kind in _WITHOUT_ZONE else [part]
        found = part if form is None else next((text for text in texts if form.fullmatch(text)), None)
        if found is None:
            raise ValueError
    except ValueError:
        raise UsageError(
            f"that is no key: the column {column.name} takes {column.type}", hint="write it as cdc events prints it"
        ) from None
    return found


def _hint(shape: TableSchema) -> str:
    names = ":".join(column.name for column in shape.key)
    members = ", ".join(f'"{column.name}": …' for column in shape.key)
    return f"write {names}, as the stores do (a colon within is %3A), or '{{{members}}}'"
