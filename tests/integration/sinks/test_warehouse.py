"""The warehouses on real ones: types as people read them, shapes that grow, upkeep, transactions, faults."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import psycopg
import pyarrow as pa
import pytest
import sqlalchemy as sa
from psycopg.conninfo import conninfo_to_dict

from cdc.clock import ManualClock
from cdc.errors import DamagedError, Exit, SinkError
from cdc.progress import Watermark
from sinks.batch import events_of
from sinks.delta.delta_store import DeltaNotes
from sinks.delta.delta_table import Storage
from sinks.kinds import spec_for
from sinks.port import OpenSink, PlaceMissing, StoreAway
from sinks.registry import open_sink
from tests.contract.conftest import postgres_url
from tests.contract.stores import live, rows
from tests.contract.topics import ORDERS, Shapes, Topic, at, batch, column, numeric, shape

SHAPES = Shapes(ORDERS)
ROW = {"id": 1, "status": "open", "note": None}
MARK = Watermark(epoch=1, lsn=99, offsets={ORDERS.topic: {0: 1}})
TYPED = shape(
    column("id", "int8", key=1),
    numeric("total", 10, 2),
    column("at", "timestamptz"),
    column("local", "timestamp"),
    column("d", "date"),
    column("doc", "jsonb"),
    column("tags", "int4", array=True),
    column("raw", "bytea"),
    table="typed",
)
ORDINARY = {
    "id": 1,
    "total": "10.50",
    "at": "2016-11-04T11:51:30.123456Z",
    "local": "2016-11-04T13:51:30Z",
    "d": "2016-11-04Z",
    "doc": '{"a": 1}',
    "tags": [1, None],
    "raw": "AP8=",
}
ODD = {**ORDINARY, "id": 2, "total": "NaN", "at": "infinity", "d": "-0043-03-15Z", "tags": [[1], [2]]}
VALUES = {
    "id": 1,
    "total": Decimal("10.50"),
    "at": datetime(2016, 11, 4, 11, 51, 30, 123456, UTC),
    "local": datetime(2016, 11, 4, 13, 51, 30),
    "d": date(2016, 11, 4),
    "doc": '{"a": 1}',
    "tags": [1, None],
    "raw": b"\x00\xff",
}


def delta(folder: Path, clock: ManualClock | None = None, **options: float) -> OpenSink:
    spec = spec_for("delta", prefix="shop", options={"path": str(folder), **options})
    return open_sink(spec, clock) if clock is not None else open_sink(spec)


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


def test_h64_a_merge_sees_one_row_per_key(warehouse: Path) -> None:
    sink, topic = delta(warehouse), Topic()
    sink.sink.apply(batch(topic.upsert(ROW, at(1))), SHAPES)
    spaced = topic.upsert(ROW, at(2))._replace(key=b'{ "id": 1 }')
    done = sink.sink.apply(batch(spaced, topic.upsert({**ROW, "status": "paid"}, at(3))), SHAPES)
    assert done.applied == 1
    assert [row["status"] for row in read(warehouse)] == ["paid"]
    sink.close()


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


def test_delta_forgets_deletes_by_the_clock_and_files_by_the_table_s_own_word(warehouse: Path) -> None:
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


def test_small_commits_leave_few_files_for_the_next_merge_to_open(warehouse: Path) -> None:
    sink, topic = delta(warehouse, ManualClock()), Topic()
    for number in range(1, 60):
        sink.sink.apply(batch(topic.upsert({**ROW, "id": number % 7}, at(number))), SHAPES)
    held = deltalake.DeltaTable(str(warehouse / "public" / "orders"))
    assert len(held.file_uris()) <= 20
    assert sorted(row["id"] for row in read(warehouse)) == list(range(7))
    sink.close()


def test_h84_a_delta_table_that_was_removed_takes_the_watermark_with_it(warehouse: Path) -> None:
    sink, topic = delta(warehouse), Topic()
    sink.sink.apply(batch(topic.upsert(ROW, at(1))), SHAPES)
    sink.commit(Watermark(epoch=1, lsn=99, offsets={ORDERS.topic: {0: 1}}))
    sink.close()
    (warehouse / "public" / "orders").rename(warehouse / "away")
    again = delta(warehouse)
    again.sink.prepare(ORDERS)
    assert again.watermarks.read() is None
    again.close()


def filled_twice(warehouse: Path) -> OpenSink:
    """A sink whose table has two commits, and beside it a copy of the table from between them."""
    sink, topic = delta(warehouse), Topic()
    sink.sink.prepare(ORDERS)
    sink.sink.apply(batch(topic.upsert(ROW, at(1))), SHAPES)
    sink.commit(Watermark(epoch=1, lsn=10, offsets={ORDERS.topic: {0: 1}}))
    shutil.copytree(warehouse / "public" / "orders", warehouse / "copy")
    sink.sink.apply(batch(topic.upsert({**ROW, "id": 77}, at(2))), SHAPES)
    sink.commit(Watermark(epoch=1, lsn=20, offsets={ORDERS.topic: {0: 2}}))
    return sink


def put_back(warehouse: Path) -> None:
    shutil.rmtree(warehouse / "public" / "orders")
    (warehouse / "copy").rename(warehouse / "public" / "orders")


def test_h84_h100_an_older_copy_of_a_table_is_noticed_while_the_sink_runs(warehouse: Path) -> None:
    sink = filled_twice(warehouse)
    put_back(warehouse)
    with pytest.raises(PlaceMissing):
        sink.sink.apply(batch(Topic().upsert({**ROW, "id": 78}, at(3))), SHAPES)
        sink.commit(Watermark(epoch=1, lsn=30, offsets={ORDERS.topic: {0: 3}}))
    sink.close()


def test_h84_h100_an_older_copy_of_a_table_is_noticed_at_the_next_start(warehouse: Path) -> None:
    filled_twice(warehouse).close()
    put_back(warehouse)
    again = delta(warehouse)
    again.sink.prepare(ORDERS)
    assert again.watermarks.read() is None, "the table is filled anew, so the store shows no LSN"
    assert deltalake.DeltaTable(str(warehouse / "public" / "orders")).to_pyarrow_table().num_rows == 0
    again.close()


def join_and_remove(warehouse: Path, table: str = "public/orders") -> None:
    """What another writer's OPTIMIZE and VACUUM do, with nothing kept for readers."""
    other = deltalake.DeltaTable(str(warehouse / table))
    other.optimize.compact()
    other.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    other.create_checkpoint()


