"""The checks of how captured tables are followed: pure, from what ``cdc status`` shows as well (H119).

A table that waits, is set aside or is not followed lets ``cdc run`` go on. So nothing else that ``cdc check`` looks at
fails because of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cdc.aside import AsideState, Cause, TableState
from cdc.checks.finding import Finding, fail, ok, warn
from cdc.errors import Exit
from cdc.following import FOLLOW_AGAIN, Unfollowed
from cdc.found import Unknown

PART = "capture"
_FIXES = {
    Cause.LOCKED: "end the transaction that has its lock; connectors/postgres/README.md, A table waits, has the query",
    Cause.CHANGED: "cdc snapshot {table} takes its key as it is now, or give it its former key again",
    Cause.NOT_FOLLOWED: FOLLOW_AGAIN,
    Cause.NOT_READABLE: "grant select on {table} to the role of capture; then it is read again by itself",
}


def check_following(
    asides: Mapping[str, AsideState], not_followed: Mapping[str, Unfollowed] | Unknown, tables: int
) -> Iterator[Finding]:
    """One finding for each table that is not followed as the others are, or one for all.

    ``asides``: from the state topic. ``not_followed``: table -> why, from the catalog, or that it was not read.
    ``tables``: how many are captured.
    """
    left = {} if isinstance(not_followed, Unknown) else not_followed
    for _, one in sorted(left.items()):
        yield fail(PART, "following", one.why, one.fix)
    for table, state in sorted(asides.items()):
        if table not in left:
            yield _judged(state)
    if not isinstance(not_followed, Unknown) and not left and not asides:
        yield ok(PART, "following", f"each of the {tables} captured tables is followed")


def _judged(one: AsideState) -> Finding:
    if one.state is TableState.READING:
        return warn(PART, "following", one.sentence(), "cdc status shows how far it is")
    fix = _FIXES[one.cause].format(table=one.table)
    if one.state is TableState.WAITING:
        return warn(PART, "following", one.sentence(), fix)
    return fail(PART, "following", one.sentence(), fix, exit=Exit.DIFFERENCE)
