"""The captured tables that exist and are not followed any more: pure (H96).

A table that is out of the publication, was renamed, or was made anew under its name: the stream says nothing of it, and
its topic looks as if nothing happened to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from cdc.checks.facts import PublicationFacts
from cdc.state import FormState, SlotState, SnapshotTableState, TopicsState, find_all
from cdc.topic import TableName

OPERATIONS = frozenset(("insert", "update", "delete", "truncate"))


def not_followed(
    tables: Iterable[str],
    oids: Mapping[str, int],
    relations: Mapping[int, TableName],
    publication: PublicationFacts | None,
) -> dict[str, str]:
    """Captured table -> why it is not followed, as a sentence.

    ``oids``: the relation that was captured under each name, as far as known. ``relations``: those of the catalog that
    have one of these names or oids. A table that was dropped is not there to be followed.
    """
    if publication is None:
        return {}
    sent = {str(table) for table in publication.tables}
    here = {str(table): oid for oid, table in relations.items()}
    found = {}
    for table in tables:
        known = oids.get(table)
        if table not in here and known is not None and known in relations:
            found[table] = f"{table} was renamed to {relations[known]}, and is not followed under that name"
        elif table in here and table not in sent:
            anew = known is not None and known != here[table]
            was = "was made anew, and " if anew else ""
            found[table] = f"{table} {was}is not in the publication {publication.publication}: it is not followed"
        elif table in here and publication.operations < OPERATIONS:
            missing = ", ".join(sorted(OPERATIONS - publication.operations))
            found[table] = f"{table} is not followed: the publication {publication.publication} leaves out {missing}"
    return found


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
) -> dict[str, str]:
    """:func:`not_followed` of what the state topic says. Empty before the first snapshot: then nothing is followed yet.

    ``takes``: whether the settings name a table. ``relations``: those that have one of these names or oids.
    """
    topics, oids = TopicsState.find(documents), captured_oids(documents)
    if topics is None or SlotState.find(documents) is None:
        return {}
    wanted = [table for table in topics.tables if takes(table)]
    found = relations(wanted, [oids[table] for table in wanted if table in oids])
    return not_followed(wanted, oids, found, publication())
