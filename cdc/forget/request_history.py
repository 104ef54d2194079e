"""Requests to read rows of a table again, as the state topic has them: their keys and conditions are of rows. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import orjson

from cdc.errors import CdcError
from cdc.forget.key_history import SeenRecord
from cdc.forget.typed_key import TypedKey
from cdc.state import RequestState
from cdc.wire.plain import escape_key


@dataclass(frozen=True, slots=True)
class RequestHistory:
    """``keys``: records that name the key. ``conditions``: records with a condition on the table, which may name values
    of any row. ``newest_ms``: when the newest of all these was written."""

    keys: int = 0
    conditions: int = 0
    newest_ms: int = 0


def request_history(records: Iterable[SeenRecord], table: str, key: TypedKey) -> RequestHistory:
    """Of every record of the state topic."""
    keys = conditions = newest_ms = 0
    for record in records:
        request = _request(record)
        if request is None or request.table != table:
            continue
        named = any(key.matches(":".join(map(escape_key, parts))) for parts in request.keys or ())
        keys += named
        conditions += request.where is not None
        if named or request.where is not None:
            newest_ms = max(newest_ms, record.time_ms)
    return RequestHistory(keys, conditions, newest_ms)


def _request(record: SeenRecord) -> RequestState | None:
    """None for every other document, and for one that nobody carries out."""
    try:
        if record.value is None or orjson.loads(record.key or b"")["what"] != RequestState.WHAT:
            return None
        return RequestState.from_json(record.value)
    except (CdcError, ValueError, KeyError, TypeError):
        return None
