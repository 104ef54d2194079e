"""An assembler with every port in memory, and its records as a test likes to read them."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cdc.record.ports import Record
from cdc.record.position import Position
from cdc.record.schema import TableSchema
from cdc.record.topic_names import partition_of
from cdc.settings.mask_rules import NO_MASKS, Masks
from connectors.postgres.assembly.assembler import Assembler, AssemblerPorts, Committed, Limits, Pipeline, Start
from connectors.postgres.assembly.pending_records import GONE, LATER, Selected, Undecided, WantedRow
from connectors.postgres.assembly.ports import AsideRegister, Never
from connectors.postgres.protocol.messages import Relation
from tests.unit.connectors.postgres import written as w

PIPELINE = Pipeline(name="shop", database="app", epoch=1)


@dataclass(frozen=True, slots=True)
class Read:
    """A record, its parts parsed. ``value`` None: a tombstone."""

    lane: int
    key: Any
    value: Any
    headers: Mapping[str, str]

    @property
    def seq(self) -> int:
        return Position.parse(self.headers["pos"]).tx_seq

    @property
    def op(self) -> str:
        return self.headers["op"]

    @property
    def after(self) -> Any:
        return self.value["after"]

    @property
    def before(self) -> Any:
        return self.value["before"]


class Shapes:
    """Announced tables by oid; a table that is not here is not captured."""

    def __init__(self, *schemas: TableSchema) -> None:
        self.by_oid = {schema.oid: schema for schema in schemas}
        self.asked: list[Relation] = []

    def schema(self, relation: Relation, xid: int, timeout_s: float) -> TableSchema | Undecided | None:
        self.asked.append(relation)
        return self.by_oid.get(relation.relation_oid)


class Rows:
    """The source's rows at the head: key -> row, as text."""

    def __init__(self, rows: Mapping[tuple[bytes, ...], Sequence[bytes | None]] | None = None) -> None:
        self.rows_by_key = dict(rows or {})
        self.asked: list[tuple[Sequence[WantedRow], frozenset[int]]] = []
        self.locked: set[int] = set()
        """Tables by oid that nobody can read now."""
        self.seen_lsn = 0x7000

    def rows(self, wanted: Sequence[WantedRow], xids: Collection[int], *, brief: bool = False) -> Sequence[Selected]:
        self.asked.append((wanted, frozenset(xids)))
        return [LATER if one.schema.oid in self.locked else self._one(one) for one in wanted]

    def _one(self, wanted: WantedRow) -> Selected:
        row = self.rows_by_key.get(wanted.key)
        return GONE if row is None else tuple(row[i] for i in wanted.columns)


class Stream:
    """Feeds transactions and keeps what came out. The first feed announces the tables."""

    def __init__(
        self,
        *schemas: TableSchema,
        lane_count: int = 1,
        head: Rows | None = None,
        seen: Mapping[int, Position] | None = None,
        after_lsn: int = 0,
        limits: Limits | None = None,
        near_xid: int = 0,
        shapes: Shapes | None = None,
        asides: AsideRegister | None = None,
        masks: Masks = NO_MASKS,
        kept: Callable[[Relation], None] = lambda relation: None,
    ) -> None:
        self.shapes = shapes or Shapes(*schemas)
        self.schemas = schemas
        self.head = head or Rows()
        self.lane_count = lane_count
        self.records: list[Record] = []
        self.commits: list[Committed] = []
        self.overflows: list[int] = []
        self._topics: list[str] = []
        self._announced = False
        self.assembler = Assembler(
            PIPELINE,
            AssemblerPorts(
                schemas=self.shapes,
                lanes=self._lanes,
                partition=partition_of,
                reselect=self.head,
                overflow=self._overflow,
                asides=asides or Never(),
                masks=masks,
                kept=kept,
            ),
            Start(near_xid=near_xid, after_lsn=after_lsn, seen=seen or {}),
            limits or Limits(),
        )

    def transaction(self, lsn: int, *messages: bytes, xid: int = 555) -> list[Read]:
        """One transaction in one batch; its records."""
        return self.feed(self.framed(lsn, *messages, xid=xid))

    def framed(self, lsn: int, *messages: bytes, xid: int = 555) -> list[bytes]:
        """Frames of a transaction; tables are announced in the first."""
        announced = [] if self._announced else [w.relation(schema) for schema in self.schemas]
        self._announced = True
        return [w.frame(message, lsn - 1) for message in (w.begin(lsn, xid), *announced, *messages, w.commit(lsn))]

    def feed(self, frames: Sequence[bytes], now_ns: int = 1) -> list[Read]:
        start = len(self.records)
        self.take(frames, now_ns)
        return self.read(start)

    def take(self, frames: Sequence[bytes], now_ns: int = 1) -> None:
        """The same for records that cannot be parsed."""
        assembled = self.assembler.feed(frames, now_ns)
        self.records += assembled.records
        self.commits += assembled.commits

    def read(self, start: int = 0) -> list[Read]:
        return [_read(record) for record in self.records[start:]]

    def resume(self) -> list[Read]:
        """What waiting tables have now."""
        start = len(self.records)
        self.records += self.assembler.resume()
        return self.read(start)

    def lane(self, schema: TableSchema) -> int:
        """Where a table's records go."""
        return self._lanes(schema.topic)[0]

    def _lanes(self, topic: str) -> tuple[int, int]:
        if topic not in self._topics:
            self._topics.append(topic)
        return self._topics.index(topic) * self.lane_count, self.lane_count

    def _overflow(self, records: list[Record]) -> None:
        self.overflows.append(len(records))
        self.records += records


def _read(record: Record) -> Read:
    lane, key, value, headers = record
    return Read(
        lane,
        json.loads(key),
        None if value is None else json.loads(value),
        {name: text.decode() for name, text in headers},
    )


def store(records: Sequence[Read], start: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What a store holds after these records: key JSON -> row; the newest position wins."""
    rows = dict(start or {})
    newest: dict[str, str] = {}
    for record in records:
        if record.op == "t":
            rows.clear()
            continue
        key = json.dumps(record.key)
        if record.headers["pos"] >= newest.get(key, ""):
            newest[key] = record.headers["pos"]
            if record.value is None or record.after is None:
                rows.pop(key, None)
            else:
                rows[key] = record.after
    return rows


def seqs(records: list[Read]) -> list[tuple[int, str]]:
    """The number of each record in its transaction, and its op or "tombstone"."""
    return [(r.seq, r.op if r.value is not None else "tombstone") for r in records]
