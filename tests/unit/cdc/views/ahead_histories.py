"""Histories in which capture is behind its source, and writes what is newer than its place, or leaves rows out."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import orjson

from cdc.record.position import CHUNK_SEQ, Position
from cdc.record.progress import Progress
from cdc.record.state import ReadingState
from cdc.record.tables_aside import AsideState, Cause, TableState
from cdc.record.topic_names import partition_of
from cdc.wire.dead_letter import CAPTURE, DeadLetter, Why
from cdc.wire.format import UNAVAILABLE
from tests.memory_views import MemoryViewInput
from tests.unit.cdc.views.view_histories import PARTITIONS, History, Rows, table_of

SHAPES = (
    table_of("orders", {"id": "int4", "customer_id": "int4"}),
    table_of("lines", {"id": "int4", "order_id": "int4", "qty": "int4"}),
    table_of("customers", {"id": "int4", "name": "text"}),
)
DOCUMENTS = """select o.id, c.name, (select json_agg(l.qty order by l.id) from lines l where l.order_id = o.id) as lines
from orders o left join customers c on c.id = o.customer_id"""
GROUPS = """select coalesce(c.name, '-') as name, count(*) as n, sum(l.qty) as total, max(l.qty) as most
from lines l left join orders o on o.id = l.order_id left join customers c on c.id = o.customer_id group by 1"""
_NAMES = ("orders", "lines", "customers")
_EPOCH = 1


class Written(NamedTuple):
    """A change of a transaction as the stream is to write it. ``row`` None: a delete. ``kept``: the update left the
    long value out. ``moved``: it changed the key. The key 0 stands for a TRUNCATE. ``large``: no topic takes it."""

    name: str
    key: int
    row: dict[str, Any] | None
    kept: bool = False
    moved: bool = False
    large: bool = False


class Reading(NamedTuple):
    """A window: where it was granted, and what was read of which keys. ``seen``: the source's LSN behind the read."""

    name: str
    lsn: int
    seen: int
    rows: dict[int, dict[str, Any] | None]


