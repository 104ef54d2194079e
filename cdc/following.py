"""The captured tables that are not followed any more: pure.

A table that is out of the publication, was renamed, made anew under its name, or dropped: the stream says nothing of
it, and its topic looks as if nothing happened to it. The same is true of rows in a table that came to inherit from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from cdc.checks.facts import PublicationFacts
from cdc.state import FormState, SlotState, SnapshotTableState, TopicsState, find_all
from cdc.topic import TableName

OPERATIONS = frozenset(("insert", "update", "delete", "truncate"))
FOLLOW_AGAIN = "rename it back, or publish it again: cdc init"


class Unfollowed(NamedTuple):
    """``why``: a sentence. ``fix``: what ends it. ``lacking``: the table is there, and its changes are being lost."""

    why: str
    fix: str = FOLLOW_AGAIN
    lacking: bool = True


def not_followed(
    tables: Iterable[str],
    oids: Mapping[str, int],
    relations: Mapping[int, TableName],
    publication: PublicationFacts | None,
    children: Mapping[int, Sequence[TableName]],
) -> dict[str, Unfollowed]:
    """Captured table -> why it is not followed.

    ``oids``: the relation that was captured under each name, as far as known. ``relations``: those of the catalog that
    have one of these names or oids. ``children``: of them, tables that inherit from each and are not captured.
    """
    if publication is None:
        return {}
    sent = {str(table) for table in publication.tables}
    here = {str(table): oid for oid, table in relations.items()}
    found = {}
    for table in tables:
        known = oids.get(table)
        if table not in here and known is not None:
            found[table] = _gone(table, relations.get(known))
        elif table in here and table not in sent:
            anew = known is not None and known != here[table]
            was = "was made anew, and " if anew else ""
            why = f"{table} {was}is not in the publication {publication.publication}: it is not followed"
            found[table] = Unfollowed(why)
        elif table in here and publication.operations < OPERATIONS:
            missing = ", ".join(sorted(OPERATIONS - publication.operations))
            why = f"{table} is not followed: the publication {publication.publication} leaves out {missing}"
            found[table] = Unfollowed(why)
        elif table in here and children.get(here[table]):
            found[table] = Unfollowed(children_sentence(table, children[here[table]]), NAME_CHILDREN, lacking=False)
    return found


def _gone(table: str, now: TableName | None) -> Unfollowed:
    if now is not None:
        return Unfollowed(f"{table} was renamed to {now}, and is not followed under that name")
    return Unfollowed(
        f"{table} is gone from the source: its topic and its rows in the stores stay",
        f'take it out of [source] tables, or add it to exclude: "{table}"; then start cdc run again',
        lacking=False,
    )


NAME_CHILDREN = "name them in [source] tables, as tables of their own, or in [source] exclude; then cdc init"


def children_sentence(table: TableName | str, children: Iterable[TableName]) -> str:
    """That rows of a table are in others that inherit from it and that the settings do not mention."""
    return f"{table} has rows in tables that inherit from it and are not captured: {', '.join(map(str, children))}"


def captured_oids(documents: Mapping[bytes, bytes]) -> dict[str, int]:
    """Table -> the relation that it was when the watch last saw it, else when the first snapshot read it.
    ``documents``: the state topic's records."""
    plans = {plan.table: plan.oid for plan in find_all(documents, SnapshotTableState)}
    return plans | {form.table: form.oid for form in find_all(documents, FormState)}


def stopped_following(
    documents: Mapping[bytes, bytes],
    takes: Callable[[str], bool],
    relations: Callable[[Sequence[str], Sequence[int]], Mapping[int, TableName]],
    publication: Callable[[], PublicationFacts | None],
    children: Callable[[Sequence[int]], Mapping[int, Sequence[TableName]]] = lambda oids: {},
) -> dict[str, Unfollowed]:
    """:func:`not_followed` of what the state topic says. Empty before the first snapshot: then nothing is followed yet.

    ``takes``: whether the settings name a table. ``relations``: those that have one of these names or oids.
    ``children``: tables that inherit from one of these relations and that the settings do not mention.
    """
    topics, oids = TopicsState.find(documents), captured_oids(documents)
    if topics is None or SlotState.find(documents) is None:
        return {}
    wanted = [table for table in topics.tables if takes(table)]
    found = relations(wanted, [oids[table] for table in wanted if table in oids])
    return not_followed(wanted, oids, found, publication(), children(list(found)))
