"""Partitions that come and go between two looks at the catalog: the stream names each before its first change (H145).

What a partition brought stays in the topic when it is detached or dropped, and no event tells of that. A look sees a
partition that left since the look before. One that came and left in between, no look sees.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from cdc.sql import load
from cdc.topic import TableName
from connectors.postgres.connections import Connection

_XIDS = 1 << 32
_PATIENCE_S = 2.0


class PartitionLink(NamedTuple):
    """A relation and a table as the catalog has them. ``below``: it is a partition of the table, on any level.
    ``links``: those on the way up, each with the 32-bit transaction that made it. ``attached``: those of relations that
    were made by an earlier one. ``insert_lsn``: of the server."""

    below: bool
    links: Mapping[str, int]
    attached: Mapping[str, int]
    insert_lsn: int


class LeafTopics(Protocol):
    """Where it is noted. :class:`connectors.session.captured.CapturedTopics` is one."""

    def saw_partitions(self, table: TableName, links: Mapping[str, int]) -> None: ...
    def ask_again(self, table: TableName, reason: str, *, after_lsn: int = 0) -> None: ...


class Partitions:
    """One session's. ``link``: a table and a relation by oid, None where the table has no partitions. ``visible``:
    whether the catalog shows a transaction, or does within so many seconds. ``xid``: the one that is being streamed."""

    def __init__(
        self,
        link: Callable[[int, int], PartitionLink | None],
        topics: LeafTopics,
        *,
        visible: Callable[[int, float], bool],
        xid: Callable[[], int],
    ) -> None:
        self._link = link
        self._topics = topics
        self._visible = visible
        self._xid = xid

    def came(self, table: TableName, oid: int, leaf_oid: int) -> None:
        """The stream is about to bring changes of a relation under a captured table's name.

        Asks for the table to be read again, durably, where the relation is its partition no more. Raises what ``link``
        raises, and LogError.
        """
        found = self._link(oid, leaf_oid)
        if found is None:
            return
        if gone(found, self._xid()):
            # A partition that this transaction made itself may not be in the catalog yet. One that stays unseen for
            # long counts as gone: a reading too many harms nothing, and the stream goes on (H140).
            self._visible(self._xid(), _PATIENCE_S)
            found = self._link(oid, leaf_oid) or found
        if why := gone(found, self._xid()):
            # Of changes up to here some may be the partition's that is gone: the sweep has to lie behind them.
            self._topics.ask_again(table, why, after_lsn=found.insert_lsn)
        else:
            self._topics.saw_partitions(table, found.links)


def link_in(connection: Connection, oid: int, leaf_oid: int) -> PartitionLink | None:
    """From the catalog, as :class:`Partitions` wants it. Takes no lock of a table. Raises psycopg.Error."""
    query = load(__package__, "partitions.sql")["partition"].encode()
    row = connection.execute(query, {"root": oid, "leaf": leaf_oid}).fetchone()
    return PartitionLink(*row) if row is not None else None


def gone(found: PartitionLink, xid: int) -> str:
    """Why a partition whose changes come in the transaction ``xid`` may have left since. Empty where it has not.

    One that was made as a partition was none before, also if a subtransaction made it, whose number is higher.

    >>> one = {"11": 701}
    >>> gone(Link(True, one, one, 0), 701), gone(Link(True, one, one, 0), (7 << 32) + 700)
    ('', 'had a partition detached for a while')
    >>> gone(Link(True, one, {}, 0), 700)
    ''
    >>> old = {"11": (1 << 32) - 2}
    >>> gone(Link(True, old, old, 0), (8 << 32) + 5), gone(Link(False, {}, {}, 0), 700)
    ('', 'had a partition that is gone')
    """
    if not found.below:
        return "had a partition that is gone"
    newer = (0 < (born - xid) % _XIDS < _XIDS // 2 for born in found.attached.values())
    return "had a partition detached for a while" if any(newer) else ""
