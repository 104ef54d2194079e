"""The end of an application that stops once its stores have caught up: what they may still claim of the log."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from cdc.clock import SYSTEM_CLOCK, Clock
from cdc.progress import Offsets, Watermark
from spark.ports import LogQuestions, SinkTopics
from spark.watermark import Claim, LogView

CLAIM_S = 3.0
"""How long stores that have caught up may take to claim the LSN that goes with it (hazard H298)."""
HEAR_S = 30.0
"""How long progress that is in the log may take to be heard (hazard H502). It comes within a second, unless the broker
is slow or away."""


class Claiming(Protocol):
    """A store, as far as its claim goes."""

    @property
    def offsets(self) -> Offsets:
        """The offsets that it shows."""

    @property
    def shown(self) -> Watermark | None:
        """All that it claims. None of an empty store."""

    @property
    def topics(self) -> SinkTopics:
        """The topics that it reads."""


def newest_in(facts: LogQuestions) -> Mapping[str, tuple[int, int]]:
    """By shard of capture, the epoch and the LSN of the newest progress in the log now. "" is a capture without shards.
    Empty where nothing says it. LogError when the broker does not answer."""
    one = facts.newest()
    return {"": one} if one is not None else facts.shard_newest()


class LastClaims:
    """Whether stores that have caught up may still claim more. ``newest``: as :func:`newest_in` had it at the start.
    The rows below it were in the topics then, so that a store which has caught up has them."""

    def __init__(self, view: LogView, newest: Mapping[str, tuple[int, int]], clock: Clock = SYSTEM_CLOCK) -> None:
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
        if self._heard_s is None and not self._view.has_heard(self._newest):
            return now_s - self._since_s < HEAR_S
        self._heard_s = now_s if self._heard_s is None else self._heard_s
        return now_s - self._heard_s < CLAIM_S and any(self._owes(store, now_s) for store in stores)

    def _owes(self, store: Claiming, now_s: float) -> bool:
        return self._view.owes(store.shown, Claim(store.offsets, now_s), store.topics)
