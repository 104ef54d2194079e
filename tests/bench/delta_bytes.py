"""What each engine of a Delta warehouse writes for a batch of changed rows, in bytes on the disk.

Two tables are filled, of 50,000 rows and of 500,000. Then 40 batches change 200 keys each. In one run the keys are
drawn at random from all. In another nineteen of twenty are among the newest hundredth of the rows, as where recent
orders change most. Counted is every file that is new in the table's folder after a batch: data, deletion vectors and
log. What joins of files added, by the table's log, stands apart. The ratio is to what the changed rows take in the
filled table's files. The first batch cuts the embedded engine's files, and stands apart, too. Bytes alone are measured,
so a busy machine changes nothing. ``ARGS="delta_bytes --scale 20"`` is a table of 10 million rows.
"""

from __future__ import annotations

import random
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import deltalake
import orjson
import pyarrow as pa

from sinks.contract.kinds import spec_for
from sinks.contract.port import OpenSink
from sinks.contract.sink_spec import open_sink
from tests.bench.setting import Bench
from tests.contract.orders import SHAPES, order
from tests.contract.topics import Topic, at, batch
from tests.lake_sessions import lake_spark

BATCHES, CHANGED, FILLED_AT_ONCE = 40, 200, 25_000
NEWEST, AMONG_NEWEST = 100, 0.95
"""Changes among the newest rows: of how many one, and which share of the changes."""


def bench(bench: Bench) -> None:
    sizes = dict.fromkeys((bench.rows(50_000), bench.rows(500_000)))
    for rows in sizes:
        for recent in (False, True):
            _measured(bench, "embedded", rows, recent=recent)
    with lake_spark(bench.folder):
        for rows in sizes:
            for recent in (False, True):
                _measured(bench, "spark", rows, recent=recent)


def _measured(bench: Bench, engine: str, rows: int, *, recent: bool) -> None:
    root = bench.folder / f"bytes_{engine}_{rows}_{recent}"
    chance, topic, table = random.Random(7), Topic(), root / "public" / "orders"
    spec = spec_for("delta", prefix="shop", options={"path": str(root), "engine": engine})
    with closing(open_sink(spec)) as store:
        for start in range(0, rows, FILLED_AT_ONCE):
            _put(store, topic, 1, range(start, min(start + FILLED_AT_ONCE, rows)), chance)
        before = _sizes(table)
        # Filling replaces files, which are there until a VACUUM.
        files: Any = pa.table(deltalake.DeltaTable(str(table)).get_add_actions())
        filled = sum(files["size_bytes"].to_pylist())
        written, joined = list[int](), 0
        for number in range(BATCHES):
            _put(store, topic, 2 + number, _drawn(chance, rows, recent=recent), chance)
            new = {path: size for path, size in _sizes(table).items() if path not in before}
            written.append(sum(new.values()))
            joined += sum(_joined(path) for path in new if path.suffix == ".json")
            before |= new
    changed = filled / rows * CHANGED
    total, median = sum(written), sorted(written)[BATCHES // 2]
    which = "recent rows" if recent else "any rows"
    bench.say(
        f"{engine}, {which}: {rows:,} rows, {filled / 1e6:.1f} MB; a batch of "
        f"{CHANGED} changed keys {median / 1e3:,.1f} kB (median; the first {written[0] / 1e3:,.1f}); {BATCHES} batches "
        f"{total / 1e6:.2f} MB, by joins {joined / 1e6:.2f} MB of it; {total / (changed * BATCHES):,.1f} times the "
        f"changed rows' own bytes"
    )
    shutil.rmtree(root)


def _drawn(chance: random.Random, rows: int, *, recent: bool) -> list[int]:
    if not recent:
        return chance.sample(range(rows), min(CHANGED, rows))
    newest = round(CHANGED * AMONG_NEWEST)
    some = chance.sample(range(rows - max(rows // NEWEST, newest), rows), newest)
    return [*some, *chance.sample(range(rows // 2), CHANGED - newest)]


def _put(store: OpenSink, topic: Topic, lsn: int, keys: range | list[int], chance: random.Random) -> None:
    # Words that no encoding of a column shortens.
    events = (topic.upsert(order(key, f"{chance.getrandbits(320):080x}"), at(lsn)) for key in keys)
    store.sink.apply(batch(*events), SHAPES)


def _sizes(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}


def _joined(commit: Path) -> int:
    """Bytes that a commit has added without a change of rows."""
    actions = [orjson.loads(line) for line in commit.read_bytes().splitlines()]
    return sum(one["add"]["size"] for one in actions if "add" in one and not one["add"]["dataChange"])
