"""Tables whose shape cannot be read yet: their messages are kept as they came, and decoded once it can.

A message announces a shape a moment before its commit is visible, with a synchronous standby that does not answer long
before. Until the catalog shows it nobody can say what the rows mean. So they are kept raw, in order and with the
numbers that they have in their transaction, in memory and then in temporary files, while all other tables flow. Decoded
later they are the records that they would have been. Progress stays at the oldest of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from struct import Struct

from cdc.process.crash_points import crash_point, declare
from cdc.process.errors import DecodeError
from cdc.record.position import Lsn
from cdc.record.schema import TableSchema
from cdc.record.tables_aside import CannotFollow, Cause
from cdc.record.topic_names import TableName
from cdc.wire.envelope import Stamp
from connectors.postgres.assembly.pending_records import Undecided
from connectors.postgres.assembly.ports import SchemaSource
from connectors.postgres.assembly.routes import StreamTable
from connectors.postgres.assembly.spill_files import Blocks
from connectors.postgres.assembly.transaction import Collector, Transaction
from connectors.postgres.assembly.transaction_changes import TransactionChanges
from connectors.postgres.assembly.waiting_tables import Bounds, Largest, WaitingLimit, unkept
from connectors.postgres.protocol.messages import Delete, Insert, Relation, Update
from connectors.postgres.protocol.oversized_fields import Abridged
from connectors.postgres.protocol.pgoutput import decode

declare("table_unread", "unread_decoded")

_PORTION, _PORTION_BYTES = 2_000, 8 << 20
"""The most of a table that one turn decodes, so that others flow meanwhile."""
_BEGUN, _MESSAGE, _EMPTIED, _ENDED = b"B", b"M", b"T", b"E"
_STAMP = Struct(">IQqQQqq")
"""epoch, commit lsn, committed us, captured ns, xid, end of the commit before, origin's lsn. -1 where there is none."""
_PLACE = Struct(">QI?")
"""lsn of a record, its number in the transaction, whether it was abridged."""
_TABLE = Struct(">QII")
"""lsn, number, oid."""
_NUMBER = Struct(">I")
_PAYLOAD_AT = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """The parts with which kept messages are decoded. ``changes``: makes what writes the changes of one table.
    ``made``: what the stream sees of a table of this shape. ``live``: called with an oid and what its messages mean
    from now on."""

    transaction: Transaction
    outlet: Collector
    schemas: SchemaSource
    changes: Callable[[], TransactionChanges]
    made: Callable[[TableSchema], StreamTable]
    live: Callable[[int, StreamTable | None], None]


