"""Histories in warehouses: each change once, whatever comes again, and the table as it was at each LSN."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import deltalake
import pyarrow as pa
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cdc.process.errors import UsageError
from cdc.process.sql_files import load
from cdc.record.position import Position
from cdc.record.progress import Watermark
from sinks.contract.batch import Event
from sinks.contract.history_rows import history_shape
from sinks.contract.kinds import spec_for
from sinks.contract.memory_store import MemoryStore
from sinks.contract.port import CannotCarry
from sinks.contract.sink_spec import open_sink
from sinks.warehouse.history_cuts import HistoryMarks, require_answer, require_known
from tests.contract.feeding import Killed
from tests.contract.histories import (
    BOOK,
    HISTORY,
    PARTITIONS,
    HistoryFeeding,
    Past,
    cut,
    more,
    remembered,
    sorted_events,
    text_of,
)
from tests.contract.orders import order
from tests.contract.stores import Store
from tests.contract.test_places import forget_claim
from tests.contract.topics import at, column, shape

COLUMNS = "id, status, note"
STEP = st.one_of(
    st.tuples(st.just("put"), st.integers(1, 5), st.sampled_from("abc")),
    st.tuples(st.just("put"), st.integers(1, 5), st.sampled_from("abc")),
    st.tuples(st.just("delete"), st.integers(1, 5)),
    st.tuples(st.just("rekey"), st.integers(1, 5), st.integers(1, 5)),
    st.tuples(st.just("truncate")),
    st.tuples(st.just("commit")),
    st.tuples(st.just("commit")),
    st.tuples(st.just("read")),
    st.tuples(st.just("hurried"), st.integers(1, 5), st.sampled_from("xyz")),
    st.tuples(st.just("too_large"), st.integers(1, 5), st.sampled_from("LM")),
    st.tuples(st.just("lose"), st.integers(1, 5), st.sampled_from("PQ")),
)
PASTS = st.lists(STEP, min_size=1, max_size=25)


def past_of(steps: Sequence[tuple[Any, ...]], begun: bool, partitions: int = PARTITIONS) -> Past:
    past = Past(partitions=partitions)
    if begun:
        past.snapshot({1: "first", 2: "first"})
    past.commit()
    for what, *given_ in steps:
        if what == "hurried":
            past.read(hurried=(given_[0], given_[1]))
        else:
            getattr(past, what)(*given_)
    past.commit()
    return past


def deliveries(records: Sequence[Event], seed: int) -> Iterator[Sequence[Event]]:
    """Batches with any borders, some of them again, from an older place and late."""
    chance = random.Random(seed)
    at = 0
    while at < len(records):
        start = max(0, at - chance.choice([0, 0, 0, 3, 10]))
        end = min(len(records), at + chance.randint(1, 8))
        late = chance.sample(records[:end], min(end, 2)) if chance.random() < 0.3 else []
        yield [*records[start:end], *late]
        at = end
    yield records[: chance.randint(0, len(records))]


Asked = Callable[[str], list[tuple[Any, ...]]]


def marks_of(asked: Asked, table: str, limit: str) -> HistoryMarks:
    """As a reader finds them."""
    key = "substr(_key, 34)"
    [(first,)] = asked(f"select min(_pos) from {table} where _op in ('c', 'u', 'd', 'r', 't')")
    gaps = [row[0] for row in asked(f"select _pos from {table} where {key} = '%gap'")]
    readings = [max(row[0], row[1] or "") for row in asked(f"select _pos, _seen from {table} where _op = 'sweep'")]
    sql = f"select min(_pos) from {table} where _pos >= '{limit}' and _op is not null and {key} <> '%gap'"
    [(behind,)] = asked(sql)
    return HistoryMarks("public.orders", first, behind, gaps, readings)


def compare(past: Past, asked: Asked, table: str, versions_of: str) -> int:
    """The fold of the history at each LSN is the table there. Returns at how many it was."""
    versions = asked(f"select {COLUMNS}, _key, _op, _xid, _from, _to, _from_ts, _to_ts, _current from {versions_of}")
    compared = 0
    for lsn, state in past.states.items():
        limit = cut(lsn).text()
        alive = [row for row in versions if row[6] <= limit and (row[7] is None or row[7] > limit)]
        try:
            require_answer(marks_of(asked, table, limit), cut(lsn))
        except UsageError:
            continue
        if any(row[4] == "gap" for row in alive):
            continue
        assert state is not None, f"{lsn} was answered, and the history cannot know it"
        assert {row[0]: row[1] for row in alive} == {number: one["status"] for number, one in state.items()}, lsn
        compared += 1
    by_key: dict[str, list[tuple[Any, ...]]] = {}
    for row in versions:
        by_key.setdefault(row[3], []).append(row)
    for some in by_key.values():
        some.sort(key=lambda row: row[6])
        assert sum(row[10] for row in some) <= 1
        for one, other in pairwise(some):
            assert one[6] < one[7] <= other[6], "versions of a row overlap"
    return compared


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=PASTS, begun=st.booleans(), seed=st.integers(0, 1000))
@example(steps=[("put", 1, "a"), ("commit",), ("too_large", 1, "L"), ("lose", 1, "P")], begun=False, seed=0)
def test_e6_the_fold_of_a_history_is_the_table_at_each_lsn(
    steps: list[tuple[Any, ...]], begun: bool, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    past = past_of(steps, begun)
    path = tmp_path_factory.mktemp("history") / "h.db"
    opened = open_sink(spec_for("sql", prefix="shop", options={"url": f"sqlite:///{path}"}))
    opened.sink.prepare(HISTORY)
    for records in deliveries(past.records, seed):
        assert not opened.sink.apply(sorted_events(records), BOOK).refused
    opened.sink.show()
    opened.close()
    database = sqlite3.connect(path)
    once = len({(one.pos, one.key) for one in past.records})

    def asked(text: str) -> list[tuple[Any, ...]]:
        return database.execute(text).fetchall()

    assert asked("select count(*) from public_orders__history") == [(once,)]
    compare(past, asked, "public_orders__history", "public_orders__scd2")
    database.close()


@pytest.mark.parametrize("store", ["delta", "postgres"], indirect=True)
def test_e6_each_store_folds_it_alike(store: Store) -> None:
    """By its own SQL: delta-rs's engine, and the view in Postgres."""
    found = []
    for seed in range(4):
        corner, chance = store.fresh(), random.Random(seed)
        past = past_of([chance.choice(SOME) for _ in range(30)], begun=True)
        opened = corner.open()
        opened.sink.prepare(HISTORY)
        for records in deliveries(past.records, seed):
            assert not opened.sink.apply(sorted_events(records), BOOK).refused
        opened.commit(Watermark(epoch=1, lsn=8))
        found.append(compare(past, *(in_delta(corner) if store.kind == "delta" else in_postgres(corner))))
    assert sum(found) > 15


