"""Histories of three tables put into Delta, and the tables read as they were in the middle of them.

Records as the log has them, of seven columns and about 650 bytes, a hundred to a transaction and a hundred versions to
a key, in batches of 250,000: from the records to the commit, in one process, as the driver does it. Then Spark reads
all three tables as of the LSN in the middle, and counts their rows, in as many tasks as there are cores. The full size
is ten million versions in all.
"""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pyarrow as pa

from cdc.read import as_of
from cdc.record.position import Lsn, Position
from cdc.record.progress import Watermark
from cdc.record.schema import TableSchema
from sinks.contract.history_rows import history_shape
from sinks.contract.kinds import spec_for
from sinks.contract.port import OpenSink
from sinks.contract.sink_spec import open_sink
from sinks.contract.table_places import SchemaBook, TablePlace
from spark.records.source import RECORD_SCHEMA
from spark.stores.apply import Rules, compact, sort_out
from tests.bench.setting import RUNS, Bench, spread
from tests.contract.topics import column, numeric, shape
from tests.lake_sessions import COMPILED, lake_spark, with_few_tasks
from tests.settings_file import write_settings

_TABLES = ("orders", "lines", "payments")
_BATCH, _VERSIONS, _ROWS = 250_000, 100, 100
_FIRST = 0x1000000
_BODY = (
    b'{"before":null,"after":{"id":%d,"customer":%d,"status":"paid","amount":"10.50","note":"some text of a row",'
    b'"at":"2026-11-04T11:51:30.120000Z","n":%d},"source":{"version":"0.1.0","connector":"postgresql","name":"shop",'
    b'"ts_ms":%d,"snapshot":"false","db":"shop","sequence":"[null,\\"1\\"]","ts_us":%d000,"ts_ns":%d000000,"schema":"public",'
    b'"table":"orders","txId":%d,"lsn":%d,"xmin":null,"origin":null,"origin_lsn":null,"epoch":1,"commit_lsn":%d,'
    b'"tx_seq":%d},"transaction":null,"op":"u","ts_ms":1700000000000,"ts_us":1700000000000000,'
    b'"ts_ns":1700000000000000000}'
)
_BORN_MS = 1_700_000_000_000


def bench(bench: Bench) -> None:
    each = max(1, bench.rows(10_000_000) // len(_TABLES) // _BATCH)
    shapes = {name: _shape(name) for name in _TABLES}
    book = SchemaBook([one for name in _TABLES for one in (shapes[name], history_shape(shapes[name]))])
    path = bench.folder / "lake"
    options = {"kind": "delta", "path": str(path), "history": [f"public.{name}" for name in _TABLES]}
    with closing(open_sink(spec_for("delta", prefix="shop", options={"path": str(path)}))) as store:
        rates, cpu_us = [], []
        for name in _TABLES:
            history = history_shape(shapes[name])
            store.places.read(history)
            for number in range(each):
                records = _records(history.topic, number * _BATCH, each * _BATCH)
                begun, used = time.perf_counter(), time.process_time()
                _append(store, records, history, book, (number + 1) * _BATCH)
                rates.append(_BATCH / (time.perf_counter() - begun))
                cpu_us.append((time.process_time() - used) / _BATCH * 1e6)
        end = _lsn(each * _BATCH)
        ends = {history_shape(one).topic: {0: each * _BATCH} for one in shapes.values()}
        store.commit(Watermark(epoch=1, lsn=end, offsets=ends))
    bench.say(f"a history into Delta: {spread(rates)} events/s   (goal 100,000), {spread(cpu_us, 1)} us CPU each")
    log = {"bootstrap_servers": "127.0.0.1:1"}
    source = {"dsn": "host=127.0.0.1", "tables": [f"public.{name}" for name in _TABLES]}
    config = write_settings(bench.folder, {"name": "shop", "source": source, "log": log, "sinks": {"lake": options}})
    _read(bench, path, config, Lsn((_FIRST + end) // 2), each * _BATCH * len(_TABLES))


def _read(bench: Bench, path: Path, config: Path, lsn: Lsn, versions: int) -> None:
    with lake_spark(bench.folder / "spark", COMPILED) as session:
        with_few_tasks(session)
        took_s = []
        for _ in range(RUNS):
            begun = time.perf_counter()
            frames = {
                f"public.{name}": session.read.format("delta").load(f"{path}/public/{name}__history")
                for name in _TABLES
            }
            found = as_of(frames, sink="lake", lsn=str(lsn), config=str(config))
            rows = sum(frame.count() for frame in found.values())
            took_s.append(time.perf_counter() - begun)
    bench.say(f"{len(_TABLES)} tables as of an LSN, {rows:,} rows of {versions:,} versions: {spread(took_s, 1)} s")


def _shape(name: str) -> TableSchema:
    return shape(
        column("id", "int8", key=1), column("customer", "int4"), column("status", "text"), numeric("amount", 10, 2),
        column("note", "text"), column("at", "timestamptz"), column("n", "int4"), table=name,
    )  # fmt: skip


def _append(store: OpenSink, records: pa.Table, history: TableSchema, book: SchemaBook, end: int) -> None:
    events = compact(sort_out(records, Rules(book=book)).events, book)
    store.places.lead([(history, TablePlace(topic_id="bench", offsets={0: end}))])
    store.sink.apply(events, book)
    store.show()
    store.places.settle()


def _lsn(number: int) -> int:
    return _FIRST + number // _ROWS * 8


def _records(topic: str, first: int, count: int) -> pa.Table:
    """A batch of a topic, as the sink reads it, from its ``first`` record on. ``count``: of all."""
    keys = count // _VERSIONS
    rows = []
    for number in range(first, first + _BATCH):
        lsn, ms = _lsn(number), _BORN_MS + number // _ROWS
        pos = Position(1, lsn, number % _ROWS + 1)
        row = number * 7919 % keys
        value = _BODY % (row, row % 7, number, ms, ms, ms, number // _ROWS, lsn, lsn, pos.tx_seq)
        rows.append((topic, 0, number, 0, b'{"id":%d}' % row, value, pos.text().encode(), b"u", b"1", None))
    return pa.table(dict(zip(RECORD_SCHEMA.names, map(list, zip(*rows, strict=True)), strict=True)), RECORD_SCHEMA)