class UnreadTables:
    """All of them. ``tell``: called when a table begins to wait (true) and when it follows again. ``cannot``: called
    with tables that have to be set aside, it calls :meth:`leave`. SourceError when a file cannot be written."""

    def __init__(
        self,
        decoding: Decoding,
        bounds: Bounds,
        room: WaitingLimit,
        tell: Callable[[TableName, bool], None],
        cannot: Callable[[CannotFollow], None],
    ) -> None:
        self._with = decoding
        self._tx = decoding.transaction
        self._bounds = bounds
        self._room = room
        self._tell = tell
        self._cannot = cannot
        self._groups: list[_UnreadGroup] = []
        self._by_oid: dict[int, _UnreadGroup] = {}
        self.size_bytes = 0
        room.let(self)

    def __bool__(self) -> bool:
        return bool(self._groups)

    def __contains__(self, oid: int) -> bool:
        return oid in self._by_oid

    @property
    def oldest(self) -> int | None:
        """The lowest commit LSN that waits."""
        return min((group.since_lsn for group in self._groups), default=None)

    def oldest_of(self, table: TableName) -> int | None:
        """The same of one table."""
        return next((group.since_lsn for group in self._groups if table in group.names), None)

    def counts(self) -> dict[TableName, int]:
        """How many messages of each are kept."""
        return {name: len(group.raw) for group in self._groups for name in group.names}

    def largest(self) -> Largest:
        """The tables that are kept together with the most bytes. Of size 0 where nothing is kept."""
        group = max(self._groups, key=lambda one: one.raw.size_bytes, default=None)
        return (
            Largest(0, 0, ()) if group is None else Largest(group.raw.size_bytes, len(group.raw), sorted(group.names))
        )

    def together(self, tables: Iterable[TableName]) -> list[TableName]:
        """These, and those whose messages cannot be distinguished from theirs yet: names were swapped meanwhile."""
        found = dict.fromkeys(tables)
        for group in self._groups:
            if group.names & found.keys():
                found |= dict.fromkeys(sorted(group.names))
        return list(found)

    # -- kept

    def begin(self, relation: Relation, xid: int) -> TransactionChanges:
        """A table is announced that cannot be read before transaction ``xid`` is visible. Returns what will write its
        changes."""
        table = TableName(relation.schema, relation.table)
        raw = MessageBuffer(table, self._bounds.memory_bytes, self._bounds.folder)
        group = _UnreadGroup(table, relation, xid, self._tx.lsn, raw, self._with.changes())
        self._groups.append(group)
        self._by_oid[relation.relation_oid] = group
        if self._tx.begin is not None:
            # Changes from before the announcement may be netted: they are written at this transaction's COMMIT.
            self._open(group)
        self._tell(table, True)
        crash_point("table_unread")
        return group.changes

    def join(self, relation: Relation, lsn: int, frame: bytes) -> bool:
        """Keep an announcement if it is one of these tables, by its relation or by its name."""
        oid, table = relation.relation_oid, TableName(relation.schema, relation.table)
        named = next((group for group in self._groups if table in group.names), None)
        group = self._by_oid.get(oid) or named
        if group is None:
            return False
        if named is not None and named is not group:
            names = sorted(group.names | named.names)
            self._cannot(
                CannotFollow(
                    f"tables took each other's names before the catalog could be read: {', '.join(map(str, names))}",
                    hint="rename them back; or cdc snapshot of each follows it under its new name, and reads it anew",
                    cause=Cause.NOT_FOLLOWED,
                    tables=names,
                )
            )
            return False
        if table not in group.names:
            group.names.add(table)
            self._tell(table, True)
        self._by_oid[oid] = group
        self.keep(oid, lsn, 0, frame)
        return True

    def keep(self, oid: int, lsn: int, seq: int, frame: bytes) -> None:
        """A message of one of these, whose positions begin at ``seq``."""
        place = _PLACE.pack(lsn, seq, isinstance(frame, Abridged))
        self._add(self._by_oid[oid], _MESSAGE + place + frame[_PAYLOAD_AT:])

    def emptied(self, oid: int, lsn: int, seq: int) -> None:
        """A TRUNCATE of one of these."""
        self._add(self._by_oid[oid], _EMPTIED + _TABLE.pack(lsn, seq, oid))

    def ended(self) -> None:
        """The open transaction's COMMIT came."""
        for group in list(self._groups):
            if group.open_lsn is not None:
                self._add(group, _ENDED + _NUMBER.pack(self._tx.seq))
                group.open_lsn = None

    def leave(self, table: TableName) -> None:
        """Drop what is kept of a table that is set aside."""
        for group in [group for group in self._groups if table in group.names]:
            self._end(group)

    def _add(self, group: _UnreadGroup, block: bytes) -> None:
        self._open(group)
        before = group.raw.size_bytes
        group.raw.add(block)
        self.size_bytes += group.raw.size_bytes - before
        self._room.require()

    def _open(self, group: _UnreadGroup) -> None:
        """Note once which transaction the messages that follow are of."""
        if group.open_lsn is None:
            before, stamp = group.raw.size_bytes, self._tx.stamp()
            group.raw.add(_BEGUN + _stamped(stamp))
            group.open_lsn = stamp.commit_lsn
            self.size_bytes += group.raw.size_bytes - before

    # -- decoded

    def resume(self) -> None:
        """Write what can be decoded now, at most some of each table."""
        for group in list(self._groups):
            try:
                if self._decode(group) and group in self._groups:
                    for oid, table in group.tables.items():
                        self._with.live(oid, table)
                    self._end(group)
                    crash_point("unread_decoded")
            except CannotFollow as why:
                self._cannot(why)
                # Values that other tables of the group lacked must not wait for the next message.
                self._with.outlet.release()
        self.size_bytes = sum(group.raw.size_bytes for group in self._groups)

    def _decode(self, group: _UnreadGroup) -> bool:
        """The next of what is kept. Whether that was all, and the table's messages may be taken as they come."""
        if group.awaited is not None and not self._read(group, *group.awaited):
            return False
        taken = size_bytes = 0
        with self._tx.elsewhere(), self._with.outlet.again():
            if group.stamp is not None:
                self._tx.visit(group.stamp)
            while group.raw and group.awaited is None and taken < _PORTION and size_bytes < _PORTION_BYTES:
                block = group.raw.pop()
                taken, size_bytes = taken + 1, size_bytes + len(block)
                self._take(group, block[:1], block[1:])
        # Changes that are netted belong to one COMMIT.
        return not group.raw and group.awaited is None and group.changes.settled

    def _take(self, group: _UnreadGroup, kind: bytes, block: bytes) -> None:
        if kind == _BEGUN:
            group.stamp = _stamp(block)
            group.since_lsn = group.stamp.commit_lsn
            self._tx.visit(group.stamp)
        elif kind == _ENDED:
            (self._tx.seq,) = _NUMBER.unpack(block)
            group.changes.settle()
        elif kind == _EMPTIED:
            lsn, seq, oid = _TABLE.unpack(block)
            table = group.tables.get(oid)
            if table is not None:
                group.changes.truncate(table, lsn, seq)
        else:
            lsn, seq, abridged = _PLACE.unpack_from(block)
            try:
                self._message(group, lsn, seq, decode(block[_PLACE.size :], abridged=abridged))
            except DecodeError as error:
                raise DecodeError(f"{error.message} (record at {Lsn(lsn)})", hint=error.hint) from None

    def _message(self, group: _UnreadGroup, lsn: int, seq: int, message: object) -> None:
        if isinstance(message, Relation):
            self._read(group, message, self._tx.xid)
        elif isinstance(message, Insert | Update | Delete):
            table = group.tables.get(message.relation_oid)
            if table is not None:
                group.changes.write(table, lsn, seq, message)

    def _read(self, group: _UnreadGroup, relation: Relation, xid: int) -> bool:
        """Ask for the shape that an announcement made."""
        schema = self._with.schemas.schema(relation, xid, 0.0)
        if isinstance(schema, Undecided):
            group.awaited = relation, xid
            return False
        group.awaited = None
        table = group.tables[relation.relation_oid] = None if schema is None else self._with.made(schema)
        if table is not None:
            group.changes.announced(table)
        return True

    def _end(self, group: _UnreadGroup) -> None:
        self._groups.remove(group)
        self._by_oid = {oid: other for oid, other in self._by_oid.items() if other is not group}
        self.size_bytes -= group.raw.size_bytes
        group.raw.close()
        group.changes.forget()
        for table in sorted(group.names):
            self._tell(table, False)


