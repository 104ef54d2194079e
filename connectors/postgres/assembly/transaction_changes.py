"""The long way of a change: decoded rows, column by column, for everything that is not the usual case.

Values that an update left out, changes of a key, tables whose changes are netted, TRUNCATE, and any value that
the compiled functions do not take.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NoReturn

from cdc.process.errors import DecodeError, PoisonError
from cdc.record.ports import Record, Withheld
from cdc.wire.envelope import NULL
from cdc.wire.format import NEW_KEY, NEW_ROW, NO_NEW_ROW, NO_ROWS, OLD_KEY, OLD_ROW, OP, POS, TRUNCATE_OP
from cdc.wire.records import truncate_key
from connectors.postgres.assembly.net_changes import Netting, SettledKey
from connectors.postgres.assembly.pending_records import Pending
from connectors.postgres.assembly.routes import Route, StreamTable
from connectors.postgres.assembly.transaction import Collector, RecentRows, Transaction
from connectors.postgres.encoding.encoder import TableEncoder
from connectors.postgres.protocol.messages import UNCHANGED, Delete, Insert, Omitted, Tuple, Unchanged, Update
from connectors.postgres.protocol.pgoutput import Reader, read_tuple, write_tuple

Headers = Sequence[tuple[str, bytes]]
Row = Sequence[bytes | Omitted | None]
Values = list[bytes | Unchanged | Omitted | None]
_VERSION_BYTES = 4


def _row(encoder: TableEncoder, row: Row) -> bytes:
    """The row's JSON, or what stands for it where a value was left out."""
    known = [value for value in row if not isinstance(value, Omitted)]
    return encoder.row(known) if len(known) == len(row) else Withheld(_size_bytes(row))


def _size_bytes(row: Sequence[bytes | Unchanged | Omitted | None]) -> int:
    return sum(v.size_bytes if isinstance(v, Omitted) else len(v) if isinstance(v, bytes) else 0 for v in row)


