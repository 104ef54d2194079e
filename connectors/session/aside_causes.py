"""Whether what set a table aside is gone: asked of the catalog, and of the table itself, beside the stream."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import psycopg
from psycopg import sql

from cdc.capture.transaction_visibility import Visibility
from cdc.process.errors import ConfigError
from cdc.process.sql_files import load
from cdc.record.schema import TableSchema
from cdc.record.tables_aside import AsideState, CannotFollow, Cause, Unfollowed
from cdc.record.topic_names import TableName
from cdc.settings.model import Settings
from connectors.kafka.schema_registry import SchemaRegistry
from connectors.postgres.server.catalog_facts import read_relations
from connectors.postgres.server.catalog_shapes import IDENTITIES, captured_schema
from connectors.postgres.server.connections import Connection
from connectors.postgres.server.table_selection import note_parts
from connectors.session.asides import SetAside
from connectors.session.partitions import tells_key

log = logging.getLogger(__name__)

_SQL = load("connectors.session")


class Remedies:
    """One session's. The thread of the looks alone. ``topic``: a table's."""

    def __init__(
        self, settings: Settings, asides: SetAside, registry: SchemaRegistry, topic: Callable[[str], str | None]
    ) -> None:
        self._settings = settings
        self._asides = asides
        self._registry = registry
        self._topic = topic
        self._faults: Mapping[str, Unfollowed] = {}
        self._settled: dict[str, tuple[TableSchema, int]] = {}
        """Tables that may be followed as they are, and where the server wrote when that was seen first."""

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
            note_parts(session, self._registry.notes)
        for document in pending:
            if document.table in faults:
                continue
            if document.cause is Cause.NOT_FOLLOWED and self._unmade(session, document.table):
                self._asides.forget(document.table)
                continue
            oid = self._remedied(session, document, since_lsn)
            if oid is not None:
                log.info("table_remedied", extra={"table": document.table, "cause": document.cause.value})
                self._asides.remedy(document.table, oid)

    def _unmade(self, session: Connection, table: str) -> bool:
        """Whether nothing has the name, and no topic was made for it: a table had it for a while."""
        return self._topic(table) is None and not read_relations(session, [table], [])

    def _remedied(self, session: Connection, document: AsideState, since_lsn: int) -> int | None:
        """The relation that has the table's name, if it may be followed."""
        # By what the catalog finds: a schema's name may have a dot in it.
        found = read_relations(session, [document.table], [])
        oid, table = next(((oid, name) for oid, name in found.items() if str(name) == document.table), (None, None))
        if oid is None or table is None:
            return None
        try:
            now = captured_schema(session, self._settings, oid, topic=self._topic(document.table) or "")
            self._registry.require_masks(now)
        except ConfigError:
            return None
        if not now.key or not (self._asides.asked(document.table) or self._as_known(table, now)):
            return None
        if not self._visible(session, document.xid) or not _readable(session, now):
            return None
        if (now.noted_masks or document.cause is Cause.CHANGED) and not self._agree(session, now, since_lsn):
            return None
        if now.noted_masks:
            # The key is the known one, or an operator asked for this one.
            self._registry.notes.pass_by(self._registry.register(now, new_key=True))
        return oid

    def _as_known(self, table: TableName, now: TableSchema) -> bool:
        """Whether the table is the one that the log knows, under the key that it knows, whatever masks it has."""
        known = self._registry.latest(table)
        if known is not None and known.plain_key_form != now.plain_key_form:
            return False
        others = (self._registry.latest(other) for other in self._registry.tables() if other != table)
        return all(other is None or other.oid != now.oid for other in others)

    def _agree(self, session: Connection, table: TableSchema, since_lsn: int) -> bool:
        """Whether every partition logs old rows as the table announces them, and the log has all from before.

        A row does not say of which partition it is, nor a message which columns it names. Those that were written
        before have to be past.
        """
        name = str(table.table)
        found = session.execute(_SQL["identities"].encode(), {"oid": table.oid}).fetchall()
        if not all(tells_key(table, IDENTITIES[identity], columns) for identity, columns in found):
            self._settled.pop(name, None)
            return False
        if not found and not table.noted_masks:
            return True
        seen, lsn = self._settled.get(name, (None, 0))
        if seen != table:
            row = session.execute(_SQL["written"].encode()).fetchone()
            assert row is not None
            lsn = row[0]
            self._settled[name] = table, lsn
        if since_lsn < lsn:
            return False
        del self._settled[name]
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
