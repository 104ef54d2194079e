"""The lines of ``cdc status`` about views: pure, from the facts that were read to a line and its faults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cdc.checks.conditions import BY_ITSELF, WATCH, Condition
from cdc.lsn import Lsn
from cdc.settings import LimitSettings
from cdc.status.figures import age, aged


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerState:
    """The facts in a runner's state. ``waiting``: keys whose documents are not published yet. ``parked``: documents
    that cannot be. ``size_bytes``: of its files."""

    waiting: int
    parked: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewFacts:
    """One view of the settings. ``generation``: None where it has no topic yet. ``epoch``, ``lsn``: up to where its
    topic is true, None before its first build is whole. ``state``: None where it is not on this machine. ``held``: why
    its LSN stays, empty where it goes on. ``known``: whether the log was read, which says all of this.
    ``fed``: whether a sink takes it."""

    name: str
    generation: int | None = None
    epoch: int | None = None
    lsn: int | None = None
    state: RunnerState | None = None
    held: str = ""
    known: bool = True
    fed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewStatus:
    """One line. ``shown``: ``absent`` (it has no topic), ``building`` (nothing is claimed yet), ``held`` (the log lacks
    rows of its tables), ``consistent``, or ``unknown`` (the log does not answer)."""

    facts: ViewFacts
    shown: str
    lag_bytes: int | None = None
    lag_s: float | None = None
    lag_at_least: bool = False

    def document(self) -> dict[str, Any]:
        """As ``cdc status --json`` prints it. Unknown members are null."""
        facts, state = self.facts, self.facts.state
        return {
            "state": self.shown,
            "generation": facts.generation,
            "lsn": str(Lsn(facts.lsn)) if facts.lsn is not None else None,
            "lag_bytes": self.lag_bytes,
            "lag_seconds": self.lag_s,
            "lag_at_least": self.lag_at_least,
            "waiting": state.waiting if state is not None else None,
            "parked": state.parked if state is not None else None,
            "state_bytes": state.size_bytes if state is not None else None,
            "held": facts.held or None,
            "fed": facts.fed,
        }


def view_status(view: ViewFacts, lag_bytes: int | None, lag_s: float | None) -> ViewStatus:
    """A view's line. ``lag_bytes`` and ``lag_s``: how far behind the source what it shows is, where that is known."""
    if not view.known:
        return ViewStatus(facts=view, shown="unknown")
    if view.held:
        return ViewStatus(facts=view, shown="held", lag_bytes=lag_bytes, lag_s=lag_s)
    if view.lsn is None:
        return ViewStatus(facts=view, shown="absent" if view.generation is None else "building")
    return ViewStatus(facts=view, shown="consistent", lag_bytes=lag_bytes, lag_s=lag_s)


def view_conditions(view: ViewStatus, limits: LimitSettings) -> Iterator[Condition]:
    """Each thing that is wrong with a view."""
    limit_s, name, state = limits.lag.total_seconds(), view.facts.name, view.facts.state
    if view.shown == "absent":
        yield Condition(f"the view {name} was never published: cdc view run {name} keeps it", f"cdc view run {name}")
    elif view.facts.held:
        yield Condition(f"the view {name} is held, and its LSN stays: {view.facts.held}", BY_ITSELF)
    elif view.lag_s is not None and view.lag_s > limit_s:
        late = aged(view.lag_s, view.lag_at_least)
        yield Condition(f"the view {name} is {late} behind; the limit is {age(limit_s)}", WATCH)
    if state is not None and state.parked:
        documents = "1 document is" if state.parked == 1 else f"{state.parked} documents are"
        said = f"the view {name}: {documents} parked, and its LSN stays below: the event document_parked says why"
        yield Condition(said, "correct that row in the source: its next change publishes the document")
