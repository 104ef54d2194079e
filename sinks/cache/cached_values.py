"""Values of a cache as its readers have them, by the types that are noted beside the cache's rows, and fills. Pure.

Fills are rows that readers had from Postgres, kept beside the sink's rows until it has caught up.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from math import isfinite
from typing import Any, Self
from uuid import UUID

import orjson

from cdc.process.errors import UsageError
from cdc.process.sql_files import load
from cdc.process.untrusted_text import quoted
from cdc.record.documents import dumped, reading
from cdc.record.progress import Watermark
from cdc.record.schema import TableSchema
from cdc.record.tokens import Token, TokenRelation, standing
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


KEEP = load("sinks.cache", "rows.lua")["fill"]
"""The script that writes a fill: one key, and the arguments of :meth:`Fill.arguments`."""
FIELDS = ("token", "row")
_NOT_PASSED = {TokenRelation.EMPTY, TokenRelation.UNNAMED, TokenRelation.BEHIND, TokenRelation.PROMOTION}
_HINT = "convert them as the stores have them: see Plain values in sinks/README.md"


@dataclass(frozen=True, slots=True)
class Fill:
    """A row as JSON, with the token that was taken before it was read. None for a row that is not there."""

    row: bytes | None
    token: Token

    @classmethod
    def of(cls, found: object) -> Self:
        """Take a row and a token, as a program has read them from Postgres. UsageError for anything else, and for a row
        whose values are not plain."""
        row, token = found if isinstance(found, tuple) and len(found) == 2 else (found, None)
        if not isinstance(token, Token):
            raise UsageError("a fill is a ReadRow: a row and a token", hint="return ReadRow(row, token) from read")
        if row is not None and not isinstance(row, Mapping):
            raise UsageError(
                f"a row that fills the cache is a mapping of columns to values, and not a {type(row).__name__}",
                hint="have the driver make such rows: psycopg.connect(…, row_factory=psycopg.rows.dict_row)",
            )
        return cls(_plain_text(row) if row is not None else None, token)

    @classmethod
    def kept(cls, fields: object) -> Self | None:
        """A fill as the cache has it: the fields of ``FIELDS``. None where it has none, or something else."""
        if not isinstance(fields, Sequence) or None in fields:
            return None
        token, row = fields
        try:
            return cls(row, Token.parse(token.decode())) if isinstance(row_of_json(row), dict) else None
        except (ValueError, UsageError):
            return None

    def document(self) -> Mapping[str, Any] | None:
        """The row as the stores have it."""
        return row_of_json(self.row) if self.row is not None else None

    def serves(self, watermark: Watermark | None, since: Token | None) -> bool:
        """Whether the row may be read. Not where the store shows all that is as old as the row: it may have shown a
        newer one since, and have evicted it. ``since``: not a row that was read before this token
        either."""
        # At the same LSN it may have been read before the commit was visible.
        seen = since is None or (
            (self.token.system, self.token.timeline) == (since.system, since.timeline) and self.token.lsn > since.lsn
        )
        return seen and standing(self.token, watermark) in _NOT_PASSED

    def arguments(self, keep_s: float) -> Sequence[str | bytes | int]:
        """Those of the script."""
        # The text sorts as the numbers do, under every collation of the server.
        read = f"{self.token.timeline:010d}{self.token.lsn:020d}"
        return self.token.system, read, str(self.token), self.row or b"", max(1, int(keep_s * 1000))


def _plain_text(row: Mapping[str, Any]) -> bytes:
    if any(map(_endless, row.values())):
        raise UsageError(
            "a row that fills the cache has plain values, and a float that is no number is none", hint=_HINT
        )
    try:
        # Moments have other texts in the stores than in Python.
        return dumped(dict(row), option=orjson.OPT_PASSTHROUGH_DATETIME)
    except TypeError as error:
        raise UsageError(f"a row that fills the cache has plain values: {quoted(error)}", hint=_HINT) from None


def _endless(value: object) -> bool:
    """JSON has no NaN and no infinity: they would turn into null."""
    match value:
        case float():
            return not math.isfinite(value)
        case Mapping():
            return any(map(_endless, value.values()))
        case str() | bytes():
            return False
        case Iterable():
            return any(map(_endless, value))
        case _:
            return False
