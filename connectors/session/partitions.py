"""Partitions as the stream announces them: each before its first change, right behind its table.

The rows of a partition stay in the topic when it is detached or dropped, and no event announces that. A look sees a
partition that left since the look before. One that came and left in between, no look sees.

A partition logs old keys by a replica identity of its own. Where that is not its table's, deletes and changes of the
key do not identify their row.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol

from cdc.process.crash_points import crash_point, declare
from cdc.process.sql_files import load
from cdc.record.ports import CompactedTopic
from cdc.record.schema import Identity, TableSchema
from cdc.record.state import FormState, PartitionsState, SnapshotTableState, find_all
from cdc.record.tables_aside import CannotFollow
from cdc.record.topic_names import TableName
from connectors.postgres.protocol.messages import Relation
from connectors.postgres.server.connections import Connection

_XIDS = 1 << 32
_TIMEOUT_S = 2.0


class PartitionLink(NamedTuple):
    """A relation and a table as the catalog has them. ``below``: it is a partition of the table, on any level.
    ``links``: those on the way up, each with the 32-bit transaction that made it. ``attached``: those of relations that
    were made by an earlier one. ``insert_lsn``: of the server."""

    below: bool
    links: Mapping[str, int]
    attached: Mapping[str, int]
    insert_lsn: int


class LeafTopics(Protocol):
    """Where it is noted. :class:`connectors.session.captured_topics.CapturedTopics` is one."""

    def saw_partitions(self, table: TableName, links: Mapping[str, int]) -> None:
        """The stream is about to bring changes of partitions. ``links``: oid -> the transaction that attached it."""

    def ask_again(self, table: TableName, reason: str, *, after_lsn: int = 0) -> None:
        """Ask for a table to be read again once the stream has passed ``after_lsn``. Raises LogError."""


class Partitions:
    """One session's. ``link``: a table and a relation by oid, None where the table has no partitions. ``visible``:
    whether the catalog shows a transaction, or does within so many seconds. ``watched``: whether looks compare what is
    noted."""

    def __init__(
        self,
        link: Callable[[int, int], PartitionLink | None],
        topics: LeafTopics,
        *,
        visible: Callable[[int, float], bool],
        watched: bool = True,
    ) -> None:
        self._link = link
        self._topics = topics
        self._visible = visible
        self._watched = watched
        self._before: TableSchema | int | None = None
        """The captured table that was announced right before. Its oid while it cannot be read."""
        self._unread: dict[int, list[tuple[Relation, int]]] = {}
        """Partitions of tables that cannot be read yet, each with its transaction: table's oid -> announcements."""

    def announced(self, oid: int, shape: TableSchema | None) -> None:
        """The stream has announced a relation. ``shape``: None for one that is no captured table, or is set aside."""
        self._unread.pop(oid, None)
        self._before = shape

    def kept(self, oid: int) -> None:
        """The stream has announced a captured table that cannot be read yet."""
        self._before = oid

    def leads(self, table: str) -> bool:
        """Whether this table was announced right before."""
        before = self._before
        return isinstance(before, TableSchema) and str(before.table) == table

    def behind(self, relation: Relation, xid: int) -> None:
        """The stream announces a relation that is no captured table, in transaction ``xid``: a partition, if a captured
        one came right before. See :meth:`came`, which waits until that one can be read."""
        before, self._before = self._before, None
        if isinstance(before, int):
            self._unread.setdefault(before, []).append((relation, xid))
        elif before is not None:
            self.came(before, relation, xid)

    def readable(self, oid: int, shape: TableSchema | None) -> None:
        """One that was kept can be read now, as ``shape``. None where it is not followed. Raises as :meth:`came`."""
        for relation, xid in self._unread.pop(oid, ()):
            if shape is not None:
                self.came(shape, relation, xid)

    def came(self, root: TableSchema, leaf: Relation, xid: int) -> None:
        """The stream brings changes of the relation ``leaf`` under the name of ``root``, in transaction ``xid``.

        Asks for the table to be read again, durably, where the relation is its partition no more. CannotFollow where
        it is one, and its old keys are not the table's. Raises what ``link`` raises, and LogError.
        """
        fits = tells_key(root, leaf.identity, [column.name for column in leaf.columns if column.in_key])
        if fits and not self._watched:
            return
        found = self._link(root.oid, leaf.relation_oid)
        if found is None:
            return
        if gone(found, xid):
            # A partition that this transaction made itself may not be in the catalog yet. One that stays unseen for
            # long counts as gone: a reading too many harms nothing, and the stream goes on.
            self._visible(xid, _TIMEOUT_S)
            found = self._link(root.oid, leaf.relation_oid) or found
        if found.below and not fits:
            raise other_identity(root.table, TableName(leaf.schema, leaf.table))
        if not self._watched:
            return
        if why := gone(found, xid):
            # Of changes up to here some may be the partition's that is gone: the sweep has to lie behind them.
            self._topics.ask_again(root.table, why, after_lsn=found.insert_lsn)
        else:
            self._topics.saw_partitions(root.table, found.links)


