"""Values that capture could not have: Debezium's placeholder for an unchanged TOAST column, in its shapes."""

from __future__ import annotations

import base64
import hashlib
import uuid
from collections.abc import Mapping
from typing import Any

import orjson

from cdc.schema import Column, TableSchema
from cdc.wire.format import UNAVAILABLE
from cdc.wire.types import FIXED

BASE64 = base64.b64encode(UNAVAILABLE.encode()).decode()
NUMBERS = list(UNAVAILABLE.encode())
UUID = str(uuid.UUID(bytes=hashlib.md5(UNAVAILABLE.encode(), usedforsecurity=False).digest(), version=3))
"""As Java's ``UUID.nameUUIDFromBytes`` makes it: of an unchanged ``uuid[]``."""
_HSTORE = orjson.dumps({UNAVAILABLE: UNAVAILABLE}).decode()
_SHAPES: tuple[Any, ...] = (
    UNAVAILABLE,
    BASE64,
    [UNAVAILABLE],
    [BASE64],
    NUMBERS,
    _HSTORE,
    [_HSTORE],
    [UUID],
)


_TEXTS = frozenset(shape for shape in _SHAPES if isinstance(shape, str))


def may_be_unavailable(column: Column) -> bool:
    """Whether Postgres stores such values out of line when they are long."""
    return column.array or column.kind not in FIXED


def is_unavailable(value: Any) -> bool:
    """
    >>> is_unavailable("__debezium_unavailable_value"), is_unavailable(["__debezium_unavailable_value"])
    (True, True)
    """
    if isinstance(value, str):
        return value in _TEXTS
    return isinstance(value, list) and value in _SHAPES


def missing(after: Mapping[str, Any], schema: TableSchema) -> list[str]:
    """Names of the columns of a row (as on the wire) whose values are unavailable."""
    return [c.name for c in schema.columns if may_be_unavailable(c) and is_unavailable(after.get(c.name))]
