"""Whether what set a table aside is gone: asked of the catalog, and of the table itself, beside the stream."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import psycopg
from psycopg import sql

from cdc.aside import AsideState, CannotFollow, Cause
from cdc.errors import ConfigError
from cdc.following import Unfollowed
from cdc.schema import TableSchema
from cdc.settings import Settings
from cdc.sql import load
from cdc.topic import TableName
from cdc.visibility import Visibility
from connectors.kafka.schema_registry import SchemaRegistry
from connectors.postgres.catalog_facts import read_relations
from connectors.postgres.catalog_shapes import IDENTITIES, captured_schema
from connectors.postgres.connections import Connection
from connectors.session.asides import SetAside
from connectors.session.partitions import tells_key

log = logging.getLogger(__name__)

_SQL = load("connectors.session", "remedies.sql")


class Remedies:
    """One session's. The thread of the looks alone."""

    def __init__(self, settings: Settings, asides: SetAside, registry: SchemaRegistry) -> None:
        self._settings = settings
        self._asides = asides
        self._registry = registry
        self._faults: Mapping[str, Unfollowed] = {}
        self._agreed: dict[str, int] = {}
        """Tables whose partitions log old rows as they should, and where the server wrote when that was seen first."""

    def look(self, session: Connection, faults: Mapping[str, Unfollowed], since_lsn: int) -> None:
        """Set aside what is not followed, and find out what may be followed again.

        ``faults``: captured tables that are not followed, and why, as of now. ``since_lsn``: the log has all below.
        Raises LogError and psycopg.Error.
        """
        before, self._faults = self._faults, faults
        named = {str(table): table for table in self._registry.tables()}
        for table in sorted(faults.keys() & before.keys()):
            # A schema's name may have a dot in it. A table that is new to the log has no shape there yet.
            name = named.get(table) or TableName(*table.split(".", 1))
            why = CannotFollow(faults[table].why, hint=faults[table].fix, cause=Cause.NOT_FOLLOWED, tables=[name])
            self._asides.set_aside(name, why, since_lsn, 0)
        pending = self._asides.pending()
        if pending:
            self._registry.refresh()
        for document in pending:
            oid = self._remedied(session, document, since_lsn) if document.table not in faults else None
            if oid is not None:
                log.info("table_remedied", extra={"table": document.table, "cause": document.cause.value})
                self._asides.remedy(document.table, oid)

    def _remedied(self, session: Connection, document: AsideState, since_lsn: int) -> int | None:
        """The relation that has the table's name, if it may be followed."""
        # By what the catalog finds: a schema's name may have a dot in it.
        found = read_relations(session, [document.table], [])
        oid, table = next(((oid, name) for oid, name in found.items() if str(name) == document.table), (None, None))
        if oid is None or table is None:
            return None
        try:
            now = captured_schema(session, self._settings, oid, topic="")
            self._registry.require_covered(now)
        except ConfigError:
            return None
        if not now.key or not (self._asides.asked(document.table) or self._as_known(table, now)):
            return None
        if not self._visible(session, document.xid) or not _readable(session, now):
            return None
        return oid if document.cause is not Cause.CHANGED or self._agree(session, now, since_lsn) else None

    def _as_known(self, table: TableName, now: TableSchema) -> bool:
        """Whether the table is the one that the log knows, under the key that it knows, whatever masks it has."""
        known = self._registry.latest(table)
        if known is not None and known.plain_key_form != now.plain_key_form:
            return False
        others = (self._registry.latest(other) for other in self._registry.tables() if other != table)
        return all(other is None or other.oid != now.oid for other in others)

    def _agree(self, session: Connection, table: TableSchema, since_lsn: int) -> bool:
        """Whether every partition logs old rows as the table announces them, and the log has all from before.

        A row does not say of which partition it is. Those that were written before have to be past.
        """
        name = str(table.table)
        found = session.execute(_SQL["identities"].encode(), {"oid": table.oid}).fetchall()
        if not all(tells_key(table, IDENTITIES[identity], columns) for identity, columns in found):
            self._agreed.pop(name, None)
            return False
        if not found:
            return True
        row = session.execute(_SQL["written"].encode()).fetchone()
        assert row is not None
        if since_lsn < self._agreed.setdefault(name, row[0]):
            return False
        del self._agreed[name]
        return True

    def _visible(self, session: Connection, xid: int) -> bool:
        row = session.execute(_SQL["snapshot"].encode()).fetchone()
        assert row is not None
        return Visibility.parse(row[0]).sees(xid)


def _readable(session: Connection, table: TableSchema) -> bool:
    """Whether the role may read the table, and can have its lock now."""
    columns = sql.SQL(", ").join(sql.Identifier(column.name) for column in table.columns)
    name = sql.Identifier(table.table.schema, table.table.table)
    try:
        with session.transaction():
            session.execute(_SQL["brief"].encode())
            session.execute(sql.SQL(_SQL["probe"]).format(columns=columns, table=name))
    except (psycopg.errors.LockNotAvailable, psycopg.errors.InsufficientPrivilege, psycopg.errors.UndefinedTable):
        return False
    return True
