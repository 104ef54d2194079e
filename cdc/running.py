"""The figures of a pipeline's running processes, asked for at their own addresses.

Anybody may answer there: nothing of an answer is believed but numbers of the right kind.
"""

from __future__ import annotations

import http.client
import json
import math
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from cdc.measures import Quantiles

_TIMEOUT_S = 1.0
_LONGEST_BYTES = 1_000_000


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
    numbers = [one for one in (p50_s, p99_s) if isinstance(one, int | float) and not isinstance(one, bool)]
    if len(numbers) < 2 or not isinstance(changes, int) or not all(math.isfinite(one) and one >= 0 for one in numbers):
        return None
    return Quantiles(float(numbers[0]), float(numbers[1]), changes)
