"""What each engine of a Delta warehouse writes for a batch of changed rows, in bytes on the disk.

A table of 500,000 rows is filled. Then 40 batches change 200 keys each, drawn at random from all. Counted is every file
that is new in the table's folder after a batch: data, deletion vectors and log. What OPTIMIZE added, by the table's
log, stands apart. The ratio is to what the changed rows take in the filled table's files. Bytes alone are measured, so
a busy machine changes nothing.
"""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path

import orjson

from sinks.kinds import spec_for
from sinks.port import OpenSink
from sinks.registry import open_sink
from tests.bench.setting import Bench
from tests.contract.orders import SHAPES, order
from tests.contract.topics import Topic, at, batch
from tests.lake_sessions import lake_spark

BATCHES, CHANGED, FILLED_AT_ONCE = 40, 200, 25_000


def bench(bench: Bench) -> None:
    rows = bench.rows(500_000)
    _measured(bench, "embedded", rows)
    with lake_spark(bench.folder):
        _measured(bench, "spark", rows)


def _measured(bench: Bench, engine: str, rows: int) -> None:
    root = bench.folder / f"bytes_{engine}"
    chance, topic, table = random.Random(7), Topic(), root / "public" / "orders"
    spec = spec_for("delta", prefix="shop", options={"path": str(root), "engine": engine})
    with closing(open_sink(spec)) as store:
        for start in range(0, rows, FILLED_AT_ONCE):
            _put(store, topic, 1, range(start, min(start + FILLED_AT_ONCE, rows)), chance)
        before = _sizes(table)
        filled = sum(path.stat().st_size for path in table.glob("*.parquet"))
        written, joined = list[int](), 0
        for number in range(BATCHES):
            _put(store, topic, 2 + number, chance.sample(range(rows), min(CHANGED, rows)), chance)
            new = {path: size for path, size in _sizes(table).items() if path not in before}
            written.append(sum(new.values()))
            joined += sum(_joined(path) for path in new if path.suffix == ".json")
            before |= new
    changed = filled / rows * CHANGED
    total, median = sum(written), sorted(written)[BATCHES // 2]
    bench.say(
        f"{engine}: {rows:,} rows, {filled / 1e6:.1f} MB; a batch of {CHANGED} changed keys {median / 1e3:,.1f} kB "
        f"(median; most {max(written) / 1e3:,.1f}); {BATCHES} batches {total / 1e6:.2f} MB, by OPTIMIZE "
        f"{joined / 1e6:.2f} MB of it; {total / (changed * BATCHES):,.1f} times the changed rows' own bytes"
    )


def _put(store: OpenSink, topic: Topic, lsn: int, keys: range | list[int], chance: random.Random) -> None:
    # Words that no encoding of a column shortens.
    events = (topic.upsert(order(key, f"{chance.getrandbits(320):080x}"), at(lsn)) for key in keys)
    store.sink.apply(batch(*events), SHAPES)


def _sizes(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}


def _joined(commit: Path) -> int:
    """Bytes that a commit has added, if it is one of OPTIMIZE."""
    actions = [orjson.loads(line) for line in commit.read_bytes().splitlines()]
    if not any(one.get("commitInfo", {}).get("operation") == "OPTIMIZE" for one in actions):
        return 0
    return sum(one["add"]["size"] for one in actions if "add" in one)
