"""Records as the golden files have them: volatile values replaced, equal ids under equal names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from cdc.wire.format import RESELECTED, SEEN_LSN
from tests.golden.compared_record import ComparedRecord
from tests.golden.lossless import Json, LosslessNumber, Object, parse

CASES = Path(__file__).parent / "cases"
OURS_ALONE = ("epoch", "commit_lsn", "tx_seq")
"""D15: at the end of ``source``, with what says that a value was read later; tested where they are made."""
_TIMES = ("ts_ms", "ts_us", "ts_ns")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """One record as it came from the broker."""

    topic: str
    offset: int
    key: bytes
    value: bytes | None
    headers: tuple[tuple[str, str], ...]

    @property
    def pos(self) -> str:
        return dict(self.headers)["pos"]


def expected_records(case: Path) -> list[ComparedRecord]:
    """What Debezium wrote, without its context headers (D14) ."""
    records = []
    for line in (case / "expected.jsonl").read_text(encoding="utf-8").rstrip("\n").split("\n"):
        whole = parse(line)
        assert isinstance(whole, Object)
        topic, headers = whole.get("topic"), whole.get("headers")
        assert isinstance(topic, str)
        assert isinstance(headers, Object)
        kept = tuple((n, str(v)) for n, v in headers.members if not n.startswith("__debezium.context."))
        records.append(
            ComparedRecord(table=topic.split(".", 1)[1], key=whole.get("key"), value=whole.get("value"), headers=kept)
        )
    return records


@dataclass(slots=True)
class Normaliser:
    """Replaces what differs from run to run in our records, as the golden files' generator did."""

    case: str
    pipeline: str
    own_stream: bool = True
    """Whether the case's first transaction was the first of its stream there, with no commit before it."""
    unnumbered: str = ""
    """An operation that Debezium did not write here, so it takes no numbers."""
    transactions: dict[str, int] = field(default_factory=dict)
    lsns: dict[str, int] = field(default_factory=dict)

    def record(self, wire: Wire) -> ComparedRecord:
        value = None if wire.value is None else parse(wire.value)
        headers = tuple(h for h in wire.headers if h[0] not in ("pos", "op", "ver"))
        if isinstance(value, Object) and value.get("op") == self.unnumbered:
            return Normaliser(case=self.case, pipeline=self.pipeline).record(wire)
        table = wire.topic.removeprefix(self.pipeline + ".")
        normal = self._envelope(value) if isinstance(value, Object) else value
        return ComparedRecord(table=table, key=parse(wire.key), value=normal, headers=headers)

    def _envelope(self, value: Object) -> Object:
        source = value.get("source")
        assert isinstance(source, Object)
        _same_instant(source)
        times: dict[str, Json] = {name: f"<{name}>" for name in _TIMES}
        ours = source.names()[source.names().index(OURS_ALONE[0]) :]
        assert ours in (OURS_ALONE, (*OURS_ALONE, SEEN_LSN), (*OURS_ALONE, RESELECTED))
        return value.replaced({"source": self._source(source.without(*ours)), **times})

    def _source(self, source: Object) -> Object:
        snapshot = source.get("snapshot") != "false"
        lsn, transaction = source.get("lsn"), source.get("txId")
        changes: dict[str, Json] = {name: f"<{name}>" for name in _TIMES}
        changes |= {"version": "3.7.0.Final", "name": self.case, "db": "postgres"}
        if isinstance(lsn, LosslessNumber):
            named = "<lsn_snapshot>" if snapshot else self._named(self.lsns, "lsn", lsn.text)
            changes["lsn"] = named
        if isinstance(transaction, LosslessNumber):
            changes["txId"] = "<tx_snapshot>" if snapshot else self._named(self.transactions, "tx", transaction.text)
        if isinstance(lsn, LosslessNumber):
            first = self.own_stream and changes.get("txId") == "<tx1>"
            changes["sequence"] = _sequence(source.get("sequence"), lsn.text, str(changes["lsn"]), first=first)
        return source.replaced(changes)

    @staticmethod
    def _named(names: dict[str, int], prefix: str, text: str) -> str:
        return f"<{prefix}{names.setdefault(text, len(names) + 1)}>"


_NUMBERED = re.compile(r"<(tx|lsn)(\d+)>")


def renumbered(records: Iterable[ComparedRecord]) -> list[ComparedRecord]:
    """Names of transactions and LSNs counted anew, after records were taken out."""
    names: dict[str, dict[str, int]] = {"tx": {}, "lsn": {}}

    def again(match: re.Match[str]) -> str:
        known = names[match[1]]
        return f"<{match[1]}{known.setdefault(match[2], len(known) + 1)}>"

    def renamed(record: ComparedRecord) -> ComparedRecord:
        source = record.value.get("source") if isinstance(record.value, Object) else None
        if not isinstance(source, Object) or not isinstance(record.value, Object):
            return record
        texts = {n: v for n, v in source.members if n in ("txId", "lsn", "sequence") and isinstance(v, str)}
        fresh: dict[str, Json] = {name: _NUMBERED.sub(again, texts[name]) for name in ("lsn", "txId", "sequence")}
        return replace(record, value=record.value.replaced({"source": source.replaced(fresh)}))

    return [renamed(record) for record in records]


def _sequence(sequence: Json, own: str, named: str, *, first: bool) -> str:
    assert isinstance(sequence, str)
    last, current = json.loads(sequence)
    last = None if first else last
    current = named if current == own else "<lsn>"
    return json.dumps([None if last is None else "<lsn>", current], separators=(",", ":"))


def _same_instant(source: Object) -> None:
    """The three stamps of the source are one instant, in three units."""
    ms, us, ns = (source.get(name) for name in _TIMES)
    assert isinstance(ms, LosslessNumber)
    assert isinstance(us, LosslessNumber)
    assert isinstance(ns, LosslessNumber)
    assert (int(us.text) // 1000, int(us.text) * 1000) == (int(ms.text), int(ns.text))


def in_order(found: Iterable[Wire]) -> list[Wire]:
    """Snapshot rows by topic as they were read, then the stream by position."""
    wires = list(found)
    snapshot = [w for w in wires if w.pos.endswith("00000000")]
    streamed = [w for w in wires if not w.pos.endswith("00000000")]
    return sorted(snapshot, key=lambda w: (w.topic, w.offset)) + sorted(streamed, key=lambda w: (w.pos, w.offset))
