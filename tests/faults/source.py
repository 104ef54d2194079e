"""A database in memory: what it committed, what its slot would send of it, and its rows after every commit.

Three tables of three kinds: ``a`` (old keys only, values out of line), ``b`` (deferrable key, whole old rows) and
``c`` (whole old rows, values out of line). A later version of ``a`` has one column more.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from cdc.record.schema import Identity, TableSchema
from connectors.postgres.protocol.messages import UNCHANGED, Unchanged
from tests.unit.connectors.postgres import written as w

A, B, C = 101, 102, 103
_LATER = w.column("extra", "text")
SCHEMAS: Mapping[tuple[int, int], TableSchema] = {
    (A, 3): w.table(w.column("id", "int4", 0), w.column("note", "text"), w.column("doc", "text"), oid=A, name="a"),
    (A, 4): w.table(
        w.column("id", "int4", 0), w.column("note", "text"), w.column("doc", "text"), _LATER, oid=A, name="a", version=2
    ),
    (B, 3): w.table(
        w.column("id", "int4", 0), w.column("note", "text"), w.column("doc", "text"), oid=B, name="b",
        identity=Identity.FULL, deferrable_key=True,
    ),
    (C, 3): w.table(
        w.column("id", "int4", 0), w.column("note", "text"), w.column("doc", "text"), oid=C, name="c",
        identity=Identity.FULL,
    ),
}  # fmt: skip
"""By oid and number of columns."""
TOPICS: Mapping[int, str] = {oid: schema.topic for (oid, _), schema in SCHEMAS.items()}
_KEYS = 4
_WIDE = 600
"""Values out of line are longer than this."""

Row = tuple[bytes | None, ...]
"""id, note, doc, extra"""
Rows = dict[tuple[int, int], Row]
"""(oid, id) -> row"""


class Sent(NamedTuple):
    """A message and the table it speaks of, 0 for none; ``columns`` of that table at the time."""

    message: bytes
    lsn: int
    oid: int = 0
    columns: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """A committed transaction as the slot sends it."""

    commit_lsn: int
    end_lsn: int
    xid: int
    sent: tuple[Sent, ...]


@dataclass(slots=True)
class Source:
    """``states[n]``: the rows after ``n`` transactions; ``start_lsn``: the slot's consistent point."""

    start_lsn: int
    transactions: list[Transaction] = field(default_factory=list)
    states: list[Rows] = field(default_factory=list)

    def committed_below(self, lsn: int) -> int:
        """How many transactions committed below."""
        return sum(transaction.commit_lsn < lsn for transaction in self.transactions)


def document(row: Row) -> dict[str, object]:
    """A row as its JSON says it; columns that came later and are null are left out."""
    named = zip(("id", "note", "doc", "extra"), row, strict=True)
    found: dict[str, object] = {name: None if value is None else value.decode() for name, value in named}
    found["id"] = int(row[0] or b"")
    if found["extra"] is None:
        del found["extra"]
    return found


def make(rng: random.Random) -> Source:
    """A short history: one to five transactions of up to three changes, some rolled back, positions close."""
    return _Maker(rng).source()


