"""The Delta warehouse: types as people read them, shapes that grow, upkeep, others' hands, faults."""

from __future__ import annotations

import contextlib
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import orjson
import pytest
from pyarrow import parquet

from cdc.process.clock import SYSTEM_CLOCK, ManualClock
from cdc.process.errors import SinkError
from cdc.record.progress import Watermark
from sinks.contract.kinds import spec_for
from sinks.contract.port import CannotCarry, OpenSink, StoreAway
from sinks.contract.sink_spec import Option, open_sink
from sinks.delta.delta_generations import DeltaNotes
from sinks.delta.delta_storage import Storage
from tests.contract.stores import live
from tests.contract.topics import ORDERS, Shapes, Topic, at, batch, column, numeric, shape
from tests.integration.sinks.warehouse import MARK, ODD, ORDINARY, ROW, SHAPES, TYPED, VALUES


def delta(folder: Path, clock: ManualClock | None = None, **options: float) -> OpenSink:
    spec = spec_for("delta", prefix="shop", options={"path": str(folder), **options})
    return open_sink(spec, clock) if clock is not None else open_sink(spec)


def packed(table: Path) -> set[str]:
    """The codecs of all files of a table, also those that were replaced."""
    every = (parquet.ParquetFile(file).metadata.row_group(0).column(0) for file in table.rglob("*.parquet"))
    return {column.compression for column in every}


def read(folder: Path, table: str = "public/orders") -> list[dict[str, Any]]:
    return deltalake.DeltaTable(str(folder / table)).to_pyarrow_table().sort_by("_key").to_pylist()


def test_h31_delta_has_real_types_and_the_exact_text_beside_them(warehouse: Path) -> None:
    sink, topic = delta(warehouse), Topic(TYPED)
    sink.sink.apply(batch(topic.upsert(ORDINARY, at(1)), topic.upsert(ODD, at(2))), Shapes(TYPED))
    one, two = read(warehouse, "public/typed")
    assert {name: one[name] for name in VALUES} == VALUES
    assert one["_exact"] is None
    assert [two[name] for name in ("total", "at", "d", "tags")] == [None] * 4
    assert dict(two["_exact"]) == {"total": "NaN", "at": "infinity", "d": "-0043-03-15Z", "tags": "[[1],[2]]"}
    assert (two["_key"], two["_deleted"], two["_pos"]) == ("2", False, at(2).text())
    sink.close()


@pytest.mark.parametrize("parts", [None, 4])
def test_the_files_of_rows_are_packed_by_zstd(warehouse: Path, parts: int | None) -> None:
    """Also those that delta-rs writes itself: of first rows, and of a table with partitions."""
    options: dict[str, Option] = {"path": str(warehouse)}
    if parts is not None:
        options["partition_by"] = orjson.dumps({"public.orders": parts}).decode()
    topic = Topic()
    with contextlib.closing(open_sink(spec_for("delta", prefix="shop", options=options))) as sink:
        for number in (1, 2, 3):
            sink.sink.apply(batch(*(topic.upsert({**ROW, "id": n}, at(number)) for n in range(number))), SHAPES)
    assert packed(warehouse / "public" / "orders") == {"ZSTD"}


def test_h64_a_merge_sees_one_row_per_key(warehouse: Path) -> None:
    sink, topic = delta(warehouse), Topic()
    sink.sink.apply(batch(topic.upsert(ROW, at(1))), SHAPES)
    spaced = topic.upsert(ROW, at(2))._replace(key=b'{ "id": 1 }')
    done = sink.sink.apply(batch(spaced, topic.upsert({**ROW, "status": "paid"}, at(3))), SHAPES)
    assert done.applied == 1
    assert [row["status"] for row in read(warehouse)] == ["paid"]
    sink.close()