@dataclass
class AheadHistory(History):
    """Transactions are committed first, and written by the stream later. ``source``: the newest rows.

    ``puts_aside``: rows that no topic takes come up. ``sets_aside``: tables are set aside.
    """

    puts_aside: bool = False
    sets_aside: bool = False
    input: MemoryViewInput = field(default_factory=lambda: MemoryViewInput({shape.topic: shape for shape in SHAPES}))
    behind: deque[tuple[int, list[Written]]] = field(default_factory=deque)
    reached: int = 8
    lost: set[tuple[str, int]] = field(default_factory=set)
    aside: str = ""
    left_out: bool = False
    owed: list[tuple[str, int, str]] = field(default_factory=list)
    """Sweep marks that are not written yet: table, LSN of the window, floor."""

    def transaction(self) -> None:
        """One to three changes are committed."""
        self.lsn += 8
        if self.chance.random() < 0.06:
            name = self.chance.choice(_NAMES)
            self.rows[name].clear()
            self._commit([Written(name, 0, None)])
            return
        changes: list[Written] = []
        for _ in range(self.chance.randint(1, 3)):
            changes += self._change(self.chance.choice(("orders", "lines", "lines", "customers", "customers")))
        self._commit(changes)

    def _commit(self, changes: list[Written]) -> None:
        self.states[self.lsn] = {name: {k: dict(r) for k, r in rows.items()} for name, rows in self.rows.items()}
        self.behind.append((self.lsn, changes))

    def _change(self, name: str) -> list[Written]:
        key, rows = self.chance.randint(1, 4), self.rows[name]
        old = rows.get(key)
        large = self.puts_aside and self.chance.random() < 0.1
        if old is not None and self.chance.random() < 0.25:
            del rows[key]
            return [Written(name, key, None)]
        if name == "customers" and old is not None and self.chance.random() < 0.7:
            to = self.chance.randint(1, 6)
            if to != key and to not in rows:
                # The key changes, the name stays and is left out.
                rows[to] = {"id": to, "name": rows.pop(key)["name"]}
                return [Written(name, key, None), Written(name, to, rows[to], kept=True, moved=True)]
            return [Written(name, key, old, kept=True)]
        rows[key] = self._row(name, key)
        return [Written(name, key, rows[key], large=large)]

    def _row(self, name: str, key: int) -> dict[str, Any]:
        if name == "customers":
            return {"id": key, "name": self.chance.choice("abc")}
        return super()._row(name, key)

    def stream(self, count: int) -> None:
        """The stream writes some transactions."""
        for _ in range(count):
            if not self.behind:
                return
            self.reached, changes = self.behind.popleft()
            seq = 1
            for change in changes:
                seq += self._streamed(change, seq)

    def _streamed(self, change: Written, seq: int) -> int:
        """One change of the transaction at ``reached``. Returns how many positions it took."""
        name, key, row = change.name, change.key, change.row
        if name == self.aside:
            self.left_out = True
            return 2
        pos = Position(_EPOCH, self.reached, seq).text()
        if not key:
            for partition in range(PARTITIONS):
                emptied = orjson.dumps({"__truncate": f"public.{name}"})
                self.append(f"t.{name}", partition, (emptied, b"{}", pos.encode(), b"t", b"1"))
            self.lost = {one for one in self.lost if one[0] != name}
            return 2
        if row is None:
            self._record(name, key, {"after": None}, pos, "d")
            self._record(name, key, None, Position(_EPOCH, self.reached, seq + 1).text(), "d")
            self.lost.discard((name, key))
            return 2
        if change.large:
            self._letter(name, key, pos)
            self.lost.add((name, key))
            return 2
        value: dict[str, Any] = {"after": row}
        if change.kept:
            now = self.rows[name].get(key)
            value["after"] = {**row, "name": UNAVAILABLE if now is None else now["name"]}
            if now is not None:
                value["source"] = {"reselected": {"columns": ["name"], "seen_lsn": self.lsn + 1}}
        self._record(name, key, value, pos, "c" if change.moved else "u")
        self.lost.discard((name, key))
        return 2

    def _letter(self, name: str, key: int, pos: str) -> None:
        encoded = orjson.dumps({"id": key})
        headers = (("pos", pos.encode()), ("op", b"u"), ("ver", b"1"))
        letter = DeadLetter(
            sink=CAPTURE, why=Why.OVERSIZED, topic=f"t.{name}", partition=0, offset=0, reason="large",
            key=encoded, value=None, headers=headers,
        )  # fmt: skip
        self.input.dead.append(letter)

    def _record(
        self, name: str, key: int, value: dict[str, Any] | None, pos: str, op: str, seen: int | None = None
    ) -> None:
        encoded = orjson.dumps({"id": key})
        partition = partition_of(encoded, PARTITIONS)
        if seen is not None:
            place = (f"t.{name}", partition, self._end(f"t.{name}", partition))
            self.input.headers[place] = (("seen_lsn", b"%d" % seen),)
        body = None if value is None else orjson.dumps({"before": None, **value})
        self.append(f"t.{name}", partition, (encoded, body, pos.encode(), op.encode(), b"1"))

    def read(self, name: str, keys: list[int] | None = None) -> None:
        """A later snapshot of a table, or of keys: granted, read from the present source, and written."""
        if name == self.aside:
            return
        floor = Position(_EPOCH, self.reached, CHUNK_SEQ).text()
        wanted = range(1, 7) if keys is None else keys
        for some in ([key for key in wanted if key % 2], [key for key in wanted if not key % 2]):
            self._window(name, some, missing=keys is not None)
        if keys is None:
            self.owed.append((name, self.reached, floor))
            if self.chance.random() < 0.7:
                self.sweep()

    def _window(self, name: str, keys: list[int], *, missing: bool) -> None:
        lsn, rows = self.reached, self.rows[name]
        if self.chance.random() < 0.5:
            self.transaction()
        found = {key: rows.get(key) for key in keys}
        reading = Reading(name, lsn, self.lsn + 1, {k: row and dict(row) for k, row in found.items() if row or missing})
        if self.chance.random() < 0.5:
            self.transaction()
        touched: set[tuple[str, int]] = set()
        for _ in range(self.chance.randint(0, 2)):
            if self.behind:
                touched |= {(one.name, one.key) for one in self.behind[0][1]}
                self.stream(1)
        self._emit(reading, touched)

    def _emit(self, reading: Reading, touched: set[tuple[str, int]]) -> None:
        """The rows that the stream has not changed meanwhile."""
        pos = Position(_EPOCH, reading.lsn, CHUNK_SEQ).text()
        emptied = (reading.name, 0) in touched
        for key, row in reading.rows.items():
            if not emptied and (reading.name, key) not in touched:
                source = {"source": {"seen_lsn": reading.seen}}
                self._record(reading.name, key, {"after": row, **source}, pos, "d" if row is None else "r")
                self.lost.discard((reading.name, key))
                if row is None:
                    self._record(reading.name, key, None, pos, "d", seen=reading.seen)

    def sweep(self) -> None:
        """Write the marks that are owed. They may come late."""
        for name, lsn, floor in self.owed:
            value = {"source": {"seen_lsn": self.lsn + 1}, "sweep": {"floor": floor, "partitions": PARTITIONS}}
            pos = Position(_EPOCH, lsn, CHUNK_SEQ).text().encode()
            key = orjson.dumps({"__sweep": f"public.{name}"})
            for partition in range(PARTITIONS):
                self.append(f"t.{name}", partition, (key, orjson.dumps(value), pos, b"t", b"1"))
            self.lost = {(table, k) for table, k in self.lost if table != name or k in self.rows[name]}
        self.owed.clear()

    def set_aside(self) -> None:
        """Capture cannot follow a table: its changes are dropped from here on."""
        if self.aside or not self.sets_aside:
            return
        self.aside, self.left_out = self.chance.choice(("lines", "customers")), False
        state = AsideState(
            table=f"public.{self.aside}", epoch=_EPOCH, state=TableState.ASIDE, cause=Cause.LOCKED, detail="locked",
            since_lsn=self.reached + 8, since_ms=1,
        )  # fmt: skip
        self.input.state[state.key()] = state.to_json()

    def follow_again(self) -> None:
        """The cause is gone: the table is followed, and read again with a sweep."""
        name = self.aside
        if not name:
            return
        self.aside = ""
        key = orjson.dumps({"what": "aside", "table": f"public.{name}"})
        known = AsideState.from_json(self.input.state[key])
        self.input.state[key] = replace(known, state=TableState.READING, from_lsn=self.reached + 8).to_json()
        self._maybe_progress()
        floor = Position(_EPOCH, self.reached, CHUNK_SEQ).text()
        self.read(name)
        self.sweep()
        self._maybe_progress()
        done = ReadingState(
            id=f"snapshot:public.{name}", table=f"public.{name}", serial=1, epoch=_EPOCH, state="done", floor=floor
        )
        self.input.state[done.key()] = done.to_json()
        del self.input.state[key]

    def _maybe_progress(self) -> None:
        if self.chance.random() < 0.3:
            self.progress()

    def progress(self) -> None:
        """What was streamed lies below the offsets. Some that comes later may lie there, too."""
        lsn, before = self.reached + 4, self._ends()
        if self.chance.random() < 0.3:
            self.stream(1)
            self.clock.advance(self.chance.choice([0, 30, 70]))
        offsets = self._ends()
        ahead = {topic: self._ahead(topic, before[topic], parts) for topic, parts in offsets.items()}
        self.input.newest = Progress(epoch=_EPOCH, lsn=lsn, offsets=offsets, ahead=ahead)
        self.input.progress_ms = self.clock.now_ns() // 1_000_000

    def mend(self) -> None:
        """Everything is written, and what was put aside is changed to rows that fit."""
        self.follow_again()
        self.sweep()
        self.lsn += 8
        self.puts_aside = False
        fitting = [Written(name, key, self.rows[name].get(key)) for name, key in sorted(self.lost)]
        waiting = [one for _, changes in self.behind for one in changes if one.large]
        fitting += [Written(one.name, one.key, self.rows[one.name].get(one.key)) for one in waiting]
        self._commit(fitting)
        self.stream(len(self.behind))
        self.progress()


