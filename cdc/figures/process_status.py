"""The figures of a pipeline's running processes and their own words, asked for at their own addresses.

Anybody may answer there: nothing of an answer is believed but numbers of the right kind, and sentences are cut short
and cleaned.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cdc.figures.measures import Quantiles
from cdc.process.untrusted_text import hide

CAPTURE = "cdc run"
"""The command of the native capture, and the part that it keeps."""
_TIMEOUT_S = 1.0
_LONGEST_BYTES = 1_000_000
_MOST = 1e18
_LONGEST_WORDS = 600


class FillShare(NamedTuple):
    """How far the fill of a store is, from 0 to 1. ``left_s``: seconds until its end, None where that is not known."""

    share: float
    left_s: float | None


class Trouble(NamedTuple):
    """Why a part does not do its work, in its own words, and what ends that. Both empty where it does."""

    why: str = ""
    cure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process of the pipeline, as it answered at its address. ``command``: as ``cdc sink``. ``setting``: the one that
    has its ``address``, which may be empty. ``parts``: those that it is to keep. ``said``: by part, its own word. A
    process that does not answer has said nothing."""

    command: str
    setting: str
    address: str
    parts: Sequence[str]
    said: Mapping[str, Trouble] = field(default_factory=dict)


def view_part(name: str) -> str:
    """A view among the parts: a sink may have its name."""
    return f"the view {name}"


def stream_part(name: str) -> str:
    """A stream among the parts."""
    return f"the stream {name}"


def trouble_of(document: object) -> Trouble:
    """The own word in a part's document. Empty where it has none, or it is no such document.

    >>> trouble_of({"trouble": "stopped: another writes", "cure": "stop it"})
    Trouble(why='stopped: another writes', cure='stop it')
    >>> trouble_of({"trouble": 7}), trouble_of(None)
    (Trouble(why='', cure=''), Trouble(why='', cure=''))
    """
    said = document if isinstance(document, dict) else {}
    why, cure = (_words(said.get(name)) for name in ("trouble", "cure"))
    return Trouble(why, cure if why else "")


def _words(said: object) -> str:
    """One line of somebody's, without secrets that are known here."""
    return hide(" ".join(said.split()))[:_LONGEST_WORDS] if isinstance(said, str) else ""


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