def test_h100_another_writer_s_optimize_and_vacuum_hold_nobody_up(warehouse: Path) -> None:
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
    sink, topic = delta(warehouse), Topic()
    for number in range(1, 4):
        sink.sink.apply(batch(topic.upsert({**ROW, "id": number}, at(number))), SHAPES)
    reading = sink.reader.scan(ORDERS)
    assert next(reading).num_rows > 0
    for file in (warehouse / "public" / "orders").glob("*.parquet"):
        file.unlink()
    with pytest.raises(StoreAway, match="went away while it was read"):
        list(reading)
    sink.close()


def restored(warehouse: Path) -> OpenSink:
    """A sink whose table somebody restored to the version before its second row; the watermark speaks of both."""
    sink = filled_twice(warehouse)
    table = deltalake.DeltaTable(str(warehouse / "public" / "orders"))
    table.restore(table.version() - 1)
    return sink


def test_h84_a_restored_version_is_noticed_while_the_sink_runs(warehouse: Path) -> None:
    sink = restored(warehouse)
    with pytest.raises(PlaceMissing):
        sink.watermarks.read()
    with pytest.raises(PlaceMissing):
        sink.sink.apply(batch(Topic().upsert({**ROW, "id": 78}, at(3))), SHAPES)
    sink.close()


def test_h84_a_restored_version_is_noticed_at_the_next_start(warehouse: Path) -> None:
    restored(warehouse).close()
    again = delta(warehouse)
    again.sink.prepare(ORDERS)
    assert again.watermarks.read() is None, "the table is filled anew, so the store shows no LSN"
    assert read(warehouse) == []
    again.sink.apply(batch(Topic().upsert(ROW, at(5))), SHAPES)
    again.commit(MARK)
    again.close()
    once_more = delta(warehouse)
    once_more.sink.prepare(ORDERS)
    assert once_more.watermarks.read() == MARK, "once"
    once_more.close()


@pytest.mark.parametrize("text", [b"{", b"7", b'{"public/orders":"one"}'])
def test_h113_versions_by_somebody_else_s_hand_are_refused_in_a_sentence(warehouse: Path, text: bytes) -> None:
    filled_twice(warehouse).close()
    storage = Storage(root=str(warehouse))
    DeltaNotes(storage, ManualClock()).write("versions", text)
    again = delta(warehouse)
    with pytest.raises(DamagedError, match="its tables' versions"):
        again.sink.prepare(ORDERS)
    again.close()


def test_h84_a_watermark_that_was_put_back_at_the_same_version_is_not_taken_for_our_own(warehouse: Path) -> None:
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


@pytest.fixture
def sql_url(database: str) -> Iterator[str]:
    yield postgres_url(conninfo_to_dict(database))


def sql(url: str, clock: ManualClock | None = None, **options: Any) -> OpenSink:
    spec = spec_for("sql", prefix="shop", options={"url": url, **options})
    return open_sink(spec, clock) if clock is not None else open_sink(spec)