class _UnreadGroup:
    """One table, or several that share relations and names. ``awaited``: an announcement that could not be read, and
    the transaction that has to be visible for it. ``open_lsn``: of the transaction whose messages are being kept.
    ``stamp``: of the one that is being decoded. ``tables``: what an oid means there."""

    def __init__(
        self,
        table: TableName,
        relation: Relation,
        xid: int,
        since_lsn: int,
        raw: MessageBuffer,
        changes: TransactionChanges,
    ) -> None:
        self.names = {table}
        self.awaited: tuple[Relation, int] | None = (relation, xid)
        self.since_lsn = since_lsn
        self.raw = raw
        self.changes = changes
        self.open_lsn: int | None = None
        self.stamp: Stamp | None = None
        self.tables: dict[int, StreamTable | None] = {}


def _stamped(stamp: Stamp) -> bytes:
    assert stamp.xid is not None
    before = -1 if stamp.before_lsn is None else stamp.before_lsn
    origin = -1 if stamp.origin_lsn is None else stamp.origin_lsn
    times = stamp.committed_us, stamp.now_ns
    head = _STAMP.pack(stamp.epoch, stamp.commit_lsn, *times, stamp.xid, before, origin)
    return head + (stamp.origin or "").encode()


def _stamp(block: bytes) -> Stamp:
    epoch, commit_lsn, committed_us, now_ns, xid, before, origin = _STAMP.unpack_from(block)
    return Stamp(
        epoch=epoch,
        commit_lsn=commit_lsn,
        committed_us=committed_us,
        now_ns=now_ns,
        xid=xid,
        before_lsn=None if before < 0 else before,
        origin=None if origin < 0 else block[_STAMP.size :].decode(),
        origin_lsn=None if origin < 0 else origin,
    )


_BLOCK_BYTES = 100
"""The memory of a block beside its bytes, roughly."""


class MessageBuffer:
    """First in, first out. ``table``: whose they are. ``memory_bytes``: beyond it they go to files in ``folder``.
    SourceError when one cannot be written or read."""

    def __init__(self, table: TableName, memory_bytes: int, folder: str | None) -> None:
        self._table = table
        self._memory_bytes = memory_bytes
        self._folder = folder
        self._head: deque[bytes] = deque()
        self._head_bytes = 0
        self._spilled: Blocks | None = None

    def __len__(self) -> int:
        return len(self._head) + (len(self._spilled) if self._spilled else 0)

    @property
    def size_bytes(self) -> int:
        """The bytes queued, in memory and in files."""
        return self._head_bytes + (self._spilled.size_bytes if self._spilled else 0)

    def add(self, block: bytes) -> None:
        """Append a block. SourceError where it goes to a file that cannot be written."""
        cost = len(block) + _BLOCK_BYTES
        try:
            if self._spilled or (self._head_bytes + cost > self._memory_bytes and self._head):
                if self._spilled is None:
                    self._spilled = Blocks(self._folder)
                self._spilled.append(block)
            else:
                self._head.append(block)
                self._head_bytes += cost
        except OSError as error:
            raise unkept(self._table, self._folder, error) from None

    def pop(self) -> bytes:
        """Take the oldest."""
        if not self._head and self._spilled:
            try:
                return self._spilled.pop()
            except OSError as error:
                raise unkept(self._table, self._folder, error) from None
        block = self._head.popleft()
        self._head_bytes -= len(block) + _BLOCK_BYTES
        return block

    def close(self) -> None:
        """Forget all of them."""
        self._head.clear()
        self._head_bytes = 0
        if self._spilled is not None:
            self._spilled.close()
            self._spilled = None