SOME: list[tuple[Any, ...]] = [
    *(("put", number, status) for number in (1, 2, 3) for status in "ab"),
    *(("delete", 1), ("rekey", 2, 4), ("truncate",), ("read",), ("hurried", 3, "x"), ("too_large", 5, "L")),
    *(("lose", 1, "P"), ("commit",), ("commit",), ("commit",), ("commit",)),
]


def in_delta(store: Store) -> tuple[Asked, str, str]:
    assert store.spec is not None
    table = deltalake.DeltaTable(f"{store.spec.options['path']}/public/orders__history")
    engine = deltalake.QueryBuilder().register("kept", table)
    versions = load("sinks.warehouse", "history.sql")["versions"].format(columns=COLUMNS, table="kept")

    def asked(text: str) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in pa.table(engine.execute(text)).to_pylist()]

    return asked, "kept", f"({versions}) v"


def in_postgres(store: Store) -> tuple[Asked, str, str]:
    assert store.spec is not None
    schema = store.spec.options["db_schema"]

    def asked(text: str) -> list[tuple[Any, ...]]:
        engine = sa.create_engine(str(store.spec.options["url"]) if store.spec is not None else "")
        with engine.connect() as connection:
            found = [tuple(row) for row in connection.exec_driver_sql(text.replace("%", "%%"))]
        engine.dispose()
        return found

    return asked, f'"{schema}".orders__history', f'"{schema}".orders__scd2'


KEEPING = [
    *("memory", "delta", "postgres", "sqlite"),
    *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("delta-spark", "iceberg", "postgres-generic")),
]
each_store = pytest.mark.parametrize("store", KEEPING, indirect=True)
quick_stores = pytest.mark.parametrize("store", ["memory", "delta", "sqlite"], indirect=True)


@each_store
def test_each_record_is_a_row_once_and_stays_one(store: Store) -> None:
    feeding = remembered(store)
    more(feeding)
    assert feeding.kept() == feeding.truth()
    assert feeding.claims_all()
    feeding.end()
    # Read again from its beginning, as a store whose claim and places were lost.
    forget_claim(store)
    feeding.level()
    feeding.end()
    assert feeding.kept() == feeding.truth()


