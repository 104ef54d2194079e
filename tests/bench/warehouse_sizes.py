"""Large warehouse tables with one row in a hundred changed: time, CPU and bytes of each engine, beside each other.

Delta by the embedded engine, Delta by Spark and Iceberg. Tables of 1, 10 and 50 million rows are filled: those of Spark
by half a million rows through the store, and by one INSERT of Spark's own for the others. Then each round changes one
row in a hundred: at random, and once more among the newest tenth. There are three rounds, and two of the largest table.
Time is that of the batches, CPU that of this process and its JVM, and bytes are those of every file that is new. The
median of the rounds is printed with their range. ``--scale 0.01`` shows that it works.
"""

from __future__ import annotations

import os
import random
import secrets
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from statistics import median

import pyarrow as pa

from sinks.contract.batch import EVENT_SCHEMA
from sinks.contract.kinds import spec_for
from sinks.contract.port import OpenSink
from sinks.contract.sink_spec import SinkSpec, open_sink
from sinks.delta.spark_delta import delta_spark
from sinks.iceberg.iceberg_catalog import LakePlace
from sinks.iceberg.iceberg_spark import iceberg_spark
from sinks.warehouse.warehouse_spark import WarehouseSpark
from tests.bench.setting import Bench, cpu_of
from tests.contract.orders import SHAPES, order
from tests.contract.topics import Topic, at
from tests.integration.spark.family import below
from tests.lake_sessions import lake_spark
from tests.lakes import LakeLogin, lake_catalog

_NUMBER, _WORD = 987_654_321_987, "a word"
ROUNDS = {1_000_000: 3, 10_000_000: 3, 50_000_000: 2}
"""By the rows of a table."""
FILLED_AT_ONCE, AT_ONCE, IN_A_FILE, CHANGED = 500_000, 250_000, 1_000_000, 100


def bench(bench: Bench) -> None:
    sizes = {bench.rows(rows): rounds for rows, rounds in ROUNDS.items()}
    for rows, rounds in sizes.items():
        _measured(bench, "Delta, embedded", rows, rounds, _delta("embedded"))
    with bench.database() as database, lake_spark(bench.folder):
        lake = lake_catalog(database)
        iceberg = partial(_iceberg, lake)
        for rows, rounds in sizes.items():
            _measured(bench, "Delta, Spark", rows, rounds, _delta("spark"), _rest_of_delta)
            _measured(bench, "Iceberg", rows, rounds, iceberg, _rest_of_iceberg)


def _iceberg(lake: LakeLogin, root: Path) -> SinkSpec:
    prefix = f"b{secrets.token_hex(4)}"
    return spec_for("iceberg", prefix=prefix, options={**lake.options, "path": str(root)}, secrets=lake.secrets)


def _delta(engine: str) -> Callable[[Path], SinkSpec]:
    return lambda root: spec_for("delta", prefix="shop", options={"path": str(root), "engine": engine})


def _rest_of_delta(spec: SinkSpec, rows: range) -> None:
    _insert(delta_spark(), f"delta.`{spec.options['path']}/public/orders`", rows)


def _rest_of_iceberg(spec: SinkSpec, rows: range) -> None:
    place = LakePlace.of(spec)
    spark = iceberg_spark(place)
    _insert(spark, spark.table(place.namespace, "public_orders"), rows)


def _insert(spark: WarehouseSpark, table: str, rows: range) -> None:
    """The row with the first number again, under each of these, with words that no encoding of a column shortens."""
    key, word = "string(n.id)", "concat(sha2(string(n.id), 256), '0123456789abcdef')"
    own = {"id": "n.id", "_key": key, "cdc_key": key, "status": word}
    [first] = spark.sql(f"select * from {table} where id = 0")
    assert "0" in tuple(first)
    made = ", ".join(own.get(column, f"o.`{column}`") for column in first.asDict())
    # Files of a size that OPTIMIZE lets be.
    numbers = f"range({rows.start}, {rows.stop}, 1, {max(1, len(rows) // IN_A_FILE)})"
    spark.sql(f"insert into {table} select {made} from {numbers} n cross join {table} o where o.id = 0")


