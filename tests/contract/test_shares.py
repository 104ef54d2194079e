"""Several applications feed one store, each its share of the tables: over every kind of store that takes them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace

import pytest

from cdc.errors import ActiveError, CdcError, ConfigError, Retry
from cdc.progress import SharedWatermark, Watermark
from cdc.schema import TableSchema
from cdc.shares import Share, owner
from sinks.kinds import beside, open_generations, open_store_notes
from sinks.notes import TableFloor
from sinks.port import OpenSink
from sinks.registry import SinkSpec, open_sink
from sinks.shared_notes import change
from spark.outage import persist
from tests.contract.conftest import SHARED, spec_of_kind
from tests.contract.orders import order, statuses
from tests.contract.topics import ORDERS, Shapes, Topic, at, batch, shape
from tests.waiting import TIME_SCALE


def beside_orders() -> TableSchema:
    """A table that another share of two has."""
    every = [shape(*ORDERS.columns, table=f"lines{n}") for n in range(9)]
    return next(table for table in every if owner(table.topic, 2) != owner(ORDERS.topic, 2))


LINES = beside_orders()
TABLES = {owner(table.topic, 2): table for table in (ORDERS, LINES)}
SHAPES = Shapes(ORDERS, LINES)


@pytest.fixture(params=[kind for kind in SHARED if kind != "memory"])
def spec(request: pytest.FixtureRequest) -> SinkSpec:
    """An empty corner of each store in turn."""
    found = spec_of_kind(request, request.param)
    assert found is not None
    return found


@contextmanager
def application(spec: SinkSpec, number: int, count: int = 2) -> Iterator[OpenSink]:
    with closing(open_sink(replace(spec, share=Share(number, count), leads=True))) as opened:
        yield opened


def mark(table: TableSchema, offset: int) -> Watermark:
    return Watermark(epoch=1, lsn=offset, offsets={table.topic: {0: offset}}, topic_ids={table.topic: "id"})


def shown(spec: SinkSpec) -> Watermark:
    with closing(open_sink(spec)) as opened:
        found = opened.watermarks.read()
    assert found is not None
    return found


def feed(opened: OpenSink, table: TableSchema, offset: int) -> None:
    """A row, and the word that it is shown."""
    opened.sink.apply(batch(Topic(table).upsert(order(offset), at(offset))), SHAPES)
    opened.commit(mark(table, offset))


def test_each_application_has_a_watermark_of_its_own(spec: SinkSpec) -> None:
    with application(spec, 1) as one, application(spec, 2) as two:
        feed(one, TABLES[1], 5)
        assert shown(spec).lsn == 0
        feed(two, TABLES[2], 7)
        for opened, number, offset in ((one, 1, 5), (two, 2, 7)):
            assert opened.watermarks.read() == mark(TABLES[number], offset)
        whole = shown(spec)
        assert isinstance(whole, SharedWatermark)
        assert (whole.lsn, [part.lsn for part in whole.parts]) == (5, [5, 7])
        assert set(whole.topic_ids) == {ORDERS.topic, LINES.topic}
        one.sink.close()
    with application(spec, 1) as again:
        assert again.watermarks.read() == mark(TABLES[1], 5)


def test_h370_another_number_is_refused(spec: SinkSpec) -> None:
    with application(spec, 1) as one:
        feed(one, TABLES[1], 5)
    wrong = pytest.raises(ActiveError, match="fed in 2 shares, and this application is share 1/3")
    with wrong, application(spec, 1, 3) as other:
        other.watermarks.read()
    wrong = pytest.raises(ActiveError, match="fed in 2 shares, and this application feeds all tables")
    with wrong, closing(open_sink(replace(spec, leads=True))) as every:
        every.watermarks.read()


def test_h371_the_number_changes_and_nothing_is_lost(spec: SinkSpec) -> None:
    with application(spec, 1) as one, application(spec, 2) as two:
        feed(one, TABLES[1], 5)
        feed(two, TABLES[2], 7)
        before = shown(spec)
        with closing(open_store_notes(spec)) as opened:
            for count in (1, 2, 1):
                moved = change(opened.notes, count)
                assert moved is not None
                assert (moved.offsets, moved.lsn, len(moved.parts)) == (before.offsets, 5, count)
                assert shown(spec) == moved
        for number, late in ((1, one), (2, two)):
            with pytest.raises(ActiveError):
                late.commit(mark(TABLES[number], 99))
    assert shown(spec).lsn == 5
    with closing(open_sink(replace(spec, leads=True))) as whole:
        found = whole.watermarks.read()
        assert found is not None
        whole.sink.apply(batch(Topic(LINES).upsert(order(9), at(9))), SHAPES)
        whole.commit(replace(found, lsn=9))
    assert shown(spec).lsn == 9


def test_a_share_that_lost_its_place_forgets_its_own(spec: SinkSpec) -> None:
    with application(spec, 1) as one, application(spec, 2) as two:
        feed(one, TABLES[1], 5)
        feed(two, TABLES[2], 7)
        one.watermarks.forget()  # type: ignore[attr-defined]
        forgotten = one.watermarks.read()
        assert forgotten is not None and (forgotten.lsn, forgotten.offsets) == (0, {})
        assert two.watermarks.read() == mark(TABLES[2], 7)
        assert shown(spec).lsn == 0
        feed(one, TABLES[1], 6)
        assert shown(spec).lsn == 6


def test_h365_applications_that_begin_at_once(spec: SinkSpec) -> None:
    """In an empty store, each with a connection of its own, writing all the time."""

    def run(number: int) -> int:
        done = 0
        with application(spec, number) as opened:
            for offset in range(1, 16):
                _until_done(opened, number, offset)
                done = offset
        return done

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(run, (1, 2))) == [15, 15]
    whole = shown(spec)
    assert [part.offsets for part in whole.parts] == [{TABLES[n].topic: {0: 15}} for n in (1, 2)]
    with closing(open_sink(spec)) as opened:
        assert len(statuses(opened)) == 15


def _until_done(opened: OpenSink, number: int, offset: int) -> None:
    """As the thread of a store does: again where the store was away for a moment."""
    persist(lambda: feed(opened, TABLES[number], offset), halt=threading.Event(), timeout_s=30 * TIME_SCALE)


def test_a_rebuild_of_a_store_that_was_in_shares(spec: SinkSpec) -> None:
    """Back to one application, a generation beside, the switch, shares again, and the way back."""
    with application(spec, 1) as one, application(spec, 2) as two:
        feed(one, TABLES[1], 5)
        feed(two, TABLES[2], 7)
    with closing(open_store_notes(spec)) as opened:
        change(opened.notes, 1)
    with closing(open_sink(beside(spec, 2))) as new:
        for table in (ORDERS, LINES):
            new.sink.apply(batch(Topic(table).upsert(order(9), at(9))), SHAPES)
        new.commit(replace(mark(ORDERS, 9), offsets={t.topic: {0: 9} for t in (ORDERS, LINES)}))
    with closing(open_generations(spec)) as generations:
        generations.keep(1, [ORDERS, LINES])
        generations.switch(2, [ORDERS, LINES])
        with closing(open_store_notes(spec)) as opened:
            moved = change(opened.notes, 2)
        assert moved is not None and [part.lsn for part in moved.parts] == [9, 9]
        with application(spec, 1) as one:
            feed(one, TABLES[1], 11)
        assert [part.lsn for part in shown(spec).parts] == [11, 9]
        with closing(open_store_notes(spec)) as opened:
            change(opened.notes, 1)
        generations.switch(1, [ORDERS, LINES])
    back = shown(spec)
    assert (back.lsn, len(back.parts)) == (5, 1)
    with closing(open_store_notes(spec)) as opened:
        change(opened.notes, 2)
    with application(spec, 2) as two:
        feed(two, TABLES[2], 13)
    assert [part.lsn for part in shown(spec).parts] == [5, 13]


def test_two_of_one_share_see_each_other(spec: SinkSpec) -> None:
    with application(spec, 1) as one, application(spec, 1) as same:
        feed(one, TABLES[1], 5)
        feed(same, TABLES[1], 6)
        assert one.watermarks.read() == mark(TABLES[1], 6)


def test_refusals_are_not_repeated(spec: SinkSpec) -> None:
    with application(spec, 1) as one:
        feed(one, TABLES[1], 5)
        with closing(open_store_notes(spec)) as opened:
            change(opened.notes, 1)
        with pytest.raises(CdcError) as refused:
            feed(one, TABLES[1], 6)
    assert refused.value.retry is Retry.NEVER
    assert "cdc share SINK 2" in refused.value.hint


def test_h366_a_name_that_another_application_s_table_has(spec: SinkSpec) -> None:
    """Tables of two schemas have one name where the warehouse's schema is given."""
    namesakes = [shape(*ORDERS.columns, schema=f"s{n}", table="orders") for n in range(9)]
    other = next(table for table in namesakes if owner(table.topic, 2) != owner(ORDERS.topic, 2))
    shapes = Shapes(ORDERS, other)
    ours, theirs = (owner(table.topic, 2) for table in (ORDERS, other))
    with application(spec, ours) as one, application(spec, theirs) as two:
        one.sink.apply(batch(Topic(ORDERS).upsert(order(1, "ours"), at(1))), shapes)
        one.commit(mark(ORDERS, 1))
        row = batch(Topic(other).upsert(order(1, "theirs"), at(2)))
        if spec.kind != "sql":
            two.sink.apply(row, shapes)
        else:
            with pytest.raises(ConfigError, match="would share the table orders of the warehouse"):
                two.sink.apply(row, shapes)
    with closing(open_sink(spec)) as opened:
        assert statuses(opened) == {"1": "ours"}


def test_h364_a_note_replaces_the_one_before_it(spec: SinkSpec) -> None:
    """Of a sweep that is over nothing stays: it would take a floor down, once later marks make it whole."""
    name, before = 'floor:["public","orders"]', TableFloor(sweeps={"a": (4, frozenset({0, 1}))})
    with closing(open_store_notes(spec)) as opened:
        for floor in (before, TableFloor(floor="b", sweeps={"c": (4, frozenset({2}))}), TableFloor(floor="c")):
            opened.notes.write(name, floor.to_json())
            opened.notes.write("another", b'{"x":1}')
            assert TableFloor.from_json(opened.notes.read()[name]) == floor
