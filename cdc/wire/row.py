"""From a record's value to its row, without reading more of the envelope than is needed.

Our envelope has a fixed order of members (see the wire manual), so the row is a slice between two fixed marks.
An envelope of any other order is read whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import orjson

from cdc.json_bytes import dumped
from cdc.wire.format import AFTER, NEW_ROW, NO_OLD_ROW, OLD_ROW, SOURCE

_HEAD = NO_OLD_ROW + NEW_ROW + b"{"
_HEAD_LENGTH = len(_HEAD) - 1
_SOURCE = b'},"source":{"version":'
_OLD = OLD_ROW + b"{"
_AFTER = b"}" + NEW_ROW + b"{"

RowOf = Callable[[bytes], bytes]


def row_reader(columns: Sequence[str]) -> RowOf:
    """How to get at the row of a table with these columns: value -> JSON of ``after`` as it stands on the wire.

    The result is not checked to be JSON where it was cut out. A reader of it does that. Raises ValueError when
    the value is not an envelope with a row.
    """
    # The marks hold quotes, which stand in no string unescaped. Only a column of the same name could be one.
    if AFTER in columns or SOURCE in columns:
        return row_of
    return _cut


def row_of(value: bytes) -> bytes:
    """The row, by reading the whole envelope. ValueError when there is none."""
    try:
        envelope = orjson.loads(value)
    except orjson.JSONDecodeError:
        raise ValueError("the value is not JSON") from None
    after: Any = envelope.get(AFTER) if isinstance(envelope, dict) else None
    if not isinstance(after, dict):
        raise ValueError("the value holds no row")
    return dumped(after)


def _cut(value: bytes) -> bytes:
    if value.startswith(_HEAD):
        start = _HEAD_LENGTH
    elif value.startswith(_OLD):
        start = value.find(_AFTER) + len(_AFTER) - 1
        if start < len(_AFTER):
            return row_of(value)
    else:
        return row_of(value)
    end = value.find(_SOURCE, start)
    return value[start : end + 1] if end > 0 and value.endswith(b"}") else row_of(value)
