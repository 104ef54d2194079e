"""The SQL warehouse on real ones: types as people read them, shapes that grow, transactions, faults."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
import sqlalchemy as sa
from psycopg.conninfo import conninfo_to_dict

from cdc.process.clock import ManualClock
from cdc.process.errors import Exit, SinkError
from cdc.record.progress import Watermark
from sinks.contract.batch import events_of
from sinks.contract.kinds import spec_for
from sinks.contract.port import STRANGE_ROW, OpenSink
from sinks.contract.sink_spec import open_sink
from tests.contract.conftest import postgres_url
from tests.contract.orders import order
from tests.contract.stores import live, rows
from tests.contract.topics import ORDERS, Shapes, Topic, at, batch, column, shape
from tests.integration.sinks.warehouse import ODD, ORDINARY, ROW, SHAPES, TYPED, VALUES


@pytest.fixture
def sql_url(database: str) -> Iterator[str]:
    yield postgres_url(conninfo_to_dict(database))


def sql(url: str, clock: ManualClock | None = None, **options: Any) -> OpenSink:
    spec = spec_for("sql", prefix="shop", options={"url": url, **options})
    return open_sink(spec, clock) if clock is not None else open_sink(spec)


def test_h31_postgres_has_real_types_beside_the_exact_text(sql_url: str, database: str) -> None:
    sink, topic = sql(sql_url), Topic(TYPED)
    sink.sink.apply(batch(topic.upsert(ORDINARY, at(1)), topic.upsert(ODD, at(2))), Shapes(TYPED))
    sink.sink.show()
    with psycopg.connect(database) as reader:
        columns = ", ".join(VALUES)
        one = reader.execute(f"select {columns} from public_typed where _key = %s", ["1"]).fetchone()
        two = reader.execute("select total, at, _exact::json ->> 'at' from public_typed where _key = '2'").fetchone()
    assert one is not None
    assert dict(zip(VALUES, one, strict=True)) == {**VALUES, "doc": {"a": 1}}
    assert two == (None, None, "infinity")
    sink.close()


def test_h101_a_moment_the_driver_cannot_read_is_strange(sql_url: str, database: str) -> None:
    sink, topic = sql(sql_url), Topic(TYPED)
    both = [topic.upsert(ORDINARY, at(1)), topic.upsert({**ORDINARY, "id": 2}, at(2))]
    sink.sink.apply(batch(both), Shapes(TYPED))
    sink.sink.show()
    with psycopg.connect(database, autocommit=True) as hand:
        hand.execute("update public_typed set at = 'infinity' where _key = '2'")
    found = rows(sink, TYPED)
    assert {key: one.row == STRANGE_ROW for key, one in found.items()} == {"1": False, "2": True}
    assert sink.reader.get(TYPED, "2") == found["2"]
    assert sink.sink.apply(batch(topic.upsert({**ORDINARY, "id": 2}, at(3))), Shapes(TYPED)).applied == 1
    assert {one.row == STRANGE_ROW for one in rows(sink, TYPED).values()} == {False}
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


def test_a_connection_lost_with_uncommitted_rows_is_an_error(sql_url: str, database: str) -> None:
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


def test_a_row_that_the_database_refuses_is_singled_out(sql_url: str) -> None:
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


@pytest.mark.parametrize("other", ["b_c", "B_c"], ids=["equal", "by-case"])
@pytest.mark.parametrize("live", ["_live", ""], ids=["views", "no-views"])
def test_two_tables_that_would_share_a_name_are_refused(tmp_path: Path, other: str, live: str) -> None:
    sink = sql(f"sqlite:///{tmp_path}/x.db", live_views=live)
    sink.sink.prepare(shape(column("id", "int4", key=1), schema="a_b", table="c"))
    with pytest.raises(Exception, match=f"would share the table a_{other}"):
        sink.sink.prepare(shape(column("id", "int4", key=1), schema="a", table=other))
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


@pytest.mark.slow
def test_h365_two_sinks_of_one_database_begin_at_once(sql_url: str, database: str) -> None:
    """In a schema that is not there yet, each with a connection of its own."""

    def run(name: str) -> int:
        table = shape(*ORDERS.columns, table=name)
        spec = spec_for("sql", prefix=name, options={"url": sql_url, "db_schema": "replica"})
        with closing(open_sink(spec)) as opened:
            for offset in range(1, 6):
                opened.sink.apply(batch(Topic(table).upsert(order(offset), at(offset))), Shapes(table))
                opened.commit(Watermark(epoch=1, lsn=offset, offsets={table.topic: {0: offset}}))
            return len(rows(opened, table))

    for _ in range(4):
        with ThreadPoolExecutor(2) as threads:
            assert list(threads.map(run, ("orders", "lines"))) == [5, 5]
        with psycopg.connect(database) as hand:
            hand.execute("drop schema replica cascade")
