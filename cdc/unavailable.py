"""Values that capture could not have: Debezium's placeholder for an unchanged TOAST column, in its shapes."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import orjson

from cdc.plain import UNAVAILABLE
from cdc.schema import Column, TableSchema

BASE64 = base64.b64encode(UNAVAILABLE.encode()).decode()
NUMBERS = list(UNAVAILABLE.encode())
_HSTORE = orjson.dumps({UNAVAILABLE: UNAVAILABLE}).decode()
_SHAPES: tuple[Any, ...] = (UNAVAILABLE, BASE64, [UNAVAILABLE], [BASE64], NUMBERS, _HSTORE, [_HSTORE])

_FIXED = frozenset(("bool", "int2", "int4", "int8", "oid", "float4", "float8", "money", "date", "uuid", "name", "enum"))
_FIXED_TIMES = frozenset(("time", "timetz", "timestamp", "timestamptz", "interval", "macaddr", "macaddr8", "point"))


def may_be_unavailable(column: Column) -> bool:
    """Whether Postgres stores such values out of line when they are long."""
    return column.array or column.kind not in _FIXED | _FIXED_TIMES


def is_unavailable(value: Any) -> bool:
    """
    >>> is_unavailable("__debezium_unavailable_value"), is_unavailable(["__debezium_unavailable_value"])
    (True, True)
    """
    return value in _SHAPES


def missing(after: Mapping[str, Any], schema: TableSchema) -> list[str]:
    """Names of the columns of a row (as on the wire) whose values are unavailable."""
    return [c.name for c in schema.columns if may_be_unavailable(c) and is_unavailable(after.get(c.name))]
