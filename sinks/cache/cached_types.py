"""The types of a table's columns, noted beside the cache's rows, and rows as values of Python's types. Pure."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from math import isfinite
from typing import Any
from uuid import UUID

import orjson

from cdc.record.documents import dumped, reading
from cdc.record.schema import TableSchema
from cdc.record.topic_names import TableName
from cdc.wire.jsontree import loads
from sinks.contract.store_notes import Notes

_ARRAY = "[]"
_INTERVAL = re.compile(r"P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)D)?(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?[\d.]+)S)?)?")


def types_note(table: TableName) -> str:
    """The name of a table's note."""
    return "types:" + orjson.dumps([table.schema, table.table]).decode()


class NotedTypes:
    """Notes of the columns' types, written where they change."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._known: dict[str, bytes] | None = None

    def keep(self, schema: TableSchema) -> None:
        """Note the types of a newest shape."""
        if self._known is None:
            self._known = {name: text for name, text in self._notes.read().items() if name.startswith("types:")}
        name = types_note(schema.table)
        text = dumped({c.name: c.kind + (_ARRAY if c.array else "") for c in schema.columns})
        if self._known.get(name) != text:
            self._notes.write(name, text)
            self._known[name] = text


def types_of(noted: bytes | None) -> Mapping[str, str] | None:
    """Column -> kind, ``[]`` behind it for an array. None where nothing is noted."""
    with reading("the types of a table, as the cache says them,"):
        return dict(orjson.loads(noted)) if noted is not None else None


def row_of_json(row: bytes) -> Any:
    """A row's JSON at any depth. A number that no float holds is a Decimal. ValueError when it is no JSON.

    >>> row_of_json(b'{"a": 1e400, "b": 0.5}')
    {'a': Decimal('1E+400'), 'b': 0.5}
    """
    try:
        return orjson.loads(row)
    except orjson.JSONDecodeError:
        return loads(row.decode("utf-8", "surrogatepass"), _number)


def typed(row: Mapping[str, Any] | None, types: Mapping[str, str]) -> Mapping[str, Any] | None:
    """Plain values as Python's. One that the type does not hold stays the text that it is. No row stays none.

    >>> typed({"born": "1950-04-11Z", "died": "infinity", "price": "1.50"}, {"born": "date", "price": "numeric"})
    {'born': datetime.date(1950, 4, 11), 'died': 'infinity', 'price': Decimal('1.50')}
    """
    return row and {name: _typed(value, types.get(name, "")) for name, value in row.items()}


def _typed(value: Any, kind: str) -> Any:
    if isinstance(value, list) and kind.endswith(_ARRAY):
        return [_typed(one, kind) for one in value]
    convert = _TYPES.get(kind.removesuffix(_ARRAY))
    if convert is None or not isinstance(value, str):
        return value
    with suppress(ValueError, InvalidOperation, OverflowError):
        return convert(value)
    return value


def _number(text: str) -> int | float | Decimal | str:
    if not {".", "e", "E"} & set(text):
        return int(text) if len(text) <= _MOST_DIGITS else Decimal(text)
    try:
        return number if isfinite(number := float(text)) else Decimal(text)
    except InvalidOperation:  # an exponent of more than 18 digits
        return text


def _interval(text: str) -> timedelta:
    found = _INTERVAL.fullmatch(text)
    if found is None or int(found[1] or 0) or int(found[2] or 0):
        raise ValueError("a month is no number of days")
    seconds = Decimal(found[6] or 0)
    return timedelta(
        days=int(found[3] or 0),
        hours=int(found[4] or 0),
        minutes=int(found[5] or 0),
        microseconds=int(seconds * 1_000_000),
    )


_MOST_DIGITS = 4_300
"""Python reads no longer integer."""
_TYPES: Mapping[str, Callable[[str], Any]] = {
    "numeric": Decimal,
    "money": Decimal,
    "float4": float,
    "float8": float,
    "date": lambda text: date.fromisoformat(text.removesuffix("Z")),
    "time": lambda text: time.fromisoformat(text.removesuffix("Z")),
    "timetz": lambda text: time.fromisoformat(text.removesuffix("Z")).replace(tzinfo=UTC),
    "timestamp": lambda text: datetime.fromisoformat(text.removesuffix("Z")),
    "timestamptz": lambda text: datetime.fromisoformat(text.removesuffix("Z")).replace(tzinfo=UTC),
    "interval": _interval,
    "bytea": lambda text: base64.b64decode(text, validate=True),
    "uuid": UUID,
}
