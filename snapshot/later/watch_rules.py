"""Changes of a table without an event: pure.

A rewrite by ``ALTER ... TYPE ... USING``, a column dropped and added again under its name, a partition detached with
its rows: the stream says nothing of any of them. So the catalog is compared with what it was, and what the stores
cannot know of is read again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from cdc.record.schema import TableSchema
from cdc.record.state import FormState, SnapshotTableState

NONE: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class RereadReason:
    """Why a table has to be read again, as a sentence part behind its name.

    ``leaves``: only these partitions. ``added``: it came into the publication, so that changes from before are never
    streamed. ``republished``: it was in the publication at both looks, and may have been out of it in between.
    ``unsent``: transactions that are still open may hold changes of it that will not be streamed.
    """

    reason: str
    leaves: tuple[str, ...] | None = None
    added: bool = False
    republished: bool = False
    unsent: bool = False


def need(
    before: FormState,
    now: FormState,
    empty: Collection[int] = (),
    streamed: Mapping[str, int] = NONE,
    announced: Iterable[TableSchema] = (),
) -> RereadReason | None:
    """The reading that a table needs that was ``before`` and is ``now``. None when the events are enough.

    ``empty``: oids of leaves that hold no row. ``streamed``: partitions that brought changes in between, each with the
    transaction that had attached it. Neither look need have seen them. ``announced``: shapes under which the
    stream brought changes in between. Neither look need have seen their names.

    A rewrite that gives rows other values changes a column's entry in the catalog in the same transaction, also where
    the type stays what it was. Where none was changed, it was VACUUM FULL, CLUSTER or a TRUNCATE, which the stream
    shows, but of a partition's alone it does not, so there all are read again.
    A table that is not published any more needs nothing until it is again.
    """
    if not now.publication:
        return None
    if not before.publication:
        return RereadReason("came into the publication", added=True, unsent=True)
    if before.oid != now.oid:
        return RereadReason("was dropped and made anew", unsent=True)
    if before.publication != now.publication:
        return RereadReason("is published with other columns or rows", unsent=True)
    found = _columns(before, now) or _names(now, announced) or _types(before, now)
    found = found or _links(before.links, now) or _links(streamed, now)
    if found is None and streamed.keys() - now.links.keys():
        found = RereadReason("had a partition that is gone", unsent=True)
    if found is None and before.entries and before.entries != now.entries:
        return RereadReason("may have been unpublished for a while", republished=True, unsent=True)
    return found or _leaves(before, now, empty)


def _types(before: FormState, now: FormState) -> RereadReason | None:
    """Types whose values read otherwise than before, though no row was changed.

    A new label of an enum is in no row. A new attribute of a composite is in every one.
    """
    known = {member.partition(".")[0] for member in before.types}
    for member, born in sorted(now.types.items()):
        kind = member.partition(".")[0]
        if before.types.get(member, born) != born or (member not in before.types and kind[:1] == "c" and kind in known):
            return RereadReason(f"has values of {_KINDS[kind[:1]]} that was altered")
    return None


_KINDS = {"e": "an enum", "c": "a composite type", "d": "a domain"}


def gone_forms(forms: Mapping[str, FormState], captured: Collection[str]) -> list[FormState]:
    """The notes of tables that were dropped, or that the settings take no more: nothing is sent of them.

    ``captured``: names of those that are there. Where one comes back, its rows are read again as those of any that
    came into the publication.
    """
    return [
        replace(form, publication="") for t, form in sorted(forms.items()) if form.publication and t not in captured
    ]


def _links(before: Mapping[str, int], now: FormState) -> RereadReason | None:
    """A partition that was there ``before`` and is now, and was detached in between: its changes then were not sent."""
    if any(now.links.get(oid, born) != born for oid, born in before.items()):
        return RereadReason("had a partition detached for a while", unsent=True)
    return None


def _columns(before: FormState, now: FormState) -> RereadReason | None:
    old = {column[0]: column for column in before.columns}
    for attnum, name, type_oid, typmod, filled in now.columns:
        known = old.get(attnum)
        if known is None:
            if filled:
                return RereadReason(f"has a new column {name}, which older rows have a value for")
            if name in {column[1] for column in before.columns}:
                return RereadReason(f"has another column {name} than before")
        elif known[1] != name:
            return RereadReason(f"has its column {known[1]} renamed to {name}")
        elif known[2] != type_oid or (known[3] is not None and known[3] != typmod):
            return RereadReason(f"has another type of the column {name}")
    return None


def _names(now: FormState, announced: Iterable[TableSchema]) -> RereadReason | None:
    """A column that had another name for a while: rows that were written then have its value under that name alone."""
    known = {attnum: name for attnum, name, *_ in now.columns}
    names = list(known.values())
    for shape in announced:
        if shape.oid != now.oid:
            continue
        then = [column.name for column in shape.columns]
        # Both in the order of attnum, which the catalog of a later moment may not have.
        others = zip(then, names, strict=True) if len(then) == len(names) else ()
        gone = [old for old, new in others if old != new]
        for column in shape.columns:
            # A column of number 0 is one that the catalog had no more under that name.
            if known.get(column.attnum, column.name) != column.name or (not column.attnum and column.name not in names):
                gone.append(column.name)
        if gone:
            return RereadReason(f"had a column under the name {gone[0]} for a while")
    return None


def _leaves(before: FormState, now: FormState, empty: Collection[int]) -> RereadReason | None:
    old = {leaf[0]: leaf for leaf in before.leaves}
    new = {leaf[0]: leaf for leaf in now.leaves}
    if old.keys() - new.keys():
        return RereadReason("lost a partition with its rows")
    if any(old[oid][3] != new[oid][3] for oid in old) and not (now.born and before.born == now.born):
        return RereadReason("was rewritten or truncated")
    added = [f"{leaf[1]}.{leaf[2]}" for oid, leaf in new.items() if oid not in old and oid not in empty]
    return RereadReason("got a partition that has rows", leaves=tuple(sorted(added))) if added else None


def form_of_plan(plan: SnapshotTableState, shape: TableSchema) -> FormState:
    """A table as the first snapshot left it, for a pipeline whose watch has not looked yet."""
    columns: list[list[Any]] = [[c.attnum, c.name, c.source_type_oid, None, False] for c in shape.columns]
    # The catalog has those too that a mask leaves out.
    columns += [[c.attnum, c.name, c.type_oid, None, False] for c in shape.dropped]
    leaves: list[list[Any]] = [[one["oid"], one["schema"], one["name"], one["filenode"]] for one in plan.leaves]
    return FormState(
        table=plan.table,
        oid=plan.oid,
        columns=columns,
        leaves=leaves,
        publication=plan.publication,
        version=plan.version,
        entries=plan.entries,
        types=plan.types,
        links=plan.links,
    )