def test_h16_h102_new_large_rows_are_appended_old_ones_merged(warehouse: Path) -> None:
    """Also beside another writer, who committed the same keys behind the look for them."""
    sink, other, topic = delta(warehouse), delta(warehouse), Topic()

    def large(number: int, lsn: int, status: str) -> Any:
        return topic.upsert({**ROW, "id": number, "status": status * 10_000}, at(lsn))

    sink.sink.apply(batch(large(1, 1, "a")), SHAPES)
    other.sink.apply(batch(large(2, 2, "b")), SHAPES)
    assert sink.sink.apply(batch(large(3, 3, "c")), SHAPES).applied == 1
    # This handle is older than what is there now.
    assert other.sink.apply(batch(large(3, 4, "d"), large(4, 5, "e")), SHAPES).applied == 2
    assert other.sink.apply(batch(large(1, 0, "f"), large(2, 6, "g")), SHAPES).applied == 1
    assert [(row["id"], row["status"][0]) for row in read(warehouse)] == [(1, "a"), (2, "g"), (3, "d"), (4, "e")]
    commits = (warehouse / "public/orders/_delta_log").glob("*.json")
    merged = [b'"remove"' in commit.read_bytes() for commit in sorted(commits)[1:]]
    assert merged == [False, False, False, True, True]
    sink.close()
    other.close()


def test_h85_delta_columns_widen_and_old_rows_keep_their_values(warehouse: Path) -> None:
    first = shape(column("id", "int4", key=1), column("n", "int4"), numeric("m", 6, 2), column("gone", "text"))
    second = shape(column("id", "int8", key=1), column("n", "text"), numeric("m", 8, 4), version=2)
    sink, shapes, old, new = delta(warehouse), Shapes(first, second), Topic(first), Topic(second)
    sink.sink.apply(batch(old.upsert({"id": 1, "n": 5, "m": "1.10", "gone": "x"}, at(1))), shapes)
    sink.sink.apply(batch(new.upsert({"id": 2, "n": "five", "m": "1.1234"}, at(2))), shapes)
    sink.sink.apply(batch(old.upsert({"id": 3, "n": 7, "m": "2.20", "gone": "y"}, at(1))), shapes)
    found = [(row["id"], row["n"], row["m"], row["gone"]) for row in read(warehouse)]
    assert found == [
        (1, "5", Decimal("1.1000"), "x"),
        (2, "five", Decimal("1.1234"), None),
        (3, "7", Decimal("2.2000"), "y"),
    ]
    assert len(live(sink, second)) == 3
    sink.close()


def test_h85_lists_and_bytes_become_text_in_delta(warehouse: Path) -> None:
    kinds = {"a": ("text", True), "raw": ("bytea", False), "raws": ("bytea", True), "m": ("timestamptz", True)}
    first = shape(column("id", "int4", key=1), *(column(n, k, array=array) for n, (k, array) in kinds.items()))
    texts = (column("a", "text"), column("raw", "text"), column("raws", "text", array=True), column("m", "text"))
    second = shape(column("id", "int4", key=1), *texts, version=2)
    sink, shapes, old, new = delta(warehouse), Shapes(first, second), Topic(first), Topic(second)
    moment = "2016-11-04T11:51:30.123456Z"
    held = {"id": 1, "a": ["x", None, '"'], "raw": "AP8=", "raws": ["AP8=", None], "m": [moment]}
    sink.sink.apply(batch(old.upsert(held, at(1)), old.upsert({"id": 2, **dict.fromkeys(kinds)}, at(1))), shapes)
    sink.sink.apply(batch(new.upsert({"id": 3, "a": "x", "raw": "y", "raws": ["z"], "m": "now"}, at(2))), shapes)
    assert [tuple(row[name] for name in kinds) for row in read(warehouse)] == [
        ('["x",null,"\\""]', "AP8=", ["AP8=", None], f'["{moment}"]'),
        (None, None, None, None),
        ("x", "y", ["z"], "now"),
    ]
    assert len(live(sink, second)) == 3
    sink.close()


def test_h280_the_log_of_a_table_has_bounds_of_a_row_that_went(warehouse: Path) -> None:
    sink, topic = delta(warehouse), Topic()
    gone, folder = {**ROW, "status": "sentinel-4410"}, warehouse / "public" / "orders"
    sink.sink.apply(batch(topic.upsert(gone, at(1))), SHAPES)
    sink.sink.apply(batch(topic.delete(gone, at(2))), SHAPES)
    deltalake.DeltaTable(folder).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
    assert live(sink, ORDERS) == {}
    assert any("sentinel-4410" in file.read_text() for file in folder.rglob("*.json"))
    sink.close()


