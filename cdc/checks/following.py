"""The checks of how captured tables are followed: pure, from what ``cdc status`` shows as well.

A table that waits, is set aside or is not followed lets ``cdc run`` go on. So nothing else that ``cdc check`` looks at
fails because of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from cdc.aside import AsideState, TableState
from cdc.checks.conditions import (
    absence,
    aside_condition,
    failed_reading,
    failed_readings,
    troubles,
    unfed_view,
    waiting_reading,
)
from cdc.checks.finding import Finding, fail, ok, warn
from cdc.errors import Exit
from cdc.following import Unfollowed
from cdc.found import Unknown
from cdc.running import Process
from cdc.state import ReadingState, find_all, requests_of

PART, PROCESSES = "capture", "processes"


def check_following(
    asides: Mapping[str, AsideState],
    not_followed: Mapping[str, Unfollowed] | Unknown,
    tables: int,
    documents: Mapping[bytes, bytes],
) -> Iterator[Finding]:
    """One finding for each table that is not followed as the others are, or one for all.

    ``asides``: from the state topic. ``not_followed``: table -> why, from the catalog, or that it was not read.
    ``tables``: how many are captured. ``documents``: of the state topic, for the tables that are read again.
    """
    left = {} if isinstance(not_followed, Unknown) else not_followed
    for _, unfollowed in sorted(left.items()):
        yield fail(PART, "following", unfollowed.why, unfollowed.fix)
    read = {one.table for one in requests_of(documents)}
    for table, one in sorted(asides.items()):
        if table not in left:
            yield _judged(one, read)
    if not isinstance(not_followed, Unknown) and not left and not asides:
        yield ok(PART, "following", f"each of the {tables} captured tables is followed")


def check_readings(documents: Mapping[bytes, bytes]) -> Iterator[Finding]:
    """A finding for each table that could not be read again, or that waits for something. ``documents``: of the state
    topic."""
    states = find_all(documents, ReadingState)
    for state in failed_readings(states):
        sentence, cure = failed_reading(state.table, state.detail)
        yield fail(PART, "readings", sentence, cure, exit=Exit.DIFFERENCE)
    for state in states:
        if state.state == "waiting" and state.detail:
            yield warn(PART, "readings", *waiting_reading(state.table, state.detail))


def check_processes(processes: Iterable[Process]) -> Iterator[Finding]:
    """A finding for each process of the pipeline, by its own words."""
    for process in processes:
        found = list(troubles(process))
        yield from (fail(PROCESSES, "running", *one, exit=Exit.DIFFERENCE) for one in found)
        unsaid = [part for part in process.parts if part not in process.said]
        if unsaid:
            yield warn(PROCESSES, "running", *absence(process, unsaid))
        elif not found:
            yield ok(PROCESSES, "running", f"{process.command} answers at {process.address}, and goes on")


def check_views(unfed: Iterable[str]) -> Iterator[Finding]:
    """A finding for each view that no sink takes. ``unfed``: their names."""
    yield from (warn("views", "stores", *unfed_view(name)) for name in unfed)


def _judged(one: AsideState, read: Collection[str]) -> Finding:
    sentence, cure = aside_condition(one, read)
    if one.state is TableState.ASIDE:
        return fail(PART, "following", sentence, cure, exit=Exit.DIFFERENCE)
    return warn(PART, "following", sentence, cure)
