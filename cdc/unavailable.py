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

_ONE_LENGTH = """
bool int2 int4 int8 oid float4 float8 money date time timetz timestamp timestamptz interval
uuid name char enum macaddr macaddr8 point box lseg circle line
"""
NEVER_OUT_OF_LINE = frozenset(_ONE_LENGTH.split())
"""Kinds whose values all have one length (``typlen`` in pg_type): Postgres never stores them out of line."""


def may_be_unavailable(column: Column) -> bool:
    """Whether Postgres stores such values out of line when they are long."""
    return column.array or column.kind not in NEVER_OUT_OF_LINE


def is_unavailable(value: Any) -> bool:
    """
    >>> is_unavailable("__debezium_unavailable_value"), is_unavailable(["__debezium_unavailable_value"])
    (True, True)
    """
    return value in _SHAPES


def missing(after: Mapping[str, Any], schema: TableSchema) -> list[str]:
    """Names of the columns of a row (as on the wire) whose values are unavailable."""
    return [c.name for c in schema.columns if may_be_unavailable(c) and is_unavailable(after.get(c.name))]