def test_h31_postgres_has_real_types_and_the_exact_text_beside_them(sql_url: str, database: str) -> None:
    sink, topic = sql(sql_url), Topic(TYPED)
    sink.sink.apply(batch(topic.upsert(ORDINARY, at(1)), topic.upsert(ODD, at(2))), Shapes(TYPED))
    sink.sink.show()
    with psycopg.connect(database) as reader:
        columns = ", ".join(VALUES)
        one = reader.execute(f"select {columns} from public_typed where _key = %s", ["1"]).fetchone()
        two = reader.execute("select total, at, _exact::json ->> 'at' from public_typed where _key = '2'").fetchone()
    assert one is not None
    assert dict(zip(VALUES, one, strict=True)) == VALUES
    assert two == (None, None, "infinity")
    sink.close()


def test_rows_and_watermark_show_in_one_transaction(sql_url: str, database: str) -> None:
    sink, topic = sql(sql_url), Topic()
    sink.sink.prepare(ORDERS)
    sink.sink.apply(batch(topic.upsert(ROW, at(1))), SHAPES)
    with psycopg.connect(database, autocommit=True) as reader:
        assert reader.execute("select count(*) from public_orders").fetchone() == (0,)
        sink.commit(Watermark(epoch=1, lsn=8))
        assert reader.execute("select count(*) from public_orders").fetchone() == (1,)
        assert reader.execute(
            "select value::json ->> 'lsn' from _cdc_watermark where name like '%watermark'"
        ).fetchone() == ("8",)
    sink.close()


def test_a_connection_lost_with_rows_that_are_not_committed_is_an_error(sql_url: str, database: str) -> None:
    sink, topic = sql(sql_url), Topic()
    first, second = topic.upsert(ROW, at(1)), topic.upsert({**ROW, "id": 2}, at(2))
    sink.sink.apply(batch(first), SHAPES)
    _kill_others(database)
    with pytest.raises(SinkError, match="before what was written was committed"):
        sink.sink.apply(batch(second), SHAPES)
    sink.sink.apply(batch(first, second), SHAPES)
    assert sorted(rows(sink, ORDERS)) == ["1", "2"]
    _kill_others(database)
    assert sink.sink.apply(batch(second), SHAPES).applied == 1
    sink.close()


def test_a_look_on_a_lost_connection_does_not_hide_what_was_lost(sql_url: str, database: str) -> None:
    sink, topic = sql(sql_url), Topic()
    sink.sink.apply(batch(topic.upsert(ROW, at(1))), SHAPES)
    _kill_others(database)
    with pytest.raises(SinkError, match="before what was written was committed"):
        sink.watermarks.read()
    assert rows(sink, ORDERS) == {}
    sink.close()


def _kill_others(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )


def test_a_row_that_the_database_refuses_is_found_among_the_others(sql_url: str) -> None:
    sink, topic = sql(sql_url), Topic()
    for number in range(50):
        # Postgres holds no NUL; a foreign producer may send one.
        topic.upsert({**ROW, "id": number, "note": "canary\0" if number == 33 else "n"}, at(number))
    done = sink.sink.apply(events_of(topic.events), SHAPES)
    assert [refused.key for refused in done.refused] == [b'{"id":33}']
    assert "canary" not in done.refused[0].reason
    assert done.applied == 49
    sink.close()


def test_h85_postgres_columns_widen_and_arrays_become_json(sql_url: str, database: str) -> None:
    first = shape(column("id", "int4", key=1), column("n", "int2"), column("a", "int4", array=True))
    second = shape(column("id", "int4", key=1), column("n", "text"), column("a", "text"), version=2)
    sink, old, new, shapes = sql(sql_url), Topic(first), Topic(second), Shapes(first, second)
    sink.sink.apply(batch(old.upsert({"id": 1, "n": 5, "a": [1, None]}, at(1))), Shapes(first))
    sink.sink.apply(batch(new.upsert({"id": 2, "n": "five", "a": "x"}, at(2))), shapes)
    sink.sink.show()
    with psycopg.connect(database) as reader:
        found = reader.execute("select n, a from public_orders order by _key").fetchall()
    assert found == [("5", "[1, null]"), ("five", "x")]
    assert len(live(sink, second)) == 2
    sink.close()


def test_sql_deletes_are_forgotten_after_the_replay_window(sql_url: str, tmp_path: Path) -> None:
    for url in (sql_url, f"sqlite:///{tmp_path}/x.db"):
        clock, topic = ManualClock(), Topic()
        sink = sql(url, clock, replay_window_s=7200)
        sink.sink.apply(batch(topic.delete(ROW, at(1)), topic.upsert({**ROW, "id": 2}, at(1))), SHAPES)
        sink.sink.show()
        clock.advance(7000)
        sink.sink.show()
        assert sorted(rows(sink, ORDERS)) == ["1", "2"]
        clock.advance(3700)
        sink.sink.show()
        assert sorted(rows(sink, ORDERS)) == ["2"]
        sink.close()


