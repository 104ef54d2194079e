"""The end of an application that stops once its stores have caught up: what they may still claim of the log."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from cdc.clock import SYSTEM_CLOCK, Clock
from cdc.progress import Offsets, Watermark
from spark.ports import SinkTopics
from spark.watermark import Claim, LogView

CLAIM_S = 3.0
"""How long stores that have caught up may take to claim the LSN that goes with it."""
HEAR_S = 30.0
"""How long progress that is in the log may take to be heard, and a store or the broker to do their part
of a claim that it proves. It comes within a second, unless one of them is slow or away."""

Reached = tuple[int, int]
"""An epoch and an LSN in it. They compare."""


class Claiming(Protocol):
    """A store, as far as its claim goes."""

    @property
    def name(self) -> str:
        """Its sink's."""

    @property
    def offsets(self) -> Offsets:
        """The offsets that it shows."""

    @property
    def shown(self) -> Watermark | None:
        """All that it claims. None of an empty store."""

    @property
    def topics(self) -> SinkTopics:
        """The topics that it reads."""


class LastClaims:
    """Whether stores that have caught up may still claim more. ``newest``: as the log had it at the start. None where
    nothing says it. The rows below it were in the topics then, so that a store which has caught up has them."""

    def __init__(self, view: LogView, newest: Reached | None, clock: Clock = SYSTEM_CLOCK) -> None:
        self._view = view
        self._newest = newest
        self._clock = clock
        self._since_s: float | None = None
        self._heard_s: float | None = None

    def owed(self, stores: Collection[Claiming]) -> bool:
        """Whether the end should wait for a claim of these stores, all of which have caught up. Not for ever: the log
        may say nothing more, and a claim may depend on what a capture that is down would write."""
        now_s = self._clock.monotonic()
        self._since_s = now_s if self._since_s is None else self._since_s
        if self._heard_s is None and self._newest is not None and not self._view.has_heard(self._newest):
            return now_s - self._since_s < HEAR_S
        self._heard_s = now_s if self._heard_s is None else self._heard_s
        if any(self._due(store, now_s, self._since_s) for store in stores):
            return now_s - self._heard_s < HEAR_S
        return now_s - self._heard_s < CLAIM_S and any(self._owes(store, now_s) for store in stores)

    def lacking(self, stores: Collection[Claiming]) -> dict[str, Reached]:
        """The stores that claim less than the log had at the start, each with what they claim."""
        return {store.name: _claimed(store.shown) for store in stores if self._lacks(store)}

    def _lacks(self, store: Claiming) -> bool:
        return self._newest is not None and _claimed(store.shown) < self._newest

    def _due(self, store: Claiming, now_s: float, since_s: float) -> bool:
        """Whether a claim of what the log had at the start is on its way: the store has only to write what is proven,
        or the broker to say where the topics end."""
        if not self._lacks(store):
            return False
        # It claims less than the newest of the start: what is proven above its claim is of use.
        proven = _claimed(self._view.claim(None, Claim(store.offsets, now_s), store.topics))
        return proven > _claimed(store.shown) or self._view.seen_s < since_s

    def _owes(self, store: Claiming, now_s: float) -> bool:
        shown = store.shown
        # It has the rows of a table that it held, and says so at its next look.
        behind = shown is not None and not shown.held.keys().isdisjoint(store.topics.ids)
        return behind or self._view.owes(shown, Claim(store.offsets, now_s), store.topics)


def _claimed(mark: Watermark | None) -> Reached:
    return (mark.epoch, mark.lsn) if mark is not None else (1, 0)
