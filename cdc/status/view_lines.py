"""The lines of ``cdc status``: figures as people read them, of capture, stores and views. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cdc.checks.findings import BY_ITSELF, WATCH, Condition
from cdc.figures.measures import Quantiles
from cdc.figures.process_status import FillShare
from cdc.operate.rebuild import RebuildState
from cdc.record.position import Lsn
from cdc.record.progress import Mark
from cdc.settings.model import LimitSettings


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


_DAY_S = 86_400


def size(count: int | None) -> str:
    """Bytes for people.

    >>> size(0), size(300), size(20_000), size(3_000_000), size(None)
    ('0 B', '300 B', '19.5 kB', '2.9 MB', '?')
    """
    if count is None:
        return "?"
    for unit, one in (("GB", 1024**3), ("MB", 1024**2), ("kB", 1024)):
        if count >= one:
            return f"{count / one:.1f} {unit}"
    return f"{count} B"


def age(seconds: float | None) -> str:
    """Seconds for people.

    >>> age(0.04), age(12.34), age(600), age(90_000), age(None)
    ('0.0 s', '12.3 s', '10 min', '25 h', '?')
    >>> age(1_000_000), age(1e17)
    ('12 days', '> 999 days')
    """
    if seconds is None:
        return "?"
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 3 * _DAY_S:
        return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
    return f"{seconds / _DAY_S:.0f} days" if seconds < 999 * _DAY_S else "> 999 days"


def aged(seconds: float | None, at_least: bool) -> str:
    """The same of an age that may be more.

    >>> aged(110.0, False), aged(110.0, True)
    ('110.0 s', '> 110.0 s')
    """
    return f"> {age(seconds)}" if at_least and seconds is not None else age(seconds)


def share_text(share: float) -> str:
    """How much is done, for people. Anything less than all is less than 100 %.

    >>> share_text(0.414), share_text(0.9996), share_text(1.0)
    ('41%', '99%', '100%')
    """
    return f"{math.floor(share * 100 + 1e-9)}%"


def rate(count_bytes: float) -> str:
    """Bytes a second, for people."""
    return f"{size(round(count_bytes))}/s"


def count(number: int) -> str:
    """A number, for people.

    >>> count(25167)
    '25,167'
    """
    return f"{number:,}"


def seconds_text(seconds: float) -> str:
    """Seconds with their hundredths, for people."""
    return f"{seconds:.2f} s"


def fresh_document(known: bool, fresh: Quantiles | None) -> dict[str, Any]:
    """As ``--json`` has it: ``freshness`` null where no process answered, or nothing came in the last minutes."""
    if fresh is None:
        return {"freshness": None, "freshness_known": known}
    members = {"p50_seconds": fresh.p50_s, "p99_seconds": fresh.p99_s, "changes": fresh.changes}
    return {"freshness": members, "freshness_known": known}


def fresh_text(known: bool, fresh: Quantiles | None) -> str:
    """The same for people.

    >>> fresh_text(False, None), fresh_text(True, None)
    ('not known', 'nothing came in the last 5 minutes')
    >>> fresh_text(True, Quantiles(0.12, 3.0, 1500))
    'p50 0.12 s, p99 3.00 s'
    """
    if fresh is None:
        return "nothing came in the last 5 minutes" if known else "not known"
    return f"p50 {fresh.p50_s:.2f} s, p99 {fresh.p99_s:.2f} s"


class Age(NamedTuple):
    """How long ago the log first had more than a store shows. ``at_least``: it may be longer."""

    seconds: float
    at_least: bool = False


def lag_of(marks: Sequence[Mark], shown: tuple[int, int], now_ms: int, level_ms: int = 0) -> Age:
    """The lag of a store that shows ``shown`` (epoch, lsn). 0 when the log has no more.

    The log keeps progress records for some minutes only. Behind the oldest of them the time counts at which the store
    was last level with the log: ``level_ms``, 0 where nobody knows.

    >>> marks = [Mark(1, 10, 1000), Mark(1, 20, 2000), Mark(1, 30, 3000)]
    >>> lag_of(marks, (1, 10), 5000).seconds, lag_of(marks, (1, 30), 5000).seconds
    (3.0, 0.0)
    >>> lag_of(marks, (1, 5), 5000), lag_of(marks, (1, 5), 5000, level_ms=500)
    (Age(seconds=4.0, at_least=True), Age(seconds=4.5, at_least=False))
    """
    newer = [mark.at_ms for mark in marks if (mark.epoch, mark.lsn) > shown]
    if not newer:
        return Age(0.0)
    kept = len(newer) < len(marks)
    since_ms = newer[0] if kept or not level_ms else min(newer[0], level_ms)
    return Age(max(0.0, (now_ms - since_ms) / 1000), at_least=not kept and since_ms == newer[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkStatus:
    """One line of the table. ``state``: ``consistent``, ``bootstrapping`` (the first snapshot does not all show
    yet), ``filling`` (reading the log from its beginning), ``holding`` (all but the tables in ``held`` is as ``lsn``
    says), ``level`` or ``behind`` (of a source without LSNs: whether it shows every record of the topics), ``empty``,
    ``unreachable``, ``unjudged`` (the log that it is compared with does not answer). ``held``: table -> why, empty
    where it is being brought up to date. ``lag_at_least``: ``lag_s`` may be more. ``lag_records``: of the topics, where
    there are no LSNs. ``fresh``: from commit to store in the last minutes, None where nothing came; ``fresh_known``:
    whether a running ``cdc sink`` reported it.
    ``fill``: how far that process is with a fill, None where none runs. ``rebuild``: that is not over."""

    name: str
    kind: str
    state: str
    lsn: int | None
    lag_bytes: int | None
    lag_s: float | None
    parked: int | None
    lag_at_least: bool = False
    held: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None
    lag_records: int | None = None
    fresh: Quantiles | None = None
    fresh_known: bool = False
    fill: FillShare | None = None
    rebuild: RebuildState | None = None

    def document(self) -> dict[str, Any]:
        """As ``cdc status --json`` prints it. Unknown members are null."""
        fill = self.fill
        return {
            "kind": self.kind,
            "state": self.state,
            "lsn": str(Lsn(self.lsn)) if self.lsn is not None else None,
            "lag_bytes": self.lag_bytes,
            "lag_seconds": self.lag_s,
            "lag_at_least": self.lag_at_least,
            "lag_records": self.lag_records,
            "parked": self.parked,
            "held": dict(self.held),
            "error": self.error,
            "fill": {"share": fill.share, "remaining_seconds": fill.left_s} if fill is not None else None,
            "rebuild": self.rebuild.noted() if self.rebuild is not None else None,
            **fresh_document(self.fresh_known, self.fresh),
        }
