"""What a batch of changed rows writes into an Iceberg warehouse, in bytes on the disk.

A table of 500,000 rows is filled. Then 400 batches change 200 keys each, drawn at random from all, a second apart by a
clock of the benchmark's own. Counted is every file that is new in the table's folder after a batch: rows, position
deletes, manifests, metadata, and the sums that the file system writes beside each. What joins wrote stands apart, by
the table's snapshots. The ratio is to what the changed rows take in the filled table's files. At the end the clock goes
on by two hours, and one more batch has old snapshots expire: what is left on the disk then is beside what the table
itself takes. Bytes alone are measured, so a busy machine changes nothing.
"""

from __future__ import annotations

import random
import secrets
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from cdc.process.clock import SYSTEM_CLOCK, ManualClock
from sinks.contract.kinds import spec_for
from sinks.contract.port import OpenSink
from sinks.contract.sink_spec import SinkSpec, open_sink
from sinks.iceberg.iceberg_spark import file_sizes
from tests.bench.setting import Bench
from tests.contract.orders import SHAPES, order
from tests.contract.topics import Topic, at, batch
from tests.lake_sessions import lake_spark
from tests.lakes import foreign_table, lake_catalog

BATCHES, CHANGED, FILLED_AT_ONCE = 400, 200, 25_000
_HOURS_S = 7200.0


def bench(bench: Bench) -> None:
    rows, batches = bench.rows(500_000), bench.rows(BATCHES, 40)
    with bench.database() as database, lake_spark(bench.folder):
        login = lake_catalog(database)
        root, prefix = bench.folder / "lake", f"b{secrets.token_hex(4)}"
        spec = spec_for("iceberg", prefix=prefix, options={**login.options, "path": str(root)}, secrets=login.secrets)
        _measured(bench, spec, root / prefix, rows, batches)


def _measured(bench: Bench, spec: SinkSpec, folder: Path, rows: int, batches: int) -> None:
    chance, topic, clock = random.Random(7), Topic(), ManualClock(SYSTEM_CLOCK.now_ns())
    with closing(open_sink(spec, clock)) as store:
        for start in range(0, rows, FILLED_AT_ONCE):
            _put(store, topic, 1, range(start, min(start + FILLED_AT_ONCE, rows)), chance)
        before, filled = _sizes(folder), _live_bytes(spec)
        known, joined, written = _snapshots(spec), 0, list[Counter[str]]()
        for number in range(batches):
            clock.advance(1.0)
            _put(store, topic, 2 + number, chance.sample(range(rows), min(CHANGED, rows)), chance)
            now, snapshots = _sizes(folder), _snapshots(spec)
            new = {path: size for path, size in now.items() if path not in before}
            written.append(Counter())
            for path, size in new.items():
                written[-1][_what(path.name)] += size
            joined += sum(size for one, size in snapshots.items() if one not in known)
            before, known = now, snapshots
        _said(bench, rows, filled, written, joined)
        kept = sum(before.values())
        clock.advance(_HOURS_S)
        _put(store, topic, 2 + batches, [0], chance)
        after, own = sum(_sizes(folder).values()), _live_bytes(spec)
        bench.say(
            f"on the disk before old snapshots expire {kept / 1e6:,.1f} MB, after it {after / 1e6:,.1f} MB, of which "
            f"the table has {own / 1e6:,.1f} MB"
        )


def _said(bench: Bench, rows: int, filled: int, written: list[Counter[str]], joined: int) -> None:
    totals = sorted(one.total() for one in written)
    changed, total, middle = filled / rows * CHANGED, sum(totals), totals[len(totals) // 2]
    bench.say(
        f"{rows:,} rows, {filled / 1e6:.1f} MB; a batch of {CHANGED} changed keys {middle / 1e3:,.1f} kB (median; most "
        f"{totals[-1] / 1e3:,.1f}); {len(written)} batches {total / 1e6:.2f} MB, by joins {joined / 1e6:.2f} MB of it; "
        f"{total / (changed * len(written)):,.1f} times the changed rows' own bytes"
    )
    for name, one in (("the first batch", written[0]), ("the last batch", written[-1]), ("all", _sum(written))):
        bench.say(f"{name}: " + ", ".join(f"{what} {size / 1e3:,.1f} kB" for what, size in sorted(one.items())))


def _sum(written: list[Counter[str]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for one in written:
        found.update(one)
    return found


def _what(name: str) -> str:
    if "metadata.json" in name:
        return "metadata"
    if ".avro" in name:
        return "manifests"
    return "deletes" if "-deletes" in name else "rows"


def _put(store: OpenSink, topic: Topic, lsn: int, keys: range | list[int], chance: random.Random) -> None:
    # Words that no encoding of a column shortens.
    events = (topic.upsert(order(key, f"{chance.getrandbits(320):080x}"), at(lsn)) for key in keys)
    store.sink.apply(batch(*events), SHAPES)


def _sizes(folder: Path) -> dict[Path, int]:
    """Of every file, by the table's folder alone."""
    return {path: path.stat().st_size for path in folder.glob("public_orders-*/**/*") if path.is_file()}


def _live_bytes(spec: SinkSpec) -> int:
    with foreign_table(spec) as table:
        found = file_sizes(table)
    return sum(found.data) + sum(found.positions)


def _snapshots(spec: SinkSpec) -> dict[int, int]:
    """What each of them added by joining files, in bytes."""
    with foreign_table(spec) as table:
        return {one.snapshot_id: _joined(one) for one in table.snapshots()}


def _joined(snapshot: Any) -> int:
    said = snapshot.summary
    return int(said["added-files-size"] or 0) if said is not None and said.operation.value == "replace" else 0