@pytest.mark.slow
def test_deletes_expire_by_the_clock_and_files_by_the_table(warehouse: Path) -> None:
    clock = ManualClock()
    sink, topic = delta(warehouse, clock, replay_window_s=7200), Topic()
    sink.sink.apply(batch(topic.delete({**ROW, "id": 9}, at(1)), topic.upsert(ROW, at(1))), SHAPES)
    for number in range(2, 60):
        sink.sink.apply(batch(topic.upsert({**ROW, "id": number + 100}, at(number))), SHAPES)
        sink.commit(Watermark(epoch=1, lsn=number))
        if number == 2:
            for table in ("public/orders", "_watermark"):
                keep = {"delta.deletedFileRetentionDuration": "interval 0 seconds"}
                deltalake.DeltaTable(str(warehouse / table)).alter.set_table_properties(keep)
    # Only now: the checkpoints on the way have forgotten most of the files that are due.
    for number in range(60, 63):
        clock.advance(3600)
        sink.sink.apply(batch(topic.upsert({**ROW, "id": number + 100}, at(number))), SHAPES)
        sink.commit(Watermark(epoch=1, lsn=number))
    found = [row["_key"] for row in read(warehouse)]
    assert "9" not in found
    assert len(found) == 62
    for table in ("public/orders", "_watermark"):
        files = list((warehouse / table).glob("*.parquet"))
        assert len(files) <= 20, table
    assert delta(warehouse).watermarks.read() == Watermark(epoch=1, lsn=62)
    sink.close()


@pytest.mark.slow
def test_small_commits_leave_few_files_for_the_next_merge(warehouse: Path) -> None:
    sink, topic = delta(warehouse, ManualClock()), Topic()
    for number in range(1, 60):
        sink.sink.apply(batch(topic.upsert({**ROW, "id": number % 7}, at(number))), SHAPES)
    held = deltalake.DeltaTable(str(warehouse / "public" / "orders"))
    assert len(held.file_uris()) <= 20
    assert sorted(row["id"] for row in read(warehouse)) == list(range(7))
    sink.close()


def filled_twice(warehouse: Path) -> OpenSink:
    """A sink whose table has two commits."""
    sink, topic = delta(warehouse), Topic()
    sink.sink.prepare(ORDERS)
    sink.sink.apply(batch(topic.upsert(ROW, at(1))), SHAPES)
    sink.commit(Watermark(epoch=1, lsn=10, offsets={ORDERS.topic: {0: 1}}))
    sink.sink.apply(batch(topic.upsert({**ROW, "id": 77}, at(2))), SHAPES)
    sink.commit(Watermark(epoch=1, lsn=20, offsets={ORDERS.topic: {0: 2}}))
    return sink


def test_h162_a_watermark_is_not_written_over_a_rebuilds_notes(warehouse: Path) -> None:
    """A sink that runs has looked at its place when ``cdc rebuild`` switches."""
    sink, older = delta(warehouse), Watermark(epoch=1, lsn=8)
    sink.commit(older)

    def switched() -> None:
        sink.watermarks.read()
        DeltaNotes(Storage(root=str(warehouse)), SYSTEM_CLOCK).write("generation", b"2")

    with pytest.raises(StoreAway):
        sink.commit(Watermark(epoch=1, lsn=16), switched)
    assert sink.watermarks.read() == older
    assert not sink.current()
    sink.close()


def test_h162_notes_of_two_writers_stand_beside_each_other(warehouse: Path) -> None:
    one, other = (DeltaNotes(Storage(root=str(warehouse)), SYSTEM_CLOCK) for _ in range(2))
    one.write("a", b"1")
    other.read()
    one.write("b", b"2")
    other.write("c", b"3")
    assert dict(one.read()) == {"a": b"1", "b": b"2", "c": b"3"}


@pytest.mark.parametrize("number", [0, 1])
def test_h163_a_table_whose_log_lost_files_is_held_alone(warehouse: Path, number: int) -> None:
    filled_twice(warehouse).close()
    log = warehouse / "public" / "orders" / "_delta_log"
    sorted(log.iterdir())[number].unlink()
    again = delta(warehouse, ManualClock())
    with pytest.raises(CannotCarry, match="files of the table's log are missing"):
        again.sink.prepare(ORDERS)
    shutil.rmtree(warehouse / "public" / "orders")
    assert again.places.read(ORDERS) is None, "a table that was removed whole is made anew, and filled"
    again.sink.prepare(ORDERS)
    again.close()


def join_and_remove(warehouse: Path, table: str = "public/orders") -> None:
    """What another writer's OPTIMIZE and VACUUM do, with nothing kept for readers."""
    other = deltalake.DeltaTable(str(warehouse / table))
    other.optimize.compact()
    other.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    other.create_checkpoint()