def test_sql_deletes_are_forgotten_by_commits_too(tmp_path: Path) -> None:
    clock, topic = ManualClock(), Topic()
    sink = sql(f"sqlite:///{tmp_path}/x.db", clock, replay_window_s=7200)
    sink.sink.apply(batch(topic.delete(ROW, at(1)), topic.upsert({**ROW, "id": 2}, at(1))), SHAPES)
    found = []
    for lsn in (1, 2):
        sink.commit(Watermark(epoch=1, lsn=lsn))
        held = pa.Table.from_batches(sink.reader.scan(ORDERS))
        found.append(held.sort_by("key")["key"].to_pylist())
        clock.advance(10_700)
    assert found == [["1", "2"], ["2"]]
    assert sink.watermarks.read() == Watermark(epoch=1, lsn=2)
    sink.close()


def test_h82_a_floor_that_was_rolled_back_is_not_remembered(sql_url: str, database: str) -> None:
    sink, topic = sql(sql_url), Topic()
    old, gone, new = topic.upsert(ROW, at(1)), topic.truncate(at(5)), topic.upsert({**ROW, "id": 2}, at(6))
    sink.sink.prepare(ORDERS)
    sink.sink.apply(batch(gone), SHAPES)
    assert sink.sink.apply(batch(old), SHAPES).stale == 1
    _kill_others(database)
    with pytest.raises(SinkError, match="before what was written was committed"):
        sink.sink.apply(batch(new), SHAPES)
    sink.sink.apply(batch(gone, new), SHAPES)
    sink.commit(Watermark(epoch=1, lsn=6))
    sink.close()
    again = sql(sql_url)
    assert again.sink.apply(batch(old), SHAPES).stale == 1
    assert sorted(rows(again, ORDERS)) == ["2"]
    again.close()


def test_sql_forgets_the_values_of_dropped_columns(sql_url: str, tmp_path: Path) -> None:
    later = shape(column("id", "int8", key=1), column("status", "text"), version=2)
    for number, (url, generic) in enumerate(
        ((sql_url, False), (f"sqlite:///{tmp_path}/x.db", False), (f"sqlite:///{tmp_path}/y.db", True))
    ):
        sink, shapes, old, new = sql(url, generic=generic), Shapes(ORDERS, later), Topic(), Topic(later)
        full = [{"id": key, "status": "open", "note": f"note {key}"} for key in (1, 2, 3)]
        sink.sink.apply(batch(*[old.upsert(row, at(1)) for row in full]), shapes)
        update = new.upsert({"id": 1, "status": "paid"}, at(2))
        done = sink.sink.apply(batch(update, new.delete({"id": 2}, at(3))), shapes)
        assert (done.applied, done.deleted) == (1, 1)
        sink.sink.show()
        with sa.create_engine(url, poolclass=sa.NullPool).connect() as reader:
            found = reader.execute(sa.text("select status, note from public_orders order by _key")).fetchall()
        assert [tuple(row) for row in found] == [("paid", None), (None, None), ("open", "note 3")], number
        sink.close()


def test_two_tables_that_would_share_a_name_are_refused(tmp_path: Path) -> None:
    sink = sql(f"sqlite:///{tmp_path}/x.db")
    sink.sink.prepare(shape(column("id", "int4", key=1), schema="a_b", table="c"))
    with pytest.raises(Exception, match="would share the table a_b_c"):
        sink.sink.prepare(shape(column("id", "int4", key=1), schema="a", table="b_c"))
    sink.close()


def test_sqlite_holds_exact_text_where_it_has_no_type(tmp_path: Path) -> None:
    sink, topic = sql(f"sqlite:///{tmp_path}/x.db"), Topic(TYPED)
    sink.sink.apply(batch(topic.upsert(ORDINARY, at(1))), Shapes(TYPED))
    sink.sink.show()
    with sqlite3.connect(tmp_path / "x.db") as reader:
        found = reader.execute("select total, at, d, tags from public_typed").fetchone()
    reader.close()
    assert found == ("10.50", "2016-11-04T11:51:30.123456Z", "2016-11-04Z", "[1,null]")
    sink.close()


def test_a_wrong_password_is_not_tried_again_and_not_shown(database: str) -> None:
    parts = conninfo_to_dict(database)
    url = f"postgresql+psycopg://{parts['user']}@{parts['host']}:{parts['port']}/{parts['dbname']}"
    spec = spec_for("sql", prefix="shop", options={"url": url}, secrets={"password": "canary-7"})
    with pytest.raises(SinkError) as refused:
        open_sink(spec, ManualClock())
    assert refused.value.exit is Exit.CONFIG
    assert "canary" not in f"{refused.value!r}{refused.value.hint}{spec}"
