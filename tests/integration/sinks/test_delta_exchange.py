"""All rows of a Delta table exchanged for another generation's while a sink, or somebody else, writes to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import deltalake
import polars
import pyarrow as pa
import pytest

from cdc.process.clock import SYSTEM_CLOCK, ManualClock
from sinks.delta.delta_storage import Storage
from sinks.delta.delta_table import Delta
from sinks.warehouse.warehouse_columns import KEY, POS

_schema: Any = pa.schema
SCHEMA = _schema([(KEY, pa.string()), (POS, pa.string()), ("_bucket_2", pa.int32())])
WAYS = {"flat": SCHEMA.remove(2), "partitioned": SCHEMA}
Meanwhile = Callable[[Path], object]


class Interrupted(Delta):
    """A generation during whose reading somebody writes to the table that is to have its rows."""

    def interrupt(self, act: Callable[[], object]) -> Interrupted:
        self._act = act
        return self

    def batches(self, most: int) -> Iterator[pa.RecordBatch]:
        self._act()
        return super().batches(most)


def made(folder: Path, schema: pa.Schema, *lots: str, pos: str) -> Path:
    """A table with a file for each lot of keys."""
    table = Delta(Storage(root=str(folder)), "orders", SYSTEM_CLOCK)
    table.create(schema, [name for name in schema.names if name.startswith("_bucket")])
    for keys in lots:
        rows: dict[str, Any] = {KEY: list(keys), POS: [pos] * len(keys), "_bucket_2": [ord(key) % 2 for key in keys]}
        whole = pa.table({name: rows[name] for name in schema.names}, schema)
        deltalake.write_deltalake(table.path, whole, mode="append")
    return Path(table.path)


def joined(path: Path) -> None:
    deltalake.DeltaTable(str(path)).optimize.compact()


def added(path: Path) -> None:
    """A row that the generation has, by a sink that is behind it. Once: each try is interrupted."""
    table = deltalake.DeltaTable(str(path))
    if "d" not in table.to_pyarrow_table()[KEY].to_pylist():
        row: dict[str, Any] = {KEY: ["d"], POS: ["1"], "_bucket_2": [0]}
        names = [field.name for field in table.schema().fields]
        deltalake.write_deltalake(table, pa.table({n: row[n] for n in names}, SCHEMA_OF[len(names)]), mode="append")


SCHEMA_OF = {len(schema): schema for schema in WAYS.values()}


@pytest.mark.parametrize("meanwhile", [joined, added])
@pytest.mark.parametrize(("old", "new"), [("flat", "flat"), ("partitioned", "partitioned"), ("partitioned", "flat")])
def test_h539_nothing_old_stays_beside_a_generation(tmp_path: Path, old: str, new: str, meanwhile: Meanwhile) -> None:
    """Two rows a key: those of before came back with the files that were joined meanwhile."""
    path = made(tmp_path / "used", WAYS[old], "ab", "ac", "x", pos="1")
    made(tmp_path / "new", WAYS[new], "abcd", pos="2")
    filled = Interrupted(Storage(root=str(tmp_path / "new")), "orders", SYSTEM_CLOCK).interrupt(lambda: meanwhile(path))
    Delta(Storage(root=str(tmp_path / "used")), "orders", SYSTEM_CLOCK).take(filled)
    rows = deltalake.DeltaTable(str(path)).to_pyarrow_table()
    assert Counter(rows[KEY].to_pylist()) == Counter("abcd")
    assert set(rows[POS].to_pylist()) == {"2"}
    assert rows.schema.names == WAYS[new].names


def test_h539_a_busy_writer_does_not_end_an_exchange(tmp_path: Path) -> None:
    """Its rows are written before: what is left to be done is over between two commits of a sink."""
    path = made(tmp_path / "used", WAYS["flat"], "ab", "x", pos="1")
    made(tmp_path / "new", WAYS["flat"], "abcd", pos="2")
    tries: list[int] = []

    def commit() -> None:
        tries.append(1)
        assert len(tries) < 2, "rows are read once, however often somebody commits"
        Delta(Storage(root=str(tmp_path / "used")), "orders", SYSTEM_CLOCK).put(ROW, KEY, POS)

    filled = Interrupted(Storage(root=str(tmp_path / "new")), "orders", SYSTEM_CLOCK).interrupt(commit)
    Delta(Storage(root=str(tmp_path / "used")), "orders", SYSTEM_CLOCK).take(filled)
    keys: list[Any] = deltalake.DeltaTable(str(path)).to_pyarrow_table()[KEY].to_pylist()
    assert sorted(keys) == list("abcd")


ROW = pa.table({KEY: ["a"], POS: ["3"]}, WAYS["flat"])


PARTS = _schema([(KEY, pa.string()), (POS, pa.string()), ("place", pa.string()), ("_part_place", pa.string())])
PLACES = ["a b/ü%", "", None, "q=1"]


@pytest.mark.parametrize("column", ["_part_place", "_bucket_2"])
def test_h544_files_of_partitions_are_joined(tmp_path: Path, column: str) -> None:
    """Beside somebody's OPTIMIZE each row was there twice: delta-rs's own join tries again upon it."""
    schema = PARTS if column == "_part_place" else _schema([*list(PARTS)[:3], ("_bucket_2", pa.int32())])
    clock = ManualClock()
    table, beside = (Delta(Storage(root=str(tmp_path)), "orders", clock) for _ in range(2))
    table.create(schema, [column])
    wanted = []
    for number in range(20):
        places = pa.array(PLACES, pa.string())
        rows: dict[str, Any] = {KEY: [f"{number}{n}" for n in range(4)], POS: ["1"] * 4, "place": places}
        rows |= {"_part_place": places, "_bucket_2": pa.array([n % 2 for n in range(4)], pa.int32())}
        deltalake.write_deltalake(table.path, pa.table({n: rows[n] for n in schema.names}, schema), mode="append")
        wanted += [(key, place) for key, place in zip(rows[KEY], PLACES, strict=True)]
    clock.advance(61)
    assert table.refresh() and beside.exists()
    for writer in (table, beside):
        writer.tidy()
        found = deltalake.DeltaTable(table.path)
        assert len(found.file_uris()) < 60
        kept = found.to_pyarrow_table().select([KEY, "place", column])
        shown = zip(kept[KEY].to_pylist(), kept["place"].to_pylist(), strict=True)
        assert sorted(shown, key=str) == sorted(wanted, key=str)
        assert kept.schema.field(column).type == schema.field(column).type
        by_folders = polars.scan_delta(table.path).select(KEY, column).collect()
        both = zip(kept[KEY].to_pylist(), kept[column].to_pylist(), strict=True)
        assert sorted(by_folders.rows(), key=str) == sorted(both, key=str)


def test_h544_files_by_two_columns_keep_both(tmp_path: Path) -> None:
    """Somebody has written the table anew like that: a partition of ours is by one column."""
    schema = _schema([(KEY, pa.string()), (POS, pa.string()), ("one", pa.string()), ("two", pa.int32())])
    clock = ManualClock()
    table = Delta(Storage(root=str(tmp_path)), "orders", clock)
    table.create(schema, ["one", "two"])
    wanted = []
    for number in range(20):
        for one, two in (("x", 1), ("x", 2)):
            row: dict[str, Any] = {KEY: [f"{number}{two}"], POS: ["1"], "one": [one], "two": [two]}
            deltalake.write_deltalake(table.path, pa.table(row, schema), mode="append")
            wanted.append((f"{number}{two}", one, two))
    clock.advance(61)
    assert table.refresh()
    table.tidy()
    found = deltalake.DeltaTable(table.path)
    assert len(found.file_uris()) < 40
    shown = found.to_pyarrow_table().select([KEY, "one", "two"]).to_pylist()
    assert sorted((row[KEY], row["one"], row["two"]) for row in shown) == sorted(wanted)


def test_h544_files_by_another_type_keep_its_values(tmp_path: Path) -> None:
    schema = _schema([(KEY, pa.string()), (POS, pa.string()), ("paid", pa.bool_())])
    clock = ManualClock()
    table = Delta(Storage(root=str(tmp_path)), "orders", clock)
    table.create(schema, ["paid"])
    for number in range(20):
        row: dict[str, Any] = {KEY: [str(number)], POS: ["1"], "paid": [True]}
        deltalake.write_deltalake(table.path, pa.table(row, schema), mode="append")
    clock.advance(61)
    assert table.refresh()
    table.tidy()
    found = deltalake.DeltaTable(table.path)
    assert len(found.file_uris()) < 20
    assert found.to_pyarrow_table()["paid"].to_pylist() == [True] * 20
    log = "".join(file.read_text() for file in (Path(table.path) / "_delta_log").glob("*.json"))
    assert '"paid":"true"' in log
    assert '"paid":"True"' not in log
