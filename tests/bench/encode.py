"""CPU of one change on its way from bytes to record, and of one row of COPY; no server.

Seven columns (int8, int4, text, numeric, timestamptz, bool, text) in transactions of 1,000 changes, fed to the
assembler in batches of 500 frames, records dropped. Each figure is the least of five runs of CPU time, so what
else the machine does hardly shows; the first path is measured twice to show what is left of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from confluent_kafka import murmur2

from cdc.schema import Encoding, Identity, TableSchema
from connectors.postgres.assemble import Assembler, AssemblerPorts, Pipeline, Selected, WantedValues
from connectors.postgres.encoder import compile_table
from connectors.postgres.messages import Relation
from tests.bench.setting import Bench
from tests.unit.connectors.postgres import written as w

COLUMNS = (
    w.column("id", "int8", 0), w.column("customer", "int4"), w.column("note", "text"), w.column("total", "numeric"),
    w.column("placed", "timestamptz"), w.column("paid", "bool"), w.column("status", "text"),
)  # fmt: skip
ROW = [b"42", b"a text value of thirty charact", b"12345.67", b"2026-11-20 10:11:12.123456+00", b"t", b"open"]
NULLS = [None, ROW[1], None, ROW[3], ROW[4], None]
QUOTED = [*ROW[:-1], b'say "hi"']
_PER_TRANSACTION, _BATCH, _RUNS = 1000, 500, 5


class _One:
    """One table, never looked up."""

    seen_lsn = 0

    def __init__(self, schema: TableSchema) -> None:
        self._schema = schema

    def schema(self, relation: Relation, xid: int, timeout_s: float) -> TableSchema:
        return self._schema

    def rows(self, wanted: Sequence[WantedValues], xids: object, *, brief: bool = False) -> Sequence[Selected]:
        raise AssertionError("nothing is left out here")


def bench(bench: Bench) -> None:
    changes = bench.rows(100_000, _PER_TRANSACTION)
    default, full = partial(_shape), partial(_shape, identity=Identity.FULL)
    ids = [b"%d" % n for n in range(_PER_TRANSACTION)]
    inserts = [w.insert(i, *ROW) for i in ids]
    paths: list[tuple[str, TableSchema, list[bytes]]] = [
        ("insert", default(), inserts),
        ("insert, again", default(), inserts),
        ("update", default(), [w.update([i, *ROW]) for i in ids]),
        ("delete and tombstone", default(), [w.delete(key=[i, *[None] * 6]) for i in ids]),
        ("update, FULL", full(), [w.update([i, b"7", *ROW[1:]], old=[i, *ROW]) for i in ids]),
        ("insert, nulls", default(), [w.insert(i, *NULLS) for i in ids]),
        ("insert, text to escape", default(), [w.insert(i, *QUOTED) for i in ids]),
        ("insert, encoding debezium", default(encoding="debezium"), inserts),
        ("change of key", default(), [w.update([b"7" + i, *ROW], key=[i, *[None] * 6]) for i in ids]),
        ("update, netted", _shape(identity=Identity.FULL, deferrable_key=True),
         [w.update([i, b"7", *ROW[1:]], old=[i, *ROW]) for i in ids]),
    ]  # fmt: skip
    for name, schema, messages in paths:
        bench.say(f"{name:28} {_stream_us(schema, messages, changes):6.2f} us CPU a change")
    for encoding in ("readable", "debezium"):
        for name, values in (("plain", ROW), ("nulls", NULLS)):
            found = _copy_us(default(encoding=encoding), values, changes)
            bench.say(f"{f'COPY row, {name}, {encoding}':28} {found:6.2f} us CPU a row")


def _shape(
    *, identity: Identity = Identity.DEFAULT, encoding: Encoding = "readable", deferrable_key: bool = False
) -> TableSchema:
    return w.table(*COLUMNS, identity=identity, encoding=encoding, deferrable_key=deferrable_key)


def _stream_us(schema: TableSchema, messages: Sequence[bytes], changes: int) -> float:
    frames = [w.frame(m) for m in messages]
    one = _One(schema)

    def run(assembler: Assembler, first_lsn: int) -> None:
        for lsn in range(first_lsn, first_lsn + 8 * changes // _PER_TRANSACTION, 8):
            whole = [w.frame(w.begin(lsn)), *frames, w.frame(w.commit(lsn))]
            for start in range(0, len(whole), _BATCH):
                assembler.feed(whole[start : start + _BATCH], 1)

    def once() -> Callable[[], None]:
        assembler = Assembler(
            Pipeline(name="shop", database="shop", epoch=1),
            AssemblerPorts(
                schemas=one,
                lanes=lambda topic: (0, 4),
                partition=murmur2,
                reselect=one,
                overflow=lambda records: None,
            ),
        )
        assembler.feed([w.frame(w.begin(8)), w.frame(w.relation(schema)), w.frame(w.commit(8))], 1)
        return lambda: run(assembler, 800)

    return _least_us(once, changes)


def _copy_us(schema: TableSchema, values: Sequence[bytes | None], changes: int) -> float:
    encoder = compile_table(schema, name="shop", database="shop")
    envelope = encoder.snapshot_envelope(
        marker="true", lsn=8, tx_id=None, epoch=1, commit_lsn=8, source_ts_us=1, now_ns=1
    )
    fields = [rb"\N" if value is None else value for value in values]
    lines = [b"\t".join([b"%d" % n, *fields]) + b"\n" for n in range(_PER_TRANSACTION)]

    def run() -> None:
        for _ in range(changes // _PER_TRANSACTION):
            for line in lines:
                _, row = encoder.snapshot_line(line)
                envelope.prefix + row + envelope.suffix

    return _least_us(lambda: run, changes)


def _least_us(make: Callable[[], Callable[[], None]], changes: int) -> float:
    found = []
    for _ in range(_RUNS):
        run = make()
        start = time.process_time()
        run()
        found.append(time.process_time() - start)
    return min(found) / changes * 1e6