def test_h100_another_writers_optimize_and_vacuum_delay_nobody(warehouse: Path) -> None:
    sink, topic = delta(warehouse, ManualClock()), Topic()
    for number in (1, 2, 3):
        sink.sink.apply(batch(topic.upsert({**ROW, "id": number, "note": "kept"}, at(number))), SHAPES)
    sink.commit(MARK)
    lacking = topic.row("u", {"id": 1, "status": "paid", "note": "__debezium_unavailable_value"}, at(20))
    for events in ([lacking], topic.delete({**ROW, "id": 2}, at(21)), [topic.upsert({**ROW, "id": 4}, at(22))]):
        join_and_remove(warehouse)
        done = sink.sink.apply(batch(events), SHAPES)
        assert (done.applied + done.deleted, done.refused) == (1, ())
        join_and_remove(warehouse, "_watermark")
        sink.commit(MARK)
    reading = sink.reader.scan(ORDERS)
    join_and_remove(warehouse)
    assert [row["note"] for row in read(warehouse) if row["id"] == 1] == ["kept"]
    assert sorted(str(key) for one in reading for key in one["key"].to_pylist()) == ["1", "2", "3", "4"]
    sink.close()


def test_h100_a_file_that_goes_away_while_it_is_read_is_no_bug(warehouse: Path) -> None:
    """It goes before a reading of all rows comes to it, and not after its first rows: a reading takes as many files
    ahead as it has time for."""
    sink, topic = delta(warehouse), Topic()
    for number in (1, 2):
        sink.sink.apply(batch(topic.upsert({**ROW, "id": number}, at(number))), SHAPES)
    some, *_ = deltalake.DeltaTable(str(warehouse / "public" / "orders")).file_uris()
    Path(some).unlink()
    with pytest.raises(StoreAway, match="went away while it was read"):
        list(sink.reader.scan(ORDERS))
    sink.close()


def test_h84_a_watermark_restored_at_its_version_is_noticed(warehouse: Path) -> None:
    ours, other = delta(warehouse), delta(warehouse / "other")
    for number in (1, 2):
        ours.commit(Watermark(epoch=1, lsn=10 * number))
        other.commit(Watermark(epoch=1, lsn=number))
    assert ours.watermarks.read() == Watermark(epoch=1, lsn=20)
    (warehouse / "_watermark").rename(warehouse / "away")
    (warehouse / "other" / "_watermark").rename(warehouse / "_watermark")
    found: Watermark | None = None
    with contextlib.suppress(OSError, SinkError):
        found = ours.watermarks.read()
    assert found is None or found.lsn == 2
    ours.close()
    other.close()


def test_a_warehouse_folder_that_cannot_be_is_one_sentence(warehouse: Path) -> None:
    (warehouse / "public").write_text("a file in the way", encoding="utf-8")
    sink = delta(warehouse, ManualClock())
    with pytest.raises(SinkError) as refused:
        sink.sink.prepare(ORDERS)
    assert "public/orders" in refused.value.message
    assert refused.value.hint
    sink.close()


def test_h455_text_of_an_older_shape_is_no_base64(warehouse: Path) -> None:
    """A warehouse made anew reads rows from before ``alter column v type bytea using ...``."""
    key = column("id", "int8", key=1)
    for array in (False, True):
        one = shape(key, column("v", "text", array=array), table=f"made{array}")
        two = shape(key, column("v", "bytea", array=array), table=f"made{array}", version=2)
        texts = ["abcd", "ab cd", "ab==junk", ""]
        sink, older, newer = delta(warehouse / str(array)), Topic(one), Topic(two)
        events = [older.upsert({"id": n, "v": [text] if array else text}, at(1)) for n, text in enumerate(texts)]
        events.append(newer.upsert({"id": 9, "v": ["AP8="] if array else "AP8="}, at(2)))
        assert sink.sink.apply(batch(*events), Shapes(one, two)).refused == ()
        shown = read(warehouse / str(array), f"public/made{array}")
        assert [row["v"] for row in shown] == [None] * len(texts) + [[b"\0\xff"] if array else b"\0\xff"]
        wanted = [text if not array else f'["{text}"]' for text in texts]
        assert [dict(row["_exact"])["v"] for row in shown[: len(texts)]] == wanted
        sink.close()
