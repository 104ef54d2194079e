"""The figures of a pipeline's running processes, asked for at their own addresses.

Anybody may answer there: nothing of an answer is believed but numbers of the right kind.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from contextlib import closing
from typing import Any, NamedTuple

from cdc.measures import Quantiles

_TIMEOUT_S = 1.0
_LONGEST_BYTES = 1_000_000
_MOST = 1e18


class FillShare(NamedTuple):
    """How far the fill of a store is, from 0 to 1. ``left_s``: seconds until its end, None where that is not known."""

    share: float
    left_s: float | None


def ask_status(address: str, pipeline: str) -> Mapping[str, Any] | None:
    """The document at ``/status`` of an address, host:port, where a process of this pipeline answers within a second.
    None where none does."""
    if not address:
        return None
    try:
        with closing(http.client.HTTPConnection(address, timeout=_TIMEOUT_S)) as connection:
            connection.request("GET", "/status")
            document = json.loads(connection.getresponse().read(_LONGEST_BYTES))
    except (OSError, ValueError, RecursionError, http.client.HTTPException):
        return None
    return document if isinstance(document, dict) and document.get("pipeline") == pipeline else None


def fresh_of(document: object) -> Quantiles | None:
    """The quantiles in a document's member ``freshness``. None where nothing came lately, or it is no such document."""
    said = document.get("freshness") if isinstance(document, dict) else None
    if not isinstance(said, dict):
        return None
    p50_s, p99_s, changes = (said.get(name) for name in Quantiles._fields)
    numbers = [number for one in (p50_s, p99_s) if (number := _number(one)) is not None]
    if len(numbers) < 2 or not isinstance(changes, int):
        return None
    return Quantiles(numbers[0], numbers[1], changes)


def fill_of(document: object) -> FillShare | None:
    """How far a fill is, in a document's member ``fill``. None where none runs, or it is no such document.

    >>> fill_of({"fill": {"share": 0.5, "remaining_seconds": None}}), fill_of({"fill": {"share": 7}})
    (FillShare(share=0.5, left_s=None), None)
    """
    said = document.get("fill") if isinstance(document, dict) else None
    share = _number(said.get("share")) if isinstance(said, dict) else None
    if share is None or share > 1 or not isinstance(said, dict):
        return None
    return FillShare(share, _number(said.get("remaining_seconds")))


def _number(said: object) -> float | None:
    """A number from 0 up that a figure can have. None for anything else."""
    if not isinstance(said, int | float) or isinstance(said, bool) or not 0 <= said < _MOST:
        return None
    return float(said)
