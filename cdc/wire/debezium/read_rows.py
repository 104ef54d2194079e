"""Rows that a snapshot of Debezium's read, told from changes without a reader of their topic."""

from __future__ import annotations

from typing import Any

import orjson

from cdc.wire.debezium.wrapped import without_halves


def is_read_row(value: bytes | None) -> bool:
    """Whether a record of Debezium's is a row that a snapshot read: by its operation, or by its text where it is not
    JSON.

    >>> is_read_row(b'{"payload": {"op": "r", "source": {}}}'), is_read_row(b'{"op": "c"}'), is_read_row(None)
    (True, False, False)
    >>> is_read_row(b'{"id": 1, "__op": "r"}'), is_read_row(bytes([0, 0, 0, 0, 7]) + b"incremental")
    (True, True)
    """
    if value is None:
        return False
    try:
        document: Any = orjson.loads(without_halves(value))
    except orjson.JSONDecodeError:
        return b"incremental" in value
    if isinstance(document, dict) and "payload" in document and document.keys() <= {"schema", "payload"}:
        document = document["payload"]
    if not isinstance(document, dict):
        return False
    return document.get("__op") == "r" or (document.get("op") == "r" and "source" in document)
