"""Conditions on rows, as pyiceberg has them. Their classes say too little to a checker of types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyiceberg.expressions import BooleanExpression, In, IsNull, LessThan

from sinks.iceberg.iceberg_columns import CDC_KEY, CDC_POS


def keyed(keys: Sequence[Any]) -> BooleanExpression:
    """Rows under any of these keys."""
    one_of: Any = In
    made: BooleanExpression = one_of(CDC_KEY, list(keys))
    return made


def no_key() -> BooleanExpression:
    """Rows that another writer put there without a key."""
    is_null: Any = IsNull
    made: BooleanExpression = is_null(CDC_KEY)
    return made


def below(floor: str) -> BooleanExpression:
    """Rows below a position."""
    less: Any = LessThan
    made: BooleanExpression = less(CDC_POS, floor)
    return made
