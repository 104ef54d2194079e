"""The parts that ``cdc up`` runs by the settings, and the consent that it needs first: pure."""

from __future__ import annotations

from typing import NamedTuple

from cdc.errors import ActiveError, CdcError
from cdc.found import Found, Unknown
from cdc.settings import Settings
from cdc.status.facts import SourceState

_LEFT_S = 15.0
"""For what a part does at its end beside the work that its settings bound."""
_STORES_S = 60.0
"""A sink ends between two batches. One that its store does not answer is given up before that."""


class Part(NamedTuple):
    """A command that runs for as long as the pipeline does. ``grace_s``: how long its end may take."""

    arguments: tuple[str, ...]
    grace_s: float


def parts_of(settings: Settings) -> tuple[Part, ...]:
    """The parts in the order of the data, which is the order of their ends: what is read on is written to the end."""
    drain_s = settings.capture.drain_timeout.total_seconds()
    capture = Part(("run",), drain_s + _LEFT_S)
    views = (Part(("view", "run"), _STORES_S),) if settings.views else ()
    stores = (Part(("sink",), _STORES_S),) if settings.sinks else ()
    return (capture, *views, *stores)


def slot_to_make(settings: Settings, source: Found[SourceState]) -> str | None:
    """The sentence that the user has to agree to. None where the slot is there already.

    CdcError where the server did not answer: its slot is not known then, and not absent. ActiveError where a capture
    reads the slot, before anything of a second pipeline writes beside it.
    """
    if isinstance(source, Unknown):
        raise source.because
    if source is None:
        raise CdcError("the source is no Postgres, and cdc up makes a replication slot on one")
    if source.slot is not None and source.slot.active_pid is not None:
        raise ActiveError(
            f"the slot {settings.slot} is read by another cdc run or cdc up (walsender {source.slot.active_pid})",
            hint="stop that one first, or look at it with cdc status --watch",
        )
    if source.slot is not None:
        return None
    return (
        f"This makes the replication slot {settings.slot} on {source.address}. A slot keeps WAL on that server until "
        "capture reads it. cdc drop removes it again."
    )
