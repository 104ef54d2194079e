"""How fresh changes are and how far a store is behind, as ``cdc status`` shows it: pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from cdc.measures import Quantiles
from cdc.progress import Mark


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