def documents_of(rows: Rows) -> dict[bytes, object]:
    """The first view, by hand."""
    found: dict[bytes, object] = {}
    for number, order in rows["orders"].items():
        customer = rows["customers"].get(order["customer_id"] or 0)
        lines = [line["qty"] for _, line in sorted(rows["lines"].items()) if line["order_id"] == number]
        shown = None if not lines else "[" + ", ".join("null" if q is None else str(q) for q in lines) + "]"
        name = None if customer is None else customer["name"]
        found[orjson.dumps({"id": number})] = {"id": number, "name": name, "lines": shown}
    return found


def groups_of(rows: Rows) -> dict[bytes, object]:
    """The second view, by hand."""
    groups: dict[str, list[int | None]] = {}
    for line in rows["lines"].values():
        order = rows["orders"].get(line["order_id"] or 0)
        customer = None if order is None else rows["customers"].get(order["customer_id"] or 0)
        groups.setdefault("-" if customer is None else customer["name"], []).append(line["qty"])
    found: dict[bytes, object] = {}
    for name, quantities in groups.items():
        known = [q for q in quantities if q is not None]
        figures = {"n": len(quantities), "total": sum(known) if known else None, "most": max(known, default=None)}
        found[orjson.dumps({"name": name})] = {"name": name, **figures}
    return found


VIEWS = {"documents": (DOCUMENTS, documents_of), "groups": (GROUPS, groups_of)}


def history(seed: int, *, puts_aside: bool = False, sets_aside: bool = False) -> AheadHistory:
    """A history by its seed."""
    return AheadHistory(random.Random(seed), puts_aside=puts_aside, sets_aside=sets_aside)
