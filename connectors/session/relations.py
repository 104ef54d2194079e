"""The table that a Relation message announces, and the version of its shape."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable
from functools import partial

import psycopg

from cdc.capture.table_masks import masks_of
from cdc.process.crash_points import crash_point, declare
from cdc.process.errors import ConfigError, SourceError
from cdc.record.schema import Identity, TableSchema
from cdc.record.tables_aside import AsideState, CannotFollow, Cause, TableState
from cdc.record.topic_names import TableName
from cdc.settings.model import Settings
from connectors.kafka.schema_registry import SchemaRegistry
from connectors.postgres.assembly.pending_records import LATER, Undecided
from connectors.postgres.protocol.messages import Relation
from connectors.postgres.server.catalog_shapes import KnownShapes, from_relation, resolve_tables
from connectors.postgres.server.connections import Connection, first_line
from connectors.postgres.server.table_problems import unlike_history
from connectors.postgres.server.table_selection import note_parts, takes
from connectors.session.captured_topics import CapturedTopics
from connectors.session.partitions import Partitions, link_in

log = logging.getLogger(__name__)

declare("shape_registered")


class Relations:
    """Implements :class:`connectors.postgres.assembly.assembler.SchemaSource`.

    A new shape is on ``<name>.schema``, stored by the broker, before the first record names it. ``visible``: whether
    ``connection`` sees a transaction (64 bit), or does within so many seconds. A shape that is announced as it was
    known needs no wait: the catalog may know less of it than the message does. But nothing of a table with masks is
    kept, nor taken unseen: it is set aside.
    """

    def __init__(
        self,
        connection: Connection,
        settings: Settings,
        topics: CapturedTopics,
        registry: SchemaRegistry,
        *,
        visible: Callable[[int, float], bool] = lambda xid, timeout_s: True,
        aside: Callable[[str], AsideState | None] = lambda _: None,
    ) -> None:
        self._connection = connection
        self._settings = settings
        self._topics = topics
        self._registry = registry
        self._visible = visible
        self._aside = aside
        self._masks = masks_of(settings)
        self._passed: set[TableName] = set()
        self._partitions = Partitions(
            partial(link_in, connection), topics, visible=visible, watched=bool(settings.snapshot.watch)
        )
        self._captured: dict[int, set[TableName]] = defaultdict(set)
        for found in self._latest():
            self._captured[found.oid].add(found.table)

    def schema(self, relation: Relation, xid: int, timeout_s: float) -> TableSchema | Undecided | None:
        """The shape with its version. None for a table that the settings leave out, or that is set aside. LATER while
        its transaction ``xid`` is not visible. One that is new to them gets its topic, and its rows from before are
        asked for.

        CannotFollow for one that they name and that cannot be carried: renamed, without a key, or with another one.
        SourceError when the catalog cannot be asked.
        """
        try:
            note_parts(self._connection, self._registry.notes)
            if timeout_s:
                return self._announced(relation, xid, timeout_s)
            # It was kept until now. The stream announces the next shapes meanwhile.
            found = self._schema(relation, xid, 0.0, as_leaf=False)
            if not isinstance(found, Undecided):
                self._partitions.readable(relation.relation_oid, found)
            return found
        except psycopg.Error as error:
            raise SourceError(f"Postgres broke off while a table was looked at: {first_line(error)}") from None

    def kept(self, relation: Relation) -> None:
        """The table of an announcement cannot be read yet, and the announcement is kept. CannotFollow as
        :meth:`schema`."""
        self._unread(relation, self._as_leaf(relation))
        self._partitions.kept(relation.relation_oid)

    def _announced(self, relation: Relation, xid: int, timeout_s: float) -> TableSchema | Undecided | None:
        as_leaf = self._as_leaf(relation)
        if self._topics.topic(TableName(relation.schema, relation.table)) is None:
            self._partitions.behind(relation, xid)
        found = self._schema(relation, xid, timeout_s, as_leaf=as_leaf)
        if isinstance(found, Undecided):
            self._partitions.kept(relation.relation_oid)
        else:
            self._partitions.announced(relation.relation_oid, found)
        return found

    def _schema(
        self, relation: Relation, xid: int, timeout_s: float, *, as_leaf: bool
    ) -> TableSchema | Undecided | None:
        table = TableName(relation.schema, relation.table)
        if table in self._passed and self._topics.topic(table) is None:
            return None
        aside = self._aside(str(table))
        if aside is not None and aside.state is TableState.ASIDE and aside.cause is not Cause.NOT_FOLLOWED:
            return None
        latest = self._registry.latest(table)
        known_so = latest is not None and announced_as(relation, latest)
        known_so = known_so and not self._registry.has_masks(table, relation.relation_oid)
        if not known_so and not self._visible(xid, timeout_s):
            return self._unread(relation, as_leaf)
        self._require_name(table, relation.relation_oid)
        topic = self._topics.topic(table) or self._late(table)
        if topic is None:
            return None
        shape = self._shape(relation, topic)
        self._require_fit(shape)
        known = self._registry.latest(table)
        try:
            registered = self._registry.register(shape)
        except ConfigError as error:
            raise CannotFollow(error.message, hint=error.hint, tables=[table]) from None
        if registered != known:
            crash_point("shape_registered")
            _log_shape(known, registered)
        if known is not None and known.deferrable_key != registered.deferrable_key:
            # Of a transaction that is partly written, the rest may count in another way.
            self._topics.ask_again(table, "has another kind of key constraint")
        if known is not None and known.oid != relation.relation_oid and self._settings.snapshot.watch:
            # The watch may not see it: by its next look the first table can have its name back.
            self._topics.ask_again(table, "was dropped and made anew, or another table took its name")
        self._captured[relation.relation_oid].add(table)
        return registered

    def _require_fit(self, shape: TableSchema) -> None:
        """CannotFollow for a shape that has no key, or that its history cannot hold."""
        if not shape.key:
            raise CannotFollow(
                f"{shape.table} has no key any more, and a compacted topic needs one",
                hint="give it a primary key again; cdc check shows the SQL",
                tables=[shape.table],
            )
        if self._topics.has_history(str(shape.table)):
            for problem in unlike_history(shape):
                raise CannotFollow(problem.message, hint=problem.hint, tables=[shape.table])

    def _as_leaf(self, relation: Relation) -> bool:
        """Whether a part of a table with masks is announced right behind that, as a partition, whose rows come under
        the table's name."""
        return any(map(self._partitions.leads, self._registry.notes.parts.get(relation.relation_oid, ())))

    def _unread(self, relation: Relation, as_leaf: bool) -> Undecided | None:
        """LATER for a relation whose rows are kept until the catalog can be read. CannotFollow for one that has masks:
        nobody can say until then which of its columns are masked."""
        table, source = TableName(relation.schema, relation.table), self._settings.source
        if not self._registry.has_masks(table, relation.relation_oid):
            return LATER
        if self._topics.topic(table) is None and (as_leaf or not takes(str(table), source.tables, source.exclude)):
            return None
        raise CannotFollow(
            f"{table} has masks, and the catalog does not show yet how it is now",
            hint="its rows are not kept: it is followed again once the catalog can be read, and read anew",
            tables=[table],
        )

    def _shape(self, relation: Relation, topic: str) -> TableSchema:
        """The shape under the table's masks. CannotFollow where they cannot be kept."""
        table = TableName(relation.schema, relation.table)
        passed = self._registry.notes.passed(str(table))
        try:
            return from_relation(
                self._connection,
                relation,
                topic=topic,
                encoding=self._settings.log.encoding,
                masks=self._masks,
                known=KnownShapes(self._registry.latest(table), self._registry.get(table, passed) if passed else None),
                publication=self._settings.publication,
            )
        except ConfigError as error:
            raise CannotFollow(error.message, hint=error.hint, tables=[table]) from None

    def _require_name(self, table: TableName, oid: int) -> None:
        """CannotFollow when the relation was captured under other names, and never under this one."""
        former = self._captured.get(oid)
        if not former or table in former or self._taken(table, oid):
            return
        names = " or ".join(sorted(map(str, former)))
        if self._topics.topic(table) is not None:
            raise CannotFollow(
                f"the table {names} has the name of another captured table now: {table}",
                hint=f"rename them back; or cdc snapshot {table} follows it under its new name, and reads it anew",
                cause=Cause.NOT_FOLLOWED,
                tables=[*sorted(former), table],
            )
        message = f"the table {names} was renamed to {table}"
        if takes(str(table), self._settings.source.tables, self._settings.source.exclude):
            # Under both names: else cdc init has its rows read under the new one, and no change of them follows.
            raise CannotFollow(
                message,
                hint=f"rename it back; or cdc init and then cdc snapshot {table} follow it as a table of its own",
                cause=Cause.NOT_FOLLOWED,
                tables=[*sorted(former), table],
            )
        raise CannotFollow(
            message,
            hint=f"rename it back, or give {table} the old topic under [source] topics and run cdc init",
            cause=Cause.NOT_FOLLOWED,
            tables=sorted(former),
        )

    def _taken(self, table: TableName, oid: int) -> bool:
        """Whether the relation was taken for this table since: by ``cdc init``, or because an operator asked for it."""
        if not self._topics.followed(table, oid):
            return False
        self._captured[oid].add(table)
        return True

    def _late(self, table: TableName) -> str | None:
        """The topic of a table that came while capture runs, made if need be. None for one that is not captured."""
        self._topics.refresh()
        if self._topics.topic(table) is not None:
            return self._topics.topic(table)
        # Another entry may meet nothing any more, which is no reason to stop, or to overlook this one.
        tables = resolve_tables(self._connection, self._settings, missing=lambda _: None)
        if any(table == leaf.table for found in tables for leaf in found.leaves if found.partitioned):
            self._passed.add(table)
            return None  # a TRUNCATE of a partitioned table names its partitions, too
        for found in tables:
            if found.table == table:
                for problem in found.problems:
                    raise CannotFollow(problem.message, hint=problem.hint, tables=[table])
                try:
                    return self._topics.add(found, "came after the slot")
                except ConfigError as error:
                    raise CannotFollow(error.message, hint=error.hint, tables=[table]) from None
        self._passed.add(table)
        log.warning("table_not_captured", extra={"table": str(table), "why": "the settings do not name it"})
        return None

    def _latest(self) -> list[TableSchema]:
        latest = (self._registry.latest(table) for table in self._registry.tables())
        return [shape for shape in latest if shape is not None and self._topics.topic(shape.table) is not None]


def _log_shape(known: TableSchema | None, registered: TableSchema) -> None:
    table = str(registered.table)
    log.info("shape_registered", extra={"table": table, "version": registered.version})
    for column, now in left_columns(known, registered).items():
        log.warning("column_left", extra={"table": table, "column": column, "now": now})


def left_columns(known: TableSchema | None, now: TableSchema) -> dict[str, str]:
    """Columns that the table had and has no more, each with the name that it has now. Empty for one that is gone."""
    if known is None or known.oid != now.oid:
        return {}
    names = {column.attnum: column.name for column in now.columns}
    kept = set(names.values())
    return {one.name: names.get(one.attnum, "") for one in known.columns if one.name not in kept}


def announced_as(relation: Relation, shape: TableSchema) -> bool:
    """Whether a message announces a shape that is known: its columns by name and type, its identity and its key."""
    if relation.relation_oid != shape.oid or relation.identity != shape.identity:
        return False
    if [(c.name, c.type_oid) for c in relation.columns] != [(c.name, c.type_oid) for c in shape.columns]:
        return False
    flagged = {column.name for column in relation.columns if column.in_key}
    return relation.identity == Identity.FULL or flagged == {column.name for column in shape.key}
