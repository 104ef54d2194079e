"""Large warehouse tables with one row in a hundred changed: time, CPU and bytes of each engine, beside each other.

Delta by the embedded engine, Delta by Spark and Iceberg. A table of a million rows and one of ten million are filled.
Then each of three rounds changes one row in a hundred: at random, and once more among the newest tenth. Time is that of
the batches, CPU that of this process and its JVM, and bytes are those of every file that is new. The median of three
rounds is printed with their range. ``--scale 5`` is 5 and 50 million rows, and ``--scale 0.01`` shows that it works.
"""

from __future__ import annotations

import os
import random
import secrets
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from statistics import median

from sinks.batch import Event
from sinks.kinds import spec_for
from sinks.port import OpenSink
from sinks.registry import SinkSpec, open_sink
from tests.bench.setting import Bench, cpu_of
from tests.contract.orders import SHAPES, order
from tests.contract.topics import Topic, at, batch
from tests.integration.spark.family import below
from tests.lake_sessions import lake_spark
from tests.lakes import lake_catalog

SIZES, ROUNDS, AT_ONCE, CHANGED = (1_000_000, 10_000_000), 3, 25_000, 100


def bench(bench: Bench) -> None:
    sizes = dict.fromkeys(bench.rows(rows) for rows in SIZES)
    for rows in sizes:
        _measured(bench, "Delta, embedded", rows, _delta("embedded"))
    with bench.database() as database, lake_spark(bench.folder):
        lake = lake_catalog(database)
        for rows in sizes:
            _measured(bench, "Delta, Spark", rows, _delta("spark"))
            _measured(
                bench,
                "Iceberg",
                rows,
                lambda root: spec_for(
                    "iceberg",
                    prefix=f"b{secrets.token_hex(4)}",
                    options={**lake.options, "path": str(root)},
                    secrets=lake.secrets,
                ),
            )


def _delta(engine: str) -> Callable[[Path], SinkSpec]:
    return lambda root: spec_for("delta", prefix="shop", options={"path": str(root), "engine": engine})


def _measured(bench: Bench, name: str, rows: int, spec: Callable[[Path], SinkSpec]) -> None:
    root = bench.folder / f"sizes_{name.replace(', ', '_')}_{rows}"
    chance, topic = random.Random(7), Topic()
    with closing(open_sink(spec(root))) as store:
        for start in range(0, rows, AT_ONCE):
            _put(store, topic, 1, range(start, min(start + AT_ONCE, rows)), chance)
        filled = sum(path.stat().st_size for path in root.rglob("*.parquet"))
        bench.say(f"{name}: {rows:,} rows, {filled / 1e6:,.1f} MB")
        for which, first in (("any rows", 0), ("the newest tenth", rows - rows // 10)):
            rounds = [
                _round(
                    store, topic, 2 + number, chance.sample(range(first, rows), max(1, rows // CHANGED)), chance, root
                )
                for number in range(ROUNDS)
            ]
            said = ", ".join(
                f"{median(values):,.1f} {unit} ({min(values):,.1f} to {max(values):,.1f})"
                for unit, values in zip(("s", "s CPU", "MB"), zip(*rounds, strict=True), strict=True)
            )
            bench.say(f"  1 % changed, of {which}: {said}")
    shutil.rmtree(root)


def _round(
    store: OpenSink, topic: Topic, lsn: int, keys: Sequence[int], chance: random.Random, root: Path
) -> tuple[float, float, float]:
    """Seconds, CPU seconds and megabytes of one round."""
    before, passed_s, used_s = _files(root), 0.0, 0.0
    for start in range(0, len(keys), AT_ONCE):
        events = batch(*_events(topic, lsn, keys[start : start + AT_ONCE], chance))
        began_s, cpu_s = time.monotonic(), _cpu_s()
        store.sink.apply(events, SHAPES)
        passed_s, used_s = passed_s + time.monotonic() - began_s, used_s + _cpu_s() - cpu_s
    written = sum(size for path, size in _files(root).items() if path not in before)
    return passed_s, used_s, written / 1e6


def _cpu_s() -> float:
    return sum(cpu_of(pid) for pid in (os.getpid(), *(one.pid for one in below(os.getpid()))))


def _put(store: OpenSink, topic: Topic, lsn: int, keys: Sequence[int], chance: random.Random) -> None:
    store.sink.apply(batch(*_events(topic, lsn, keys, chance)), SHAPES)


def _events(topic: Topic, lsn: int, keys: Sequence[int], chance: random.Random) -> list[Event]:
    # Words that no encoding of a column shortens.
    return [topic.upsert(order(key, f"{chance.getrandbits(320):080x}"), at(lsn)) for key in keys]


def _files(root: Path) -> dict[Path, int]:
    return {path: path.stat().st_size for path in root.rglob("*") if path.is_file()}