def tells_key(root: TableSchema, identity: Identity, names: Collection[str]) -> bool:
    """Whether deletes and changes of the key say of which row of ``root`` they are, where a partition logs old rows by
    ``identity``, with the columns ``names``. Where it logs none, Postgres refuses to change its rows."""
    if identity in (Identity.FULL, Identity.NOTHING):
        return True
    return root.identity != Identity.FULL and {column.name for column in root.key} <= set(names)


def other_identity(table: TableName, leaf: TableName) -> CannotFollow:
    """The sentence about a table whose partition logs other old keys."""
    return CannotFollow(
        f"the partition {leaf} has another replica identity than {table}, so what its updates and deletes send is not "
        "what they announce",
        hint="give it that of its table: cdc check shows the SQL",
        tables=[table],
    )


def link_in(connection: Connection, oid: int, leaf_oid: int) -> PartitionLink | None:
    """From the catalog, as :class:`Partitions` wants it. Takes no lock of a table. Raises psycopg.Error."""
    query = load(__package__)["partition"].encode()
    row = connection.execute(query, {"root": oid, "leaf": leaf_oid}).fetchone()
    return PartitionLink(*row) if row is not None else None


def gone(found: PartitionLink, xid: int) -> str:
    """Why a partition whose changes come in the transaction ``xid`` may have left since. Empty where it has not.

    One that was made as a partition was none before, also if a subtransaction made it, whose number is higher.

    >>> one = {"11": 701}
    >>> gone(PartitionLink(True, one, one, 0), 701), gone(PartitionLink(True, one, one, 0), (7 << 32) + 700)
    ('', 'had a partition detached for a while')
    >>> gone(PartitionLink(True, one, {}, 0), 700)
    ''
    >>> old = {"11": (1 << 32) - 2}
    >>> gone(PartitionLink(True, old, old, 0), (8 << 32) + 5), gone(PartitionLink(False, {}, {}, 0), 700)
    ('', 'had a partition that is gone')
    """
    if not found.below:
        return "had a partition that is gone"
    newer = (0 < (born - xid) % _XIDS < _XIDS // 2 for born in found.attached.values())
    return "had a partition detached for a while" if any(newer) else ""


# The partitions that the stream has brought and that no look at the catalog has compared yet.
#
# A look at the catalog that misses a partition has its table read again, if it knows that the partition existed. Its
# changes may be acknowledged before the next look, and capture may be killed in between. So capture notes a new
# partition in the state topic before it writes changes of it, until a look has compared it.

declare("partition_noted")

Links = Mapping[str, int]
"""oid of a partition -> the transaction that attached it."""


class PartitionNotes:
    """By table. Any thread. ``documents``: the state topic's records."""

    def __init__(self, state: CompactedTopic, documents: Mapping[bytes, bytes]) -> None:
        self._state = state
        self._lock = threading.Lock()
        """Taken for moments."""
        self._writing = threading.Lock()
        """Taken while a broker is waited for: notes stand in the topic in the order of the facts that they note."""
        noted = {one.table: one.links for one in find_all(documents, PartitionsState)}
        self._new: Mapping[str, Links] = noted
        self._noted: dict[str, Links] = dict(noted)
        """What the state topic has."""
        plans = {plan.table: plan.links for plan in find_all(documents, SnapshotTableState)}
        forms = {form.table: form.links for form in find_all(documents, FormState)}
        self._compared: dict[str, Links] = {**plans, **forms}

    @property
    def new(self) -> Mapping[str, Links]:
        """Those that no look has compared, by table. The mapping is never changed: ask again for later ones."""
        return self._new

    def saw(self, table: str, links: Links) -> None:
        """The stream is about to bring changes of these. Raises LogError. A known partition waits for no broker."""
        with self._lock:
            if not self._is_news(table, links):
                self._new = {**self._new, table: {**self._new.get(table, {}), **links}}
                return
        with self._writing:
            with self._lock:
                seen = {**self._new.get(table, {}), **links}
                news = self._is_news(table, links)
            if news:
                self._note(table, seen)
                crash_point("partition_noted")
            with self._lock:
                self._new = {**self._new, table: {**self._new.get(table, {}), **links}}

    def settle(self, compared: Mapping[str, Links]) -> None:
        """Forget the notes of these. A look has compared them, and its findings are stored. Raises LogError."""
        with self._writing:
            for table, links in compared.items():
                with self._lock:
                    left, noted = self._without(table, links), table in self._noted
                if noted:
                    self._note(table, left)
                with self._lock:
                    self._compared[table] = {**self._compared.get(table, {}), **links}
                    left = self._without(table, links)
                    others = {name: found for name, found in self._new.items() if name != table}
                    self._new = {**others, table: left} if left else others

    def _is_news(self, table: str, links: Links) -> bool:
        """Whether neither a look nor a note has all of these. A note that is being removed counts: what it had is in
        what the look found."""
        known = self._compared.get(table, {}).items() | self._noted.get(table, {}).items()
        return bool(links.items() - known)

    def _without(self, table: str, links: Links) -> dict[str, int]:
        return dict(self._new.get(table, {}).items() - links.items())

    def _note(self, table: str, links: Links) -> None:
        document = PartitionsState(table=table, links=dict(links))
        self._state.write([(document.key(), document.to_json() if links else None)])
        with self._lock:
            if links:
                self._noted[table] = links
            else:
                self._noted.pop(table, None)