class TransactionChanges:
    """Writes the changes of one transaction after the other. State is kept in what it is given."""

    def __init__(
        self,
        transaction: Transaction,
        outlet: Collector,
        recent: RecentRows,
        netting: Netting,
    ) -> None:
        self._tx = transaction
        self._outlet = outlet
        self._recent = recent
        self._netting = netting
        self._netted: dict[tuple[int, int], StreamTable] = {}
        """Tables of the rows being netted, by oid and version."""
        self._settled: dict[int, int] = {}
        """Positions that netting has taken behind the transaction's last row, by first lane of the topic."""

    def write(self, table: StreamTable, lsn: int, seq: int, message: Insert | Update | Delete) -> None:
        """A change whose positions begin at ``seq``."""
        match message:
            case Insert():
                self._insert(table, lsn, seq, message)
            case Update():
                self._update(table, lsn, seq, message)
            case Delete():
                self._delete(table, lsn, seq, message)

    def _insert(self, table: StreamTable, lsn: int, seq: int, message: Insert) -> None:
        if table.netted:
            self._net(table, lsn, None, self._whole(table, message.new))
        else:
            values = list(message.new)
            self._write(table.insert, lsn, seq, self._key(table, values), NULL, values)

    def _update(self, table: StreamTable, lsn: int, seq: int, message: Update) -> None:
        encoder = table.encoder
        new = list(message.new)
        old = None if message.key is None and message.old is None else self._old(table, message.key or message.old)
        if old is not None:
            self._fill(table, new, old, whole=message.old is not None)
        key = self._key(table, new)
        old_key = key if old is None else self._key(table, old)
        if table.netted:
            self._net(table, lsn, old, self._whole(table, tuple(new)))
        elif old is None or old_key == key:
            before = _row(encoder, old) if old is not None and message.old is not None else NULL
            self._write(table.update, lsn, seq, key, before, new)
        else:
            self._move(table, lsn, seq, (old_key, key), old, new)

    def _delete(self, table: StreamTable, lsn: int, seq: int, message: Delete) -> None:
        old = self._old(table, message.key or message.old or ())
        if table.netted:
            self._net(table, lsn, old, None)
        else:
            self._remove(table, lsn, seq, self._key(table, old), old)

    def truncate(self, table: StreamTable, lsn: int, seq: int) -> None:
        """A ``t`` event to every partition. Rows of the table that this transaction brought are gone."""
        self._recent.forget_table(table.lane)
        self._netting.forget(table.schema.oid)
        tail = table.encoder.envelope.tail(self._tx.stamp(), TRUNCATE_OP.encode()) % (lsn, lsn, seq)
        key = truncate_key(str(table.schema.table))
        for lane in range(table.lane, table.lane + table.lane_count):
            headers = [(POS, self._tx.pos % seq), (OP, TRUNCATE_OP.encode()), table.insert.ver]
            self._outlet.emit((lane, key, NO_ROWS + tail, headers))
        table.truncates += 1

    def settle(self) -> None:
        """At COMMIT: write what netting leaves of the transaction."""
        if not self._netting.empty:
            self._settled.clear()
            for settled in self._netting.settle():
                self._settle(settled)
                self._outlet.many(len(settled.before or b"") + len(settled.after or b""))
        self.forget()

    def announced(self, table: StreamTable) -> None:
        """Rows of the old shape have other columns at the same places, or values from before a rewrite."""
        self._recent.forget_table(table.lane)

    @property
    def settled(self) -> bool:
        """Whether nothing waits for the COMMIT."""
        return self._netting.empty

    def hand_over(self, oid: int, other: TransactionChanges) -> None:
        """Let another settle the changes that the open transaction brought so far of a netted table."""
        if not self._netting.empty:
            self._netting.hand_over(oid, other._netting)
            other._netted |= {place: table for place, table in self._netted.items() if place[0] == oid}

    def leave(self, table: StreamTable) -> None:
        """Drop what is kept of a table that is set aside."""
        self._recent.forget_table(table.lane)
        self._netting.forget(table.schema.oid)

    def forget(self) -> None:
        """Drop what is kept of the open transaction."""
        self._recent.clear()
        self._netting.close()
        self._netted.clear()

    def _move(self, table: StreamTable, lsn: int, seq: int, keys: tuple[bytes, bytes], old: Row, new: Values) -> None:
        """The key changed: delete and tombstone of the old one, then create of the new."""
        old_key, new_key = keys
        if UNCHANGED in new:
            # The transaction keeps the row's known values under its old key.
            self._recall(table, old_key, new)
        self._remove(table, lsn, seq, old_key, old, [(NEW_KEY, new_key)])
        self._write(table.insert, lsn, seq + 2, new_key, NULL, new, [(OLD_KEY, old_key)])

    def _remove(self, table: StreamTable, lsn: int, seq: int, key: bytes, old: Row, more: Headers = ()) -> None:
        for record in self._removal(table, lsn, seq, key, old, more):
            self._outlet.emit(record)
        self._recent.rows.pop((table.lane, key), None)
        table.delete.rows += 1

    def _removal(
        self, table: StreamTable, lsn: int, seq: int, key: bytes, old: Row, more: Headers = ()
    ) -> Iterator[Record]:
        """The delete and its tombstone."""
        encoder, route = table.encoder, table.delete
        lane = table.lane_of(key)
        before = _row(encoder, old) if table.full else encoder.key_row(self._key_of(table, old))
        tail = self._tail(route, lsn, seq)
        value = before if isinstance(before, Withheld) else b"".join((OLD_ROW, before, NO_NEW_ROW, tail))
        yield lane, key, value, route.headers(self._tx.pos % seq, more)
        yield lane, key, None, route.headers(self._tx.pos % (seq + 1), more)

    def _write(
        self,
        route: Route,
        lsn: int,
        seq: int,
        key: bytes,
        before: bytes,
        values: Values,
        more: Headers = (),
    ) -> None:
        table = route.table
        encoder = table.encoder
        headers = route.headers(self._tx.pos % seq, more)
        lane, tail = table.lane_of(key), self._tail(route, lsn, seq)
        route.rows += 1
        if isinstance(before, Withheld) or Omitted in map(type, values):
            # Larger than its topic takes, even without the values that are unknown.
            self._recent.rows.pop((table.lane, key), None)
            size_bytes = _size_bytes(values) + (0 if before is NULL else len(before))
            self._outlet.emit((lane, key, Withheld(size_bytes), headers))
            return
        if UNCHANGED in values:
            self._recall(table, key, values)
        carried = [value for value in values if not isinstance(value, Omitted)]
        complete = [value for value in carried if not isinstance(value, Unchanged)]
        if len(complete) == len(carried):
            value = b"".join((OLD_ROW, before, NEW_ROW, encoder.row(complete), tail))
            self._outlet.emit((lane, key, value, headers))
            self._remember(table, key, complete)
            return
        self._recent.rows.pop((table.lane, key), None)
        pending = Pending(
            lane=lane,
            lanes=table.lanes,
            xid=self._tx.xid,
            key=key,
            headers=headers,
            encoder=encoder,
            before=before,
            values=carried,
            tail=tail,
        )
        self._outlet.wait(pending)

    def _tail(self, route: Route, lsn: int, seq: int) -> bytes:
        if route.serial != self._tx.serial:
            route.renew(self._tx.stamp(), self._tx.serial)
        return route.tail % (lsn, lsn, seq)

    # Values an update leaves out

    def _recall(self, table: StreamTable, key: bytes, values: Values) -> None:
        known = self._recent.row((table.lane, key))
        if known is not None and len(known) == len(values):
            for i, value in enumerate(values):
                if isinstance(value, Unchanged):
                    values[i] = known[i]

    def _remember(self, table: StreamTable, key: bytes, row: Sequence[bytes | None]) -> None:
        size_bytes = sum(len(value) for value in row if value is not None)
        if size_bytes > table.wide:
            self._recent.keep((table.lane, key), tuple(row), size_bytes)
        else:
            self._recent.rows.pop((table.lane, key), None)

    def _fill(self, table: StreamTable, new: Values, old: Row, *, whole: bool) -> None:
        """From the old row: every value of a whole one, of a key the key's own.

        A value out of line is never null. Where an old row called whole has a null for it, a partition made
        since has another replica identity than its root, and the row is its key only.
        """
        columns = range(len(new)) if whole else table.encoder.key_columns
        for i in columns:
            if isinstance(new[i], Unchanged) and old[i] is not None:
                new[i] = old[i]

    def _key(self, table: StreamTable, values: Sequence[bytes | Unchanged | Omitted | None]) -> bytes:
        return table.encoder.key(self._key_of(table, values))

    def _key_of(self, table: StreamTable, values: Sequence[bytes | Unchanged | Omitted | None]) -> list[bytes | None]:
        """The row with nothing but what its key needs."""
        self._fits(table, values)
        known: list[bytes | None] = [None] * len(values)
        for i in table.encoder.key_columns:
            value = values[i]
            if isinstance(value, Unchanged):
                self._refuse(table, "leaves out its key, which the replica identity should have brought")
            if isinstance(value, Omitted):
                raise PoisonError(
                    f"a row of {table.schema.table} has {value.size_bytes:,} bytes in a column of its key, "
                    "which is larger than any topic takes",
                    hint="take the table out of the publication, or give it a key of small values",
                )
            known[i] = value
        return known

    def _old(self, table: StreamTable, values: Tuple | None) -> Row:
        self._fits(table, values or ())
        return self._whole(table, values or ())

    def _whole(self, table: StreamTable, values: Tuple) -> Row:
        self._fits(table, values)
        found = [value for value in values if not isinstance(value, Unchanged)]
        if len(found) != len(values):
            self._refuse(table, "leaves out values where every value is needed")
        return found

    def _fits(self, table: StreamTable, values: Sequence[object]) -> None:
        if len(values) != len(table.schema.columns):
            self._refuse(table, f"has {len(values)} columns where {len(table.schema.columns)} were announced")

    def _refuse(self, table: StreamTable, what: str) -> NoReturn:
        raise DecodeError(
            f"a row of {table.schema.table} {what}", hint="nothing was skipped; cdc check looks at the table"
        )

    # Netting

    def _net(self, table: StreamTable, lsn: int, old: Row | None, new: Row | None) -> None:
        oid, version = table.schema.oid, table.schema.version
        self._netted[(oid, version)] = table
        mark = version.to_bytes(_VERSION_BYTES)
        if old is not None:
            self._netting.went(oid, self._key(table, old), mark + write_tuple(tuple(old)), lsn)
        if new is not None:
            self._netting.came(oid, self._key(table, new), mark + write_tuple(tuple(new)), lsn)

    def _settle(self, settled: SettledKey) -> None:
        before, after = self._read(settled.table, settled.before), self._read(settled.table, settled.after)
        across = before is not None and after is not None and before[0] is not after[0]
        example = after or before
        if example is None:
            return
        if settled.unclear or across:
            self._look(settled, *example)
        elif after is not None:
            table, row = after
            route = table.insert if before is None else table.update
            old = NULL if before is None else _row(table.encoder, before[1])
            self._write(route, settled.lsn, self._next(table, 1), settled.key, old, list(row))
        elif before is not None:
            self._remove(before[0], settled.lsn, self._next(before[0], 2), settled.key, before[1])

    def _next(self, table: StreamTable, count: int) -> int:
        """The first of ``count`` positions behind the transaction's rows. Each topic counts for itself: what another
        table leaves to settle is no affair of this one's."""
        taken = self._settled.get(table.lane, 0)
        self._settled[table.lane] = taken + count
        return self._tx.seq + taken + 1

    def _read(self, oid: int, raw: bytes | None) -> tuple[StreamTable, Row] | None:
        if raw is None:
            return None
        table = self._netted[(oid, int.from_bytes(raw[:_VERSION_BYTES]))]
        return table, self._whole(table, read_tuple(Reader("Netted row", raw, _VERSION_BYTES, abridged=True)))

    def _look(self, settled: SettledKey, table: StreamTable, row: Row) -> None:
        """Ask the source for the row. The changes do not say what is left, because the table changed its shape
        meanwhile or its key is not unique after all. Either answer takes the same numbers."""
        seq = self._next(table, 2)
        known = dict(zip((column.name for column in table.schema.columns), self._key_of(table, row), strict=True))
        newest = self._newest(table)
        keys = {column.name for column in newest.schema.key}
        old = [known[column.name] if column.name in keys else None for column in newest.schema.columns]
        route, lane = newest.update, newest.lane_of(settled.key)
        route.rows += 1
        pending = Pending(
            lane=lane,
            lanes=newest.lanes,
            xid=self._tx.xid,
            key=settled.key,
            headers=route.headers(self._tx.pos % seq),
            encoder=newest.encoder,
            before=NULL,
            values=[old[i] if c.name in keys else UNCHANGED for i, c in enumerate(newest.schema.columns)],
            tail=self._tail(route, settled.lsn, seq),
            gone=tuple(self._removal(newest, settled.lsn, seq, settled.key, old)),
        )
        self._outlet.wait(pending)

    def _newest(self, table: StreamTable) -> StreamTable:
        """The last shape of the table in this transaction that has the same key."""
        names = [column.name for column in table.schema.key]
        same = (
            other
            for (oid, _), other in self._netted.items()
            if oid == table.schema.oid and [column.name for column in other.schema.key] == names
        )
        return max(same, key=lambda other: other.schema.version)
