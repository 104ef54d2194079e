"""A view's key as a person types it: a value of its one column, or a JSON object. Pure.

``42`` is the text 42 where the column is a text, and a number where it is one. Dates, times, numbers and uuids
are read as Postgres reads them, so a uuid may have capitals and a numeric fewer digits than its column.
"""

from __future__ import annotations

from typing import Any

import orjson

from cdc.views.conversions import cast
from cdc.views.lookups import Row
from cdc.views.sql_types import PRINTED, Group, SqlType
from cdc.views.stored_values import cell
from cdc.views.view_plan import ViewPlan
from cdc.views.view_records import key_part
from cdc.wire.plain import KEYLESS

_TEXT = SqlType("text")
_READ = frozenset(
    {
        Group.BOOLEAN,
        Group.INTEGER,
        Group.NUMERIC,
        Group.DATE,
        Group.TIME,
        Group.TIMESTAMP,
        Group.TIMESTAMPTZ,
        Group.INTERVAL,
        Group.UUID,
    }
)
"""Groups of which Postgres takes other spellings than the one on the wire."""


def typed_row(plan: ViewPlan, key: str) -> Row:
    """The key in the state that a typed one means. ValueError where it is none of the view's.

    ``key``: a JSON object of the key's columns, or the value of its one column, in quotes or without. Of a view of one
    row ``{}`` or ``all``. ``null`` is NULL where a group's key may be it, and ``"null"`` the word.
    """
    kinds = {output: kind for (_, output), kind in zip(plan.key, plan.key_kinds, strict=True)}
    nullable = plan.grouping is not None
    key.encode()  # A ValueError where a shell gave bytes that are no UTF-8: no row has them.
    found = _parsed(key)
    if not kinds and key == KEYLESS:
        return ()
    if isinstance(found, dict) and found.keys() == kinds.keys():
        return tuple(_member(found[name], kind, nullable) for name, kind in kinds.items())
    if len(kinds) != 1:
        raise ValueError("a key of several columns is a JSON object")
    (kind,) = kinds.values()
    if found is None and key == "null" and nullable:
        return (None,)
    return (_typed(found if isinstance(found, str) else key, kind),)


def _parsed(key: str) -> object:
    try:
        return orjson.loads(key)
    except orjson.JSONDecodeError:
        return None


def _member(value: Any, kind: SqlType, nullable: bool) -> Any:
    """A value of a JSON object. A number stands for its text where the column is no number."""
    if isinstance(value, str):
        return _typed(value, kind)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return _typed(str(value), kind) if is_number else key_part(value, kind, nullable)


def _typed(text: str, kind: SqlType) -> Any:
    if kind.group in _READ:
        try:
            read, keep = cast(_TEXT, kind), cell(kind)
            value = text if read is None else read(text)
            return value if keep is None else keep(value)
        except (ArithmeticError, KeyError, ValueError):
            pass  # It may stand as it does on the wire: a year before 1 BC, an interval in ISO 8601.
    as_json = kind.group is Group.FLOAT or kind.kind in PRINTED
    number = _parsed(text) if as_json else None
    return key_part(text if number is None else number, kind, False)
