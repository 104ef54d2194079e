"""What a small batch writes into a Delta table of the embedded engine: the files that hold its keys, and no others."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import orjson
import polars as pl
import pyarrow as pa
import pytest
from deltalake.exceptions import CommitFailedError

from cdc.process.clock import ManualClock
from cdc.process.crash_points import CRASH_EXIT
from sinks.contract.kinds import spec_for
from sinks.contract.port import CannotCarry, OpenSink
from sinks.contract.sink_spec import open_sink
from sinks.delta.delta_rewrite import KeyedFiles
from tests.contract.orders import SHAPES, order, statuses
from tests.contract.topics import Topic, at, batch

ROWS = 20_000
CHANCE = random.Random(5)


def opened(folder: Path) -> OpenSink:
    return open_sink(spec_for("delta", prefix="shop", options={"path": str(folder)}), ManualClock())


def place(folder: Path) -> Path:
    return folder / "public" / "orders"


def put(store: OpenSink, topic: Topic, lsn: int, keys: Iterable[int], status: str = "") -> None:
    """Of each key a status that no encoding shortens, unless one is given."""
    events = (topic.upsert(order(key, status or f"{CHANCE.getrandbits(320):080x}"), at(lsn)) for key in keys)
    store.sink.apply(batch(*events), SHAPES)


def sizes(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_size for path in place(folder).rglob("*") if path.is_file()}


def written_by(folder: Path, act: Callable[[], None]) -> int:
    before = sizes(folder)
    act()
    return sum(size for path, size in sizes(folder).items() if path not in before)


@pytest.mark.slow
def test_h430_what_a_batch_writes_does_not_grow_with_the_table(warehouse: Path) -> None:
    small, large = (most_written(warehouse / str(rows), rows) for rows in (ROWS, 3 * ROWS))
    assert large < 1.5 * small


def most_written(folder: Path, rows: int) -> int:
    """Bytes of a batch at most: of neighbours, of three keys far from each other, and of new ones."""
    topic = Topic()
    with closing(opened(folder)) as store:

        def most(lsn: int, keys: Callable[[], Iterable[int]]) -> int:
            return max(written_by(folder, lambda: put(store, topic, lsn, keys())) for _ in range(5))

        for start in range(0, rows, 10_000):
            put(store, topic, 1, range(start, start + 10_000))
        # The first touch cuts the large files.
        put(store, topic, 2, range(0, rows, 50))
        near = most(3, lambda: range(1_500, 1_700))
        far = most(4, lambda: CHANCE.sample(range(rows), 3))
        new = most(5, lambda: [rows + 10, rows + 11])
        assert near < 700_000
        assert far < 3 * 220_000
        assert new < 300_000
        assert len(statuses(store)) == rows + 2
    return max(near, far, new)


@pytest.mark.slow
def test_h430_many_small_batches_leave_few_files(warehouse: Path) -> None:
    topic = Topic()
    with closing(opened(warehouse)) as store:
        for number in range(80):
            put(store, topic, 1 + number, range(number * 20, number * 20 + 20))
        files = deltalake.DeltaTable(str(place(warehouse))).file_uris()
        assert len(files) <= 34
        assert len(statuses(store)) == 1_600
    commits = sorted(place(warehouse).glob("_delta_log/*.json"))
    log = [orjson.loads(line) for path in commits for line in path.read_bytes().splitlines()]
    joined = [one["remove"]["dataChange"] for one in log if "remove" in one]
    assert joined
    assert not any(joined), "a join changes no row, and readers of changes pass it over"


@pytest.mark.slow
def test_every_reader_sees_one_row_a_key(warehouse: Path) -> None:
    topic, wanted = Topic(), {str(key): "open" for key in range(3_000)}
    with closing(opened(warehouse)) as store:
        put(store, topic, 5, range(3_000), "open")
        for number in range(30):
            keys = CHANCE.sample(range(3_200), 25)
            put(store, topic, 6 + number, keys, f"s{number}")
            wanted |= {str(key): f"s{number}" for key in keys}
            gone = CHANCE.choice(keys)
            store.sink.apply(batch(*topic.delete(order(gone), at(6 + number, 9))), SHAPES)
            del wanted[str(gone)]
        put(store, topic, 4, CHANCE.sample(range(3_200), 500), "too old")
        new = set(statuses(store)) - set(wanted)
        wanted |= dict.fromkeys(new, "too old")
        assert statuses(store) == wanted
    table = str(place(warehouse))
    shown = pl.scan_delta(table).filter(~pl.col("_deleted")).collect()
    assert dict(zip(shown["_key"], shown["status"], strict=True)) == wanted
    some = pl.scan_delta(table).filter((pl.col("id") == 17) | (pl.col("status") == "s29")).collect()
    assert {str(one) for one in some["id"]} == {key for key, text in wanted.items() if text == "s29"} | {"17"}
    scanned = deltalake.DeltaTable(table).to_pyarrow_dataset()
    with duckdb.connect() as session:
        session.register("scanned", scanned)
        counted = session.execute("select count(*), count(distinct _key) from scanned").fetchone()
    assert counted == (scanned.count_rows(), scanned.count_rows())


def test_h431_a_row_between_look_and_commit_ends_the_try(warehouse: Path) -> None:
    topic = Topic()
    with closing(opened(warehouse)) as store, closing(opened(warehouse)) as other:
        put(store, topic, 1, range(10), "open")
        table = deltalake.DeltaTable(str(place(warehouse)))
        rows = table.to_pyarrow_table().slice(0, 2)
        put(other, topic, 2, [50], "theirs")
        schema = rows.schema
        keyed = KeyedFiles(
            table=table, schema=schema, key="_key", order="_pos", folder=str(place(warehouse)), near=True
        )
        with pytest.raises(CommitFailedError):
            keyed.merge(rows)
        # The store's own handle is as old as that one, and looks anew.
        put(store, topic, 3, [50, 51], "ours")
        assert {key: text for key, text in statuses(store).items() if int(key) > 40} == {"50": "ours", "51": "ours"}


@pytest.mark.slow
def test_h432_killed_behind_its_files_nothing_has_changed(warehouse: Path) -> None:
    topic = Topic()
    with closing(opened(warehouse)) as store:
        put(store, topic, 1, range(100), "open")
    program = (
        "import sys; from pathlib import Path; from tests.integration.sinks.test_delta_rewrite import *; "
        "put(opened(Path(sys.argv[1])), Topic(), 2, range(50, 120), 'paid')"
    )
    environment = {**os.environ, "CDC_CRASH_AT": "delta_files_written"}
    before = set(sizes(warehouse))
    died = subprocess.run([sys.executable, "-c", program, str(warehouse)], env=environment, check=False)
    assert died.returncode == CRASH_EXIT
    assert len(set(sizes(warehouse)) - before) == 1, "a file that no log names"
    with closing(opened(warehouse)) as store:
        assert statuses(store) == {str(key): "open" for key in range(100)}
        put(store, topic, 2, range(50, 120), "paid")
        wanted = {str(key): "open" if key < 50 else "paid" for key in range(120)}
        assert statuses(store) == wanted


def test_h434_a_feed_of_changes_is_kept_by_delta_rs(warehouse: Path) -> None:
    topic = Topic()
    with closing(opened(warehouse)) as store:
        put(store, topic, 1, range(10), "open")
    table = deltalake.DeltaTable(str(place(warehouse)))
    table.alter.add_feature(deltalake.TableFeatures.ChangeDataFeed, allow_protocol_versions_increase=True)
    table.alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    began = table.version() + 1
    with closing(opened(warehouse)) as store:
        put(store, topic, 2, [3], "paid")
        assert statuses(store)["3"] == "paid"
    found = pa.table(deltalake.DeltaTable(str(place(warehouse))).load_cdf(starting_version=began)).to_pylist()
    assert [(one["status"], one["_change_type"]) for one in found] == [
        ("open", "update_preimage"),
        ("paid", "update_postimage"),
    ]


def test_a_file_that_is_gone_holds_its_table(warehouse: Path) -> None:
    topic = Topic()
    with closing(opened(warehouse)) as store:
        put(store, topic, 1, range(10))
        for path in place(warehouse).glob("*.parquet"):
            path.unlink()
        with pytest.raises(CannotCarry, match="a file of the table is missing"):
            put(store, topic, 2, [3])
        put(store, topic, 2, [99])  # behind all keys of the files that are gone


def test_two_rows_of_a_key_become_one(warehouse: Path) -> None:
    """Another writer makes such. The newer one stays, or the batch's row in the place of both."""
    topic = Topic()
    with closing(opened(warehouse)) as store:
        put(store, topic, 5, range(4), "open")
        table: Any = deltalake.DeltaTable(str(place(warehouse)))
        deltalake.write_deltalake(table, table.to_pyarrow_table().slice(0, 1), mode="append")
        put(store, topic, 4, [0], "too old")
        assert deltalake.DeltaTable(str(place(warehouse))).to_pyarrow_table().num_rows == 5
        put(store, topic, 6, [0], "new")
        assert deltalake.DeltaTable(str(place(warehouse))).to_pyarrow_table().num_rows == 4
        assert statuses(store) == {"0": "new", "1": "open", "2": "open", "3": "open"}
