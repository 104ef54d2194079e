"""The catalog's present facts about the tables to be read: one look before every cut."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import psycopg

from cdc.process.errors import ConfigError, SourceError
from cdc.record.server_facts import PublicationFacts, Sent
from cdc.record.state import TopicsState
from cdc.record.topic_names import TableName
from snapshot.source.planned_tables import CatalogMarks, InspectedTable, Inspection, LeafForm, TableForm, largest_first
from snapshot.source.ports import Captured, InspectionEdges, Session, Shapes
from snapshot.source.read_transaction import SQL, first_line


def catalog_marks(session: Session, captured: Sequence[Captured], sent: Mapping[str, Sent]) -> dict[int, CatalogMarks]:
    """By oid. ``sent``: how the publication sends the tables that it sends. Takes no lock of a table."""
    oids = [table.oid for table in captured]
    types: dict[int, dict[str, int]] = defaultdict(dict)
    for oid, member, xid in session.execute(SQL.text("types"), {"oids": oids}).fetchall():
        types[oid][member] = xid
    links: dict[int, dict[str, int]] = defaultdict(dict)
    for root, oid, xid in session.execute(SQL.text("links"), {"oids": oids}).fetchall():
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


FILTERS_SINCE = 150_000
"""server_version_num from which a publication may have row filters."""


class Locked(SourceError):
    """Not now: somebody has a table locked."""


def inspect(
    edges: InspectionEdges,
    session: Session,
    shapes: Shapes,
    *,
    topics: TopicsState | None,
    only: Collection[str] | None,
) -> Inspection:
    """Look at the captured tables, or at those of them that ``only`` names. Shapes that are new are registered.

    ConfigError when one cannot be captured, is not in the publication, or has no topic. Without ``topics`` none
    of this is asked.
    """
    found = edges.source.tables(session)
    captured = [table for table in found if only is None or str(table.table) in only]
    late = sorted(str(table.table) for table in found if table not in captured)
    sent: Mapping[str, Sent] = {}
    if topics is not None:
        publication = _published(edges, session)
        sent = {str(table): how for table, how in publication.sent.items()}
        _refuse(captured, publication.tables, topics, edges.settings.publication)
    with _refusals(captured):
        marks = catalog_marks(session, captured, sent) if topics is not None else {}
        conditions = _conditions(edges, session, captured)
        leaves = _leaves(session, [leaf.oid for table in captured for leaf in table.leaves])
        inspected: dict[TableName, InspectedTable] = {}
        for table in captured:
            schema = shapes.register(edges.source.shape(session, table))
            form = _form(table, schema.version, leaves, marks.get(table.oid))
            inspected[table.table] = InspectedTable(form=form, schema=schema, condition=conditions.get(table.oid))
    order = largest_first([one.form for one in inspected.values()])
    return Inspection({str(form.table): inspected[form.table] for form in order}, late)


@contextmanager
def _refusals(captured: Sequence[Captured]) -> Iterator[None]:
    try:
        yield
    except KeyError:
        raise SourceError("a table went away while it was looked at", hint="run cdc snapshot again") from None
    except psycopg.errors.LockNotAvailable:
        raise Locked(
            f"of {', '.join(str(table.table) for table in captured)} one is locked: its row filter cannot be read",
            hint="run cdc snapshot again when the lock is gone",
        ) from None
    except psycopg.Error as error:
        raise SourceError(f"the catalog cannot be read: {first_line(error)}") from None


def _form(table: Captured, version: int, leaves: Mapping[int, LeafForm], marks: CatalogMarks | None) -> TableForm:
    return TableForm(
        table=table.table,
        topic=table.topic,
        oid=table.oid,
        version=version,
        leaves=tuple(leaves[leaf.oid] for leaf in table.leaves),
        marks=marks,
    )


def _published(edges: InspectionEdges, session: Session) -> PublicationFacts:
    _, _, publication = edges.source.facts(session)
    if publication is None:
        # Decoding a change older than the publication fails for ever, so it has to be there first.
        raise ConfigError(f"there is no publication {edges.settings.publication}", hint="cdc init makes it")
    return publication


def _refuse(
    captured: Sequence[Captured], published: frozenset[TableName], topics: TopicsState, publication: str
) -> None:
    for table in captured:
        for problem in table.problems:
            raise ConfigError(problem.message, hint=problem.hint)
        if table.table not in published:
            raise ConfigError(f"{table.table} is not in the publication {publication}", hint="cdc init adds it")
        if topics.tables.get(str(table.table)) != table.topic or table.topic not in topics.topics:
            raise ConfigError(f"the topic {table.topic} of {table.table} has not been made", hint="cdc init makes it")


def _conditions(edges: InspectionEdges, session: Session, captured: Sequence[Captured]) -> Mapping[int, str]:
    """Row filters as SQL, by table. Printing one takes the table's lock, as reading its rows will."""
    if session.info.server_version < FILTERS_SINCE:
        return {}
    oids = [table.oid for table in captured]
    found = SQL.rows(session, "row_filters", publication=edges.settings.publication, oids=oids)
    return {row.oid: row.condition for row in found}


def _leaves(session: Session, oids: list[int]) -> dict[int, LeafForm]:
    found = leaf_rows(session, oids)
    now = sizes(session, oids)
    return {
        row.oid: LeafForm(
            oid=row.oid,
            table=TableName(row.schema, row.name),
            filenode=row.filenode,
            heap_blocks=now[row.oid].heap_blocks if row.oid in now else row.heap_blocks,
            size_bytes=now[row.oid].size_bytes if row.oid in now else row.size_bytes,
            row_estimate=row.row_estimate,
            by_range=row.by_range,
        )
        for row in found
        if row.filenode is not None
    }


def leaf_rows(session: Session, oids: Sequence[int]) -> list[Any]:
    """The catalog's rows of these leaves: ``oid``, ``schema``, ``name``, ``filenode``, ``heap_blocks`` and sizes.

    A table that goes away meanwhile has no row, or no file.
    """
    return SQL.rows(session, "leaves", oids=list(oids))


class Size(NamedTuple):
    """The size of a table on disk now."""

    heap_blocks: int
    size_bytes: int


def sizes(session: Session, oids: Sequence[int]) -> dict[int, Size]:
    """The sizes now, by oid. Of none where one of the tables is locked. Does not wait for whoever has it."""
    try:
        with session.transaction():
            session.execute(SQL.text("size_lock_timeout"))
            found = SQL.rows(session, "sizes", oids=list(oids))
    except psycopg.errors.LockNotAvailable:
        return {}
    return {row.oid: Size(row.heap_blocks, row.size_bytes) for row in found if row.heap_blocks is not None}