class _Maker:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._lsn = 8 * rng.randint(1, 1 << 20)
        self._xid = rng.choice((700, (1 << 32) - 3))
        self._count = 0
        self._columns = 3
        self._oids = rng.sample((A, B, C), rng.choice((1, 1, 2, 3)))
        self._rows: Rows = {}
        for oid in self._oids:
            for number in rng.sample(range(_KEYS), rng.randint(0, 3)):
                self._rows[oid, number] = self._row(oid, number)

    def source(self) -> Source:
        rng = self._rng
        made = Source(self._lsn, states=[dict(self._rows)])
        for _ in range(rng.choice((1, 2, 2, 3, 5))):
            self._xid += rng.randint(1, 2)
            if A in self._oids and self._columns == 3 and rng.random() < 0.1:
                self._columns = 4
            before = dict(self._rows)
            sent = [one for _ in range(rng.randint(1, 3)) for one in self._change(rng.choice(self._oids))]
            if rng.random() < 0.1:
                # Rolled back: it took a transaction id and some WAL, and nothing of it is ever sent.
                self._rows = before
                self._lsn += 8 * rng.randint(1, 9)
                continue
            made.transactions.append(self._committed(sent))
            made.states.append(dict(self._rows))
        return made

    def _committed(self, sent: list[Sent]) -> Transaction:
        rng, began = self._rng, self._lsn
        # The next COMMIT record may begin right where the last one ended, and records of others lie in between.
        commit_lsn = self._lsn + 8 * rng.choice((0, 0, 1, 7))
        end_lsn = commit_lsn + 8 * rng.randint(4, 6)
        self._lsn = end_lsn
        if rng.random() < 0.1:
            sent.insert(0, Sent(w.origin("elsewhere", 5), began))
        if rng.random() < 0.1:
            sent.insert(rng.randint(0, len(sent)), Sent(w.logical("p", b"x", transactional=False, lsn=began), began))
        whole = (
            Sent(w.begin(commit_lsn, self._xid % (1 << 32)), began),
            *(one._replace(lsn=8 * rng.randint(1, commit_lsn // 8 + 1)) for one in sent),
            Sent(w.commit(commit_lsn, end_lsn), commit_lsn),
        )
        return Transaction(commit_lsn=commit_lsn, end_lsn=end_lsn, xid=self._xid, sent=whole)

    def _change(self, oid: int) -> list[Sent]:
        rng = self._rng
        mine = [number for table, number in self._rows if table == oid]
        free = [number for number in range(_KEYS) if number not in mine]
        kind = rng.random()
        if kind < 0.04:
            for number in mine:
                del self._rows[oid, number]
            return [Sent(w.truncate(oid), 0, oid, self._width(oid))]
        if oid == B and kind < 0.4 and len(mine) > 1:
            return self._shifted(mine)
        if not mine or (free and kind < 0.35):
            number = rng.choice(free)
            row = self._rows[oid, number] = self._row(oid, number)
            return [self._sent(oid, w.insert(*row[: self._width(oid)], oid=oid))]
        number = rng.choice(mine)
        if kind < 0.55:
            old = self._rows.pop((oid, number))
            return [self._sent(oid, w.delete(**self._before(oid, old), oid=oid))]
        target = rng.choice(free) if free and kind < 0.75 else number
        return [self._updated(oid, number, target)]

    def _updated(self, oid: int, number: int, target: int) -> Sent:
        old = self._rows.pop((oid, number))
        new = self._row(oid, target)
        if self._rng.random() < 0.5:
            new = (new[0], new[1], old[2], *new[3:])
        self._rows[oid, target] = new
        out_of_line = new[2] is not None and new[2] == old[2] and len(new[2]) >= _WIDE
        shown: list[bytes | Unchanged | None] = [*new[: self._width(oid)]]
        if out_of_line:
            shown[2] = UNCHANGED
        before = self._before(oid, old) if oid != A or number != target else {}
        return self._sent(oid, w.update(shown, **before, oid=oid))

    def _shifted(self, mine: list[int]) -> list[Sent]:
        """Every key moved by one, or two swapped: several rows share a key for a moment."""
        rng = self._rng
        numbers = sorted(mine, reverse=rng.random() < 0.5)
        moved = {number: (number + 1) % (_KEYS + 2) for number in numbers}
        if rng.random() < 0.4:
            one, two = rng.sample(numbers, 2)
            moved = {one: two, two: one}
        olds = {number: self._rows.pop((B, number)) for number in moved}
        sent = []
        for number, target in moved.items():
            new = (b"%d" % target, *olds[number][1:])
            self._rows[B, target] = new
            sent.append(self._sent(B, w.update(new[:3], old=olds[number][:3], oid=B)))
        return sent

    def _before(self, oid: int, old: Row) -> dict[str, list[bytes | None]]:
        if oid == A:
            return {"key": [old[0], *[None] * (self._width(oid) - 1)]}
        return {"old": list(old[:3])}

    def _row(self, oid: int, number: int) -> Row:
        """A row that no other is like; of ``b`` some are, because its changes are counted as they look."""
        rng = self._rng
        self._count += 1
        note = rng.choice((b"x", b"y")) if oid == B else b"n%d" % self._count
        doc = rng.choice((None, b"short", b"%d," % self._count * (_WIDE // 2))) if oid != B else None
        extra = b"e%d" % self._count if oid == A and self._columns == 4 and rng.random() < 0.7 else None
        return (b"%d" % number, note, doc, extra)

    def _width(self, oid: int) -> int:
        return self._columns if oid == A else 3

    def _sent(self, oid: int, message: bytes) -> Sent:
        return Sent(message, 0, oid, self._width(oid))


def announced(oid: int, columns: int) -> bytes:
    """The Relation message of a table's version."""
    return w.relation(SCHEMAS[oid, columns])


def cut(source: Source, rng: random.Random) -> tuple[list[tuple[int, Row]], int]:
    """Rows as a snapshot that was killed now and then reads them: each table half in one cut, half in a later one.

    Also the number of transactions that the latest cut saw.
    """
    last = 0
    rows = []
    for oid in TOPICS:
        for half in (0, 1):
            seen = rng.randint(0, min(2, len(source.transactions))) if rng.random() < 0.5 else 0
            last = max(last, seen)
            rows += [(o, row) for (o, number), row in source.states[seen].items() if o == oid and number % 2 == half]
    rng.shuffle(rows)
    return rows, last
