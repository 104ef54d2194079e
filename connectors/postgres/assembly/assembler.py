"""From the stream's bytes to records in order: positions, key changes, tombstones, TRUNCATE, missing values.

A pure state machine: bytes into :meth:`Assembler.feed`, records out of it. Its questions to the world (a table's shape,
a row's newest values) go through :class:`AssemblerPorts`. Rows of the common kind never become objects: the loop in
``feed`` looks their kind and oid up and calls the function compiled for them. Everything else is decoded and takes the
long way below.

``tx_seq`` counts the transaction's row messages by what their bytes say, written or not: insert and TRUNCATE of a table
1, delete 2 (with its tombstone), update 3 if it carries an old key or row (it may be a change of the key), else 1.
Records that netting settles at COMMIT follow after, counted for each topic by itself. So a replay gives every record
the position it had, under any later catalog or state of another table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from struct import Struct
from typing import NoReturn, assert_never

from cdc.process.errors import DecodeError
from cdc.record.ports import Record
from cdc.record.position import Lsn
from cdc.record.tables_aside import CannotFollow
from cdc.record.topic_names import TableName
from cdc.wire.format import POS
from connectors.postgres.assembly.net_changes import Netting
from connectors.postgres.assembly.outbox_events import OutboxEvents
from connectors.postgres.assembly.pending_records import GONE, PendingRecords, Reselect, Selected, Undecided, WantedRow
from connectors.postgres.assembly.ports import (
    Assembled,
    AssemblerPorts,
    Committed,
    Limits,
    Pipeline,
    SchemaSource,
    Start,
)
from connectors.postgres.assembly.routes import CompiledTables, Route, StreamTable
from connectors.postgres.assembly.transaction import Collector, LogTails, RecentRows, Transaction
from connectors.postgres.assembly.transaction_changes import TransactionChanges
from connectors.postgres.assembly.undecoded_tables import Decoding, UnreadTables
from connectors.postgres.assembly.waiting_tables import Bounds, WaitingTables
from connectors.postgres.encoding.encoder import compile_table
from connectors.postgres.encoding.masked_rows import MaskedTables
from connectors.postgres.protocol.messages import (
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    Origin,
    Relation,
    Truncate,
    TypeName,
    Update,
    numbers,
)
from connectors.postgres.protocol.oversized_fields import Abridged
from connectors.postgres.protocol.pgoutput import decode

__all__ = [
    "GONE", "Assembled", "Assembler", "AssemblerPorts", "Committed", "Limits", "Pipeline", "Reselect",
    "SchemaSource", "Selected", "Start", "WantedRow",
]  # fmt: skip

_ROW_KINDS = frozenset(b"IUD")
_LSN = Struct(">Q")
_PAYLOAD_AT = 25
_TIMEOUT_S, _BRIEF_S = 2.0, 0.02
"""How long the stream of all tables waits for the shape of one: as long as for its rows."""
_HINT = "nothing was skipped and nothing acknowledged; please report it with the server's version"
_AT_ZERO, _LIMITS = Start(), Limits()


class Assembler:
    """See the module. Implements :class:`cdc.record.ports.Assembles`."""

    def __init__(
        self, pipeline: Pipeline, ports: AssemblerPorts, start: Start = _AT_ZERO, limits: Limits = _LIMITS
    ) -> None:
        self._schemas = ports.schemas
        self._lanes, self._partition = ports.lanes, ports.partition
        encoder = ports.encoder or partial(
            compile_table, name=pipeline.name, database=pipeline.database, masks=ports.masks
        )
        self._tx = Transaction(pipeline.epoch, start.near_xid, start.times)
        self._seen = LogTails(start.after_lsn, pipeline.epoch, start.seen)
        self._compiled = CompiledTables(encoder, ports.lanes, ports.partition)
        self._asides = ports.asides
        bounds = Bounds(limits.waiting_memory_bytes, limits.waiting_bytes, limits.spill_folder)
        self._waiting = WaitingTables(ports.reselect, bounds, ports.tell, self._set_aside)
        held = PendingRecords(ports.reselect)
        self._outlet = Collector(ports.overflow, held, self._seen, limits.held_bytes, self._waiting, self._set_aside)
        self._recent = RecentRows(limits.recent_bytes)
        self._limits = limits
        self._changes = self._changes_with(self._recent)
        self._topic = ports.topic
        self._kept = ports.kept
        self._outbox = OutboxEvents(ports.outbox, self._tx, self._outlet, ports.partition)
        self.outbox_counts = self._outbox.counts
        self._masked = MaskedTables(ports.masks)
        self._tables: dict[int, StreamTable | None] = {}
        self._announced: dict[int, tuple[Relation, int]] = {}
        """The newest announcement of each oid, and its transaction."""
        self._refused: dict[int, CannotFollow] = {}
        """Announcements that cannot be followed, of tables of which the catalog says that they can: the next one is
        due before any change."""
        self._routes: dict[bytes, Route] = {}
        self._masked_routes: dict[bytes, Route] = {}
        """The same of tables with masks, whose rows are masked first."""
        self._hot: dict[bytes, Route] = {}
        """The routes while a transaction is open that is not skipped. The loop looks here."""
        self._commits: list[Committed] = []
        decoding = Decoding(
            transaction=self._tx,
            outlet=self._outlet,
            schemas=ports.schemas,
            changes=lambda: self._changes_with(RecentRows(limits.recent_bytes)),
            made=self._compiled.of,
            live=self._follow,
        )
        self._unread = UnreadTables(decoding, bounds, self._waiting.room, ports.tell, self._set_aside)

    @property
    def in_transaction(self) -> bool:
        return self._tx.begin is not None

    @property
    def open_commit_us(self) -> int | None:
        begin = self._tx.begin
        return begin.committed_us if begin is not None else None

    @property
    def newest_xid(self) -> int:
        """The newest 64-bit transaction id that was seen, before the first one an id of that time."""
        return self._tx.xid

    @property
    def waiting_lanes(self) -> frozenset[int]:
        if not self._unread:
            return self._waiting.lanes
        topics = {topic for table in self._unread.counts() if (topic := self._topic(table)) is not None}
        found = [self._lanes(topic) for topic in sorted(topics)]
        return self._waiting.lanes.union(*(range(lane, lane + count) for lane, count in found))

    @property
    def oldest_waiting(self) -> int | None:
        return _oldest(self._waiting.oldest, self._unread.oldest)

    def oldest_of(self, table: TableName) -> int | None:
        """The same of one table."""
        return _oldest(self._outlet.oldest_of(self._compiled.lanes_of(table)), self._unread.oldest_of(table))

    def waiting(self) -> Mapping[TableName, int]:
        """How many records of each table wait."""
        return Counter(self._waiting.counts()) + Counter({t: max(1, n) for t, n in self._unread.counts().items()})

    def resume(self) -> list[Record]:
        """The records of waiting tables that can be had now: at most some of each. To be called now and then."""
        self._unread.resume()
        self._outlet.resume()
        return self._outlet.take()

    def counts(self) -> Counter[tuple[str, str]]:
        return self._compiled.counts()

    def lost(self) -> Counter[tuple[str, str]]:
        return self._compiled.lost()

    def feed(self, frames: Sequence[bytes], now_ns: int) -> Assembled:  # noqa: C901 - a call in the loop would cost more
        """See :meth:`cdc.record.ports.Assembles.feed`. DecodeError names the LSN and the byte."""
        tx = self._tx
        tx.captured_at(now_ns)
        unpack, partition, recent = _LSN.unpack_from, self._partition, self._recent.rows
        hot, emit, pos, seq, rows, serial = self._hot, self._outlet.emit, tx.pos, tx.seq, tx.rows, tx.serial
        masked = self._masked.tables
        for frame in frames:
            route = hot.get(frame[25:30])
            if route is None and masked and frame[26:30] in masked and frame[25] in _ROW_KINDS:
                frame = masked[frame[26:30]].frame(frame)  # noqa: PLW2901 - nothing behind this line has the plain row
                route = self._masked_routes.get(frame[25:30]) if hot is self._routes else None
            if route is not None:
                if route.serial != serial:
                    route.renew(tx.stamp(), serial)
                (lsn,) = unpack(frame, 1)
                made = route.encode(frame, lsn, seq + 1, route.plain, route.loose)
                if made is not None:
                    key, value = made
                    seq += 1
                    lane = route.lane + partition(key, route.count)
                    emit((lane, key, value, [(POS, pos % seq), route.op, route.ver]))
                    more = route.more
                    if more:
                        if route.deletes:
                            emit((lane, key, None, [(POS, pos % (seq + 1)), route.op, route.ver]))
                        seq += more
                    route.rows += 1
                    rows += 1
                    if len(frame) > route.wide:
                        self._recent.keep((route.lane, key), frame, len(frame))
                    elif recent:
                        recent.pop((route.lane, key), None)
                    continue
            tx.seq, tx.rows = seq, rows
            self._take(frame)
            hot, emit, pos, seq, rows, serial = self._hot, self._outlet.emit, tx.pos, tx.seq, tx.rows, tx.serial
        tx.seq, tx.rows = seq, rows
        self._outlet.release()
        self._outbox.settle()
        if self._waiting.left and not self.in_transaction:
            self._outlet.arrived()
        commits, self._commits = self._commits, []
        return Assembled(records=self._outlet.take(), commits=commits)

    def _take(self, frame: bytes) -> None:
        """One message the long way."""
        if len(frame) <= _PAYLOAD_AT or frame[:1] != b"w":
            raise DecodeError(f"no XLogData message in {len(frame)} bytes from the server", hint=_HINT)
        kind = frame[_PAYLOAD_AT]
        if self._tx.skipped and kind in _ROW_KINDS:
            return
        (lsn,) = _LSN.unpack_from(frame, 1)
        if self._outbox.taken(lsn, frame):
            return
        try:
            self._message(lsn, decode(frame[_PAYLOAD_AT:], abridged=isinstance(frame, Abridged)), frame)
        except DecodeError as error:
            raise DecodeError(f"{error.message} (record at {Lsn(lsn)})", hint=error.hint) from None

    def _message(self, lsn: int, message: Message, frame: bytes) -> None:
        match message:
            case Begin():
                self._begin(message)
            case Commit():
                self._commit(message)
            case Insert() | Update() | Delete():
                self._row(lsn, message, frame)
            case Truncate():
                self._truncate(lsn, message)
            case Relation():
                self._announced[message.relation_oid] = message, self._tx.xid
                if self._unread.join(message, lsn, frame):
                    self._keep(message)
                else:
                    self._relation(message, self._tx.xid)
            case Origin():
                self._tx.came_from(message)
            case LogicalMessage():
                self._outbox.message(lsn, message)
            case TypeName():  # A type is read from the catalog at the Relation that uses it.
                pass
            case _:
                assert_never(message)

    def _begin(self, begin: Begin) -> None:
        if self.in_transaction:
            self._refuse("BEGIN inside a transaction")
        self._tx.open(begin)
        self._tx.skipped = self._outlet.begin(begin.final_lsn)
        self._hot = {} if self._tx.skipped else self._routes

    def _commit(self, commit: Commit) -> None:
        tx = self._tx
        if tx.begin is None or tx.begin.final_lsn != commit.commit_lsn:
            self._refuse("COMMIT without its BEGIN")
        self._changes.settle()
        self._unread.ended()
        self._commits.append(
            Committed(
                xid=tx.xid,
                commit_lsn=commit.commit_lsn,
                end_lsn=commit.end_lsn,
                committed_us=commit.committed_us,
                rows=tx.rows,
            )
        )
        self._hot = {}
        tx.close(commit.end_lsn)

    def _relation(self, relation: Relation, xid: int) -> None:
        """A table's shape: routes of its oid are made anew, compiled ones are found again by the schema."""
        oid = relation.relation_oid
        self._refused.pop(oid, None)
        if self._outbox.announced(relation):
            self._follow(oid, None)
            return
        try:
            # While one table's commit is not visible that of another may not be for long either.
            schema = self._schemas.schema(relation, xid, _BRIEF_S if self._unread else _TIMEOUT_S)
        except CannotFollow as why:
            if self.in_transaction:
                self._set_aside(why)
            else:
                self._refused[oid] = why
            schema = None
        self._masked.announced(relation, None if isinstance(schema, Undecided) else schema)
        if isinstance(schema, Undecided):
            self._follow(oid, None)
            self._changes.hand_over(oid, self._unread.begin(relation, xid))
        else:
            self._follow(oid, None if schema is None else self._compiled.of(schema))

    def _keep(self, relation: Relation) -> None:
        """An announcement of a table that waits."""
        self._masked.announced(relation, None)
        self._follow(relation.relation_oid, None)
        try:
            self._kept(relation)
        except CannotFollow as why:
            self._set_aside(why)

    def _follow(self, oid: int, table: StreamTable | None) -> None:
        """Set the meaning of messages of this oid from now on."""
        self._tables[oid] = table
        for kind in _ROW_KINDS:
            place = bytes((kind,)) + oid.to_bytes(4)
            self._routes.pop(place, None)
            self._masked_routes.pop(place, None)
        if table is not None:
            self._changes.announced(table)
            routes = self._masked_routes if oid.to_bytes(4) in self._masked.tables else self._routes
            routes.update(table.hot())

    def announce_again(self, table: str, oid: int) -> None:
        """Follow a table again that was set aside, from the next transaction on. Not inside one.

        ``table``: as ``schema.table``, in which a schema with a dot is not known. ``oid``: the relation that has its
        name now. One that had it before announces itself under its new name. Its last announcement may be older than
        the end of the cause: then the next one counts, and a change before it sets the table aside again.
        """
        # Between two transactions nothing of it is on its way: what comes next is to be written.
        self._outlet.arrived()
        relation, xid = self._announced.get(oid, (None, 0))
        if relation is not None and str(TableName(relation.schema, relation.table)) == table:
            self._relation(relation, xid)

    def _set_aside(self, why: CannotFollow) -> None:
        """Note it first: what is kept of the table holds progress back until that is durable."""
        for table in self._unread.together(why.tables):
            oldest = self.oldest_of(table)
            self._asides.set_aside(table, why, self._tx.lsn if oldest is None else oldest, self._tx.xid)
            self._unread.leave(table)
            for shape in self._compiled.shapes_of(table):
                self._outlet.leave(shape.lanes)
                self._changes.leave(shape)
                if self._tables.get(shape.schema.oid) is shape:
                    self._follow(shape.schema.oid, None)

    def _changes_with(self, recent: RecentRows) -> TransactionChanges:
        netting = Netting(self._limits.netted_bytes, self._limits.spill_folder)
        return TransactionChanges(self._tx, self._outlet, recent, netting)

    def _row(self, lsn: int, message: Insert | Update | Delete, frame: bytes) -> None:
        table = self._table(message.relation_oid)
        self._tx.rows += 1
        # Whether or not the table is captured.
        seq = self._tx.take(numbers(message))
        if table is not None:
            self._changes.write(table, lsn, seq, message)
        elif message.relation_oid in self._unread:
            self._unread.keep(message.relation_oid, lsn, seq, frame)
        elif message.relation_oid in self._refused:
            self._set_aside(self._refused.pop(message.relation_oid))
        elif message.relation_oid in self._outbox:
            self._outbox.row(lsn, message)

    def _truncate(self, lsn: int, message: Truncate) -> None:
        if self._tx.skipped:
            return
        for oid in message.relation_oids:
            table = self._table(oid)
            self._tx.rows += 1
            seq = self._tx.take(1)
            if table is not None:
                self._changes.truncate(table, lsn, seq)
            elif oid in self._unread:
                self._unread.emptied(oid, lsn, seq)
            elif oid in self._refused:
                self._set_aside(self._refused.pop(oid))

    def _table(self, oid: int) -> StreamTable | None:
        if not self.in_transaction:
            self._refuse("a change outside a transaction")
        if oid not in self._tables:
            self._refuse(f"a change of a table that was not announced (oid {oid})")
        return self._tables[oid]

    def _refuse(self, what: str) -> NoReturn:
        raise DecodeError(f"{what} in the stream", hint=_HINT)


def _oldest(*found: int | None) -> int | None:
    return min((lsn for lsn in found if lsn is not None), default=None)
