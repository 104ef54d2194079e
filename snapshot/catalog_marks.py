"""Marks in the catalog of changes without an event, those included that were undone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from cdc.checks.facts import Sent
from snapshot.edges import Captured, Session
from snapshot.forms import CatalogMarks
from snapshot.queries import Queries

_SQL = Queries(__package__)


def catalog_marks(session: Session, captured: Sequence[Captured], sent: Mapping[str, Sent]) -> dict[int, CatalogMarks]:
    """By oid. ``sent``: how the publication sends the tables that it sends. Takes no lock of a table."""
    oids = [table.oid for table in captured]
    types: dict[int, dict[str, int]] = defaultdict(dict)
    for oid, member, xid in session.execute(_SQL.text("types"), {"oids": oids}).fetchall():
        types[oid][member] = xid
    links: dict[int, dict[str, int]] = defaultdict(dict)
    for root, oid, xid in session.execute(_SQL.text("links"), {"oids": oids}).fetchall():
        links[root][str(oid)] = xid
    marks = {}
    for table in captured:
        how = sent.get(str(table.table))
        marks[table.oid] = CatalogMarks(
            publication=how.sends if how is not None else "",
            entries=how.born if how is not None else "",
            types=types[table.oid],
            links=links[table.oid],
        )
    return marks
