"""What :mod:`tests.bench.encode` measures: tables of each kind, and the messages that pgoutput sends of their changes.

As a program, ``python -P tests/bench/encode_paths.py CHANGES [LEFT OUT]...``, it measures the tree that PYTHONPATH
names first, by its own ``tests.bench.encode``, and prints JSON: us of CPU by path, or why a path has no figure.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from itertools import cycle, islice
from types import FrameType

import orjson

from cdc.record.schema import Column, Encoding, Identity, TableSchema
from tests.unit.connectors.postgres import written as w

COLUMNS = (
    w.column("id", "int8", 0), w.column("customer", "int4"), w.column("note", "text"), w.column("total", "numeric"),
    w.column("placed", "timestamptz"), w.column("paid", "bool"), w.column("status", "text"),
)  # fmt: skip
ROW = [b"42", b"a text value of thirty charact", b"12345.67", b"2026-11-20 10:11:12.123456+00", b"t", b"open"]
NULLS = [None, ROW[1], None, ROW[3], ROW[4], None]
QUOTED = [*ROW[:-1], b'say "hi"']
PER_TRANSACTION = 1000
_WIDE, _SET = 200, 5
WIDE = (COLUMNS[0], *(w.column(f"{c.name}_{n}", c.kind) for n, c in zip(range(1, _WIDE), cycle(COLUMNS[1:]))))
WIDE_ROW = list(islice(cycle(ROW), _WIDE - 1))
SPARSE = (COLUMNS[0], *(w.column(f"{c.name}_{n}", c.kind) for n, c in zip(range(_WIDE), cycle(COLUMNS[1:]))))
# 41 columns apart, so that the five are of five types.
SPARSE_ROW = [value if n % 41 == 0 else None for n, value in zip(range(_WIDE), cycle(ROW))]
assert sum(value is not None for value in SPARSE_ROW) == _SET

Path = tuple[str, TableSchema, list[bytes], int]
"""Name, shape, the messages of one transaction, and by how much its changes are fewer than those of the others."""
LIMIT_S = 20
"""CPU of all runs of a path."""


def paths() -> Iterator[Path]:
    """Every path of the stream. A transaction has :data:`PER_TRANSACTION` messages."""
    ids = [b"%d" % n for n in range(PER_TRANSACTION)]
    inserts, updates = [w.insert(i, *ROW) for i in ids], [w.update([i, *ROW]) for i in ids]
    with_old = [w.update([i, b"7", *ROW[1:]], old=[i, *ROW]) for i in ids]
    yield "insert", shape(), inserts, 1
    yield "insert, again", shape(), inserts, 1
    yield "update", shape(), updates, 1
    yield "delete and tombstone", shape(), [w.delete(key=[i, *[None] * 6]) for i in ids], 1
    yield "update, FULL", shape(identity=Identity.FULL), with_old, 1
    yield "insert, nulls", shape(), [w.insert(i, *NULLS) for i in ids], 1
    yield "insert, text to escape", shape(), [w.insert(i, *QUOTED) for i in ids], 1
    yield "insert, encoding debezium", shape(encoding="debezium"), inserts, 1
    yield "change of key", shape(), [w.update([b"7" + i, *ROW], key=[i, *[None] * 6]) for i in ids], 1
    yield "update, netted", shape(identity=Identity.FULL, deferrable_key=True), with_old, 1
    yield "insert, wide", shape(*WIDE), [w.insert(i, *WIDE_ROW) for i in ids], 10
    yield "update, wide", shape(*WIDE), [w.update([i, *WIDE_ROW]) for i in ids], 10
    yield "insert, sparse", shape(*SPARSE), [w.insert(i, *SPARSE_ROW) for i in ids], 10
    yield "update, sparse", shape(*SPARSE), [w.update([i, *SPARSE_ROW]) for i in ids], 10


def shape(
    *columns: Column,
    identity: Identity = Identity.DEFAULT,
    encoding: Encoding = "readable",
    deferrable_key: bool = False,
) -> TableSchema:
    """``public.orders`` with these columns, or with :data:`COLUMNS`."""
    return w.table(*columns or COLUMNS, identity=identity, encoding=encoding, deferrable_key=deferrable_key)


def fewer(changes: int, part: int) -> int:
    """A ``part``-th of the changes, in whole transactions.

    >>> fewer(100_000, 10), fewer(3_000, 10)
    (10000, 1000)
    """
    return max(PER_TRANSACTION, changes // part // PER_TRANSACTION * PER_TRANSACTION)


def main(changes: int, left_out: Sequence[str] = ()) -> int:
    """Measure each path; 1 where the tree measures none."""
    try:
        measure: Callable[..., float] | None = getattr(import_module("tests.bench.encode"), "_stream_us", None)
    except ImportError as error:
        print(f"it has no benchmark of the encoder ({error})", file=sys.stderr)
        return 1
    if measure is None:
        print("its tests.bench.encode has no _stream_us", file=sys.stderr)
        return 1
    signal.signal(signal.SIGPROF, _too_long)
    found: dict[str, float | str] = {}
    for name, table, messages, part in paths():
        if name in left_out:
            continue
        signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
        try:
            found[name] = measure(table, messages, fewer(changes, part))
        except TimeoutError:
            found[name] = f"not done within {LIMIT_S} s of CPU"
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    sys.stdout.buffer.write(orjson.dumps({"tree": str(import_module("connectors").__file__), "us": found}))
    return 0


def _too_long(number: int, frame: FrameType | None) -> None:
    raise TimeoutError


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
