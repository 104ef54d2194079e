"""Masks that name no captured table, and the relations that are parts of tables with masks, by the catalog."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection

from cdc.errors import ConfigError
from cdc.masks import MaskNotes
from cdc.settings import Settings
from cdc.sql import load
from connectors.postgres.connections import Connection

_SQL = load("connectors.postgres", "inheritance.sql")


def note_parts(conn: Connection, notes: MaskNotes) -> None:
    """Note the relations that are parts of tables with masks now, or of relations that were: by PARTITION OF, ATTACH or
    INHERITS, and the tables of which such a one is a partition. Asks nothing where there are none.

    Raises LogError and psycopg.Error.
    """
    tables, known = notes.masks.tables, notes.parts
    if not tables and not known:
        return
    found: dict[str, set[int]] = defaultdict(set)
    rows = conn.execute(_SQL["parts"].encode(), {"tables": sorted(tables), "oids": sorted(known)}).fetchall()
    for of, name, oid in rows:
        for table in {*known.get(of, ()), *({name} & tables.keys())}:
            found[table].add(oid)
    notes.saw(found)


def require_masked_tables(
    settings: Settings, captured: Collection[str], missing: Callable[[ConfigError], None] | None
) -> None:
    """ConfigError where masks are set for a table that is not captured, or ``missing`` called with it: its name is
    likely to be meant for another one, which would be written as it is."""
    for name in sorted(settings.tables.keys() - captured):
        error = ConfigError(
            f'[tables."{name}"] is no captured table',
            hint="name it as [source] tables does, a partitioned table by its own name and not by its partitions'",
        )
        if missing is None:
            raise error
        missing(error)
