"""How fresh changes are, as ``cdc status`` shows it: pure."""

from __future__ import annotations

from typing import Any

from cdc.measures import Quantiles


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
