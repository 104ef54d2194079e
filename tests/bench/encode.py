"""CPU of one change on its way from bytes to record, and of one row of COPY; no server.

Seven columns (int8, int4, text, numeric, timestamptz, bool, text) in transactions of 1,000 changes, fed to the
assembler in batches of 500 frames, records dropped. Each figure is the least of five runs of CPU time, so what
else the machine does hardly shows; the first path is measured twice to show what is left of it. Beside them, of a
tenth of the changes: a wide table of 200 columns, and a sparse one of 200 nullable columns of which five are set.

``make bench ARGS="encode --beside COMMIT"`` measures the stream's paths beside the same ones of another commit: each
tree five times in a child process, in turn, 10,000 changes a run. Shown are the medians, and the median of the five
ratios with their range, which is the noise. Each tree's own harness feeds its assembler. A path on which a tree is not
done within 20 s of CPU has no figure, and is not tried again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from confluent_kafka import murmur2

from cdc.record.schema import TableSchema
from cdc.settings.mask_rules import NO_MASKS
from connectors.postgres.assembly.assembler import Assembler, AssemblerPorts, Pipeline, Selected, WantedRow
from connectors.postgres.encoding.encoder import compile_table
from connectors.postgres.protocol.messages import Relation
from tests.bench.beside_commit import ROOT, NoFigures, Tree, alternate, compared, extract
from tests.bench.encode_paths import (
    COLUMNS,
    NULLS,
    PER_TRANSACTION,
    ROW,
    SPARSE,
    SPARSE_ROW,
    WIDE,
    WIDE_ROW,
    fewer,
    paths,
    shape,
)
from tests.bench.setting import Bench
from tests.unit.connectors.postgres import written as w

_BATCH, _RUNS = 500, 5


class _One:
    """One table, never looked up."""

    seen_lsn = 0

    def __init__(self, schema: TableSchema) -> None:
        self._schema = schema

    def schema(self, relation: Relation, xid: int, timeout_s: float) -> TableSchema:
        return self._schema

    def rows(self, wanted: Sequence[WantedRow], xids: object, *, brief: bool = False) -> Sequence[Selected]:
        raise AssertionError("nothing is left out here")


def bench(bench: Bench) -> None:
    if bench.beside:
        _beside(bench, bench.beside, bench.rows(10_000, PER_TRANSACTION))
        return
    changes = bench.rows(100_000, PER_TRANSACTION)
    for name, schema, messages, part in paths():
        bench.say(f"{name:28} {_stream_us(schema, messages, fewer(changes, part)):6.2f} us CPU a change")
    for encoding in ("readable", "debezium"):
        for name, columns, values, part in (
            ("plain", COLUMNS, ROW, 1),
            ("nulls", COLUMNS, NULLS, 1),
            ("wide", WIDE, WIDE_ROW, 10),
            ("sparse", SPARSE, SPARSE_ROW, 10),
        ):
            found = _copy_us(shape(*columns, encoding=encoding), values, fewer(changes, part))
            bench.say(f"{f'COPY row, {name}, {encoding}':28} {found:6.2f} us CPU a row")


def _beside(bench: Bench, commit: str, changes: int) -> None:
    """The paths of the stream, ours and another commit's."""
    folder = bench.folder / "beside"
    folder.mkdir()
    try:
        pairs = alternate(Tree("this tree", ROOT), extract(commit, folder), changes)
    except NoFigures as error:
        bench.say(str(error))
        return
    for line in compared(pairs):
        bench.say(line)


def _stream_us(schema: TableSchema, messages: Sequence[bytes], changes: int) -> float:
    frames = [w.frame(m) for m in messages]
    one = _One(schema)

    def run(assembler: Assembler, first_lsn: int) -> None:
        for lsn in range(first_lsn, first_lsn + 8 * changes // PER_TRANSACTION, 8):
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
                masks=NO_MASKS,
            ),
        )
        assembler.feed([w.frame(w.begin(8)), w.frame(w.relation(schema)), w.frame(w.commit(8))], 1)
        return lambda: run(assembler, 800)

    return _least_us(once, changes)


def _copy_us(schema: TableSchema, values: Sequence[bytes | None], changes: int) -> float:
    encoder = compile_table(schema, name="shop", database="shop", masks=NO_MASKS)
    envelope = encoder.snapshot_envelope(
        marker="true", lsn=8, tx_id=None, epoch=1, commit_lsn=8, source_ts_us=1, now_ns=1
    )
    fields = [rb"\N" if value is None else value for value in values]
    lines = [b"\t".join([b"%d" % n, *fields]) + b"\n" for n in range(PER_TRANSACTION)]

    def run() -> None:
        for _ in range(changes // PER_TRANSACTION):
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