def _measured(
    bench: Bench,
    name: str,
    rows: int,
    rounds: int,
    spec_at: Callable[[Path], SinkSpec],
    rest: Callable[[SinkSpec, range], None] | None = None,
) -> None:
    """``rest``: puts rows of these numbers into a table that has some, without the store."""
    root = bench.folder / f"sizes_{name.replace(', ', '_')}_{rows}"
    spec, changes, began_s = spec_at(root), _Changes(), time.monotonic()
    first = rows if rest is None else min(rows, FILLED_AT_ONCE)
    with closing(open_sink(spec)) as store:
        for start in range(0, first, FILLED_AT_ONCE):
            store.sink.apply(changes.of(1, range(start, min(start + FILLED_AT_ONCE, first))), SHAPES)
    if rest is not None and first < rows:
        rest(spec, range(first, rows))
    with closing(open_sink(spec)) as store:
        filled = sum(path.stat().st_size for path in root.rglob("*.parquet"))
        bench.say(f"{name}: {rows:,} rows, {filled / 1e6:,.1f} MB, filled in {time.monotonic() - began_s:,.0f} s")
        for which, first in (("any rows", 0), ("the newest tenth", rows - rows // 10)):
            took = [
                _round(store, changes, 2 + number, changes.some(range(first, rows), max(1, rows // CHANGED)), root)
                for number in range(rounds)
            ]
            said = ", ".join(
                f"{median(values):,.1f} {unit} ({min(values):,.1f} to {max(values):,.1f})"
                for unit, values in zip(("s", "s CPU", "MB"), zip(*took, strict=True), strict=True)
            )
            bench.say(f"  1 % changed, of {which}: {said}")
    shutil.rmtree(root)


def _round(store: OpenSink, changes: _Changes, lsn: int, keys: Sequence[int], root: Path) -> tuple[float, float, float]:
    """Seconds, CPU seconds and megabytes of one round."""
    before, passed_s, used_s = _files(root), 0.0, 0.0
    for start in range(0, len(keys), AT_ONCE):
        events = changes.of(lsn, keys[start : start + AT_ONCE])
        began_s, cpu_s = time.monotonic(), _cpu_s()
        store.sink.apply(events, SHAPES)
        passed_s, used_s = passed_s + time.monotonic() - began_s, used_s + _cpu_s() - cpu_s
    written = sum(size for path, size in _files(root).items() if path not in before)
    return passed_s, used_s, written / 1e6


def _cpu_s() -> float:
    return sum(cpu_of(pid) for pid in (os.getpid(), *(one.pid for one in below(os.getpid()))))


class _Changes:
    """Upserts of a row by its number. An envelope is made once for each LSN, as making it takes longer than a store."""

    def __init__(self) -> None:
        self._chance = random.Random(7)
        self._offset = 0

    def some(self, keys: range, count: int) -> Sequence[int]:
        """So many of these keys, each once."""
        return self._chance.sample(keys, count)

    def of(self, lsn: int, keys: Sequence[int]) -> pa.Table:
        """One change of each key."""
        one = Topic().upsert(order(_NUMBER, _WORD), at(lsn))
        assert one.value is not None and one.key is not None
        key = one.key.replace(b"%d" % _NUMBER, b"%d")
        value = one.value.replace(b"%", b"%%").replace(b"%d" % _NUMBER, b"%d").replace(_WORD.encode(), b"%080x")
        offsets, self._offset = range(self._offset, self._offset + len(keys)), self._offset + len(keys)
        # Words that no encoding of a column shortens.
        columns = one._asdict() | {
            "offset": list(offsets),
            "key": [key % number for number in keys],
            "value": [value % (number, self._chance.getrandbits(320)) for number in keys],
        }
        arrays = [
            pa.array(of, field.type) if isinstance(of, list) else pa.repeat(pa.scalar(of, field.type), len(keys))
            for field, of in zip(EVENT_SCHEMA, columns.values(), strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=EVENT_SCHEMA)


def _files(root: Path) -> dict[Path, int]:
    return {path: path.stat().st_size for path in root.rglob("*") if path.is_file()}