@quick_stores
def test_killed_at_each_write_it_has_each_row_once(store: Store) -> None:
    for number in range(60):
        corner = store.fresh()
        feeding = remembered(corner)
        feeding.end()
        feeding.mortal = number
        killed = False
        try:
            more(feeding)
        except Killed:
            killed = True
            feeding.mortal = None
            feeding.end()
            more(feeding)
        assert feeding.kept() == feeding.truth(), f"killed at write {number}"
        assert feeding.claims_all()
        feeding.end()
        if not killed:
            return
    raise AssertionError("the sink never comes to its end")


@pytest.mark.parametrize("store", ["delta"], indirect=True)
def test_a_table_restored_to_an_older_version_ends_whole(store: Store) -> None:
    assert store.spec is not None
    feeding = remembered(store)
    table = deltalake.DeltaTable(f"{store.spec.options['path']}/public/orders__history")
    before = table.version()
    more(feeding)
    table.update_incremental()
    table.restore(before)
    assert feeding.kept() != feeding.truth()
    for _ in range(2):  # each look is at one of the two tables
        feeding.rest()
    feeding.level()
    assert feeding.kept() == feeding.truth()
    assert feeding.claims_all()
    feeding.end()


@quick_stores
def test_rows_stay_where_the_topic_was_made_anew(store: Store) -> None:
    """Somebody deleted it. What the store has is nowhere else."""
    feeding = remembered(store)
    feeding.end()
    kept = feeding.kept()
    feeding.log.kafka_id = "another"
    feeding.log.others = Past(partitions=1, lsn=50)
    feeding.past.put(9, "ninth")
    feeding.past.commit()
    feeding.level()
    assert feeding.kept() == kept | feeding.truth()
    feeding.end()


@quick_stores
def test_e2_what_went_by_its_age_leaves_a_gap(store: Store) -> None:
    feeding = remembered(store)
    feeding.end()
    mark = feeding.claims()
    kept = feeding.kept()
    past = feeding.past
    past.put(5, "lost")
    past.commit()
    past.put(6, "there")
    past.commit()
    feeding.log.begin = past.records[-1].offset
    assert mark is not None
    for _ in range(2):
        feeding.level()
        feeding.end()
    gap = f"{Position(1, mark.lsn, 0xFFFFFFFF).text()}:%gap"
    assert feeding.kept() == kept | {gap: gap[:32], text_of(past.records[-1]): past.records[-1].pos}


@quick_stores
def test_e2_a_history_that_is_kept_late_lacks_its_beginning(store: Store) -> None:
    feeding = HistoryFeeding(store)
    feeding.past.put(1, "lost")
    feeding.past.commit()
    feeding.past.put(2, "there")
    feeding.log.begin = 1
    feeding.log.orders.upsert(order(1), at(1))
    feeding.level()
    feeding.end()
    assert sorted(feeding.kept()) == [f"{'0' * 32}:%gap", text_of(feeding.past.records[-1])]


@pytest.mark.parametrize("name", ["_op", "_from", "cdc_next"])
def test_a_column_with_a_name_of_the_history_s_holds_it(name: str) -> None:
    taken = history_shape(shape(column("id", "int8", key=1), column(name, "text")))
    sink = MemoryStore().open().sink
    with pytest.raises(CannotCarry, match=f"the table has a column {name}, and its history has one by that name"):
        sink.prepare(taken)


@pytest.mark.parametrize(
    ("since", "gap", "word"),
    [
        (None, None, "begins later"),
        (3, 5, "has a gap"),
        (3, 9, "has a gap"),
        (3, 3, ""),
        (3, 10, ""),
        (7, 5, ""),
    ],
)
def test_a_time_is_refused_where_changes_may_be_missing(since: int | None, gap: int | None, word: str) -> None:
    """The next commit has LSN 9. A gap below it, and behind what is known of the time, may hide changes before it."""

    def placed(lsn: int) -> str:
        return Position(1, lsn, 1).text()

    known, gaps = None if since is None else placed(since), [] if gap is None else [placed(gap)]
    with pytest.raises(UsageError, match=word) if word else nullcontext():
        require_known("public.t", known, gaps, Position(1, 9, 0), "noon")


def test_a_record_that_is_none_is_refused_alone() -> None:
    past = Past()
    past.put(1, "a")
    past.put(2, "b")
    past.records[0] = past.records[0]._replace(value=b'{"id":1}')
    done = MemoryStore().open().sink.apply(sorted_events(past.records), BOOK)
    assert [(one.reason, one.offset) for one in done.refused] == [("the value is not an envelope", 0)]
    assert done.applied == 1
