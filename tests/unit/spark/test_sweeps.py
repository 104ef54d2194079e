"""Rows that a new epoch does not speak of leave the store once its reading is over, and no sooner (H123)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.epochs import EpochsState
from cdc.position import Position
from cdc.progress import Hold, Progress, Watermark
from cdc.topic import TableName
from sinks.batch import Event
from sinks.batch_plan import event_rows
from sinks.table_shapes import SchemaBook
from spark.ports import SinkTopics
from spark.sweeps import Sweeps, floors_of, said
from spark.watermark import Claim, LogEnds, LogView
from tests.unit.spark.doubles import orders
from tests.unit.spark.records import TOPIC, KafkaRecord
from tests.unit.spark.test_store import Bench, row

HERE = SinkTopics(ids={TOPIC: "id1"}, partitions={TOPIC: 1}, compaction_lag_s=60.0)
OTHER = "shop.public.others"
OTHERS = replace(orders(), table=TableName("public", "others"), topic=OTHER)
CLAIMED = Watermark(epoch=2, lsn=1, offsets={TOPIC: {0: 5}})


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    made.view.note_ends(LogEnds(1.0, {TOPIC: {0: 0}}))
    yield made
    for store in made.stores:
        store.end()


def second(number: int, offset: int) -> KafkaRecord:
    """A row of the snapshot that began the second epoch."""
    one = row(number, offset, status="again")
    return one._replace(headers=[("pos", Position(2, 0, 0).text().encode()), ("op", b"r"), ("ver", b"1")])


def over(end: int, *, epoch: int = 2, reread: bool = True) -> Progress:
    return Progress(epoch=epoch, lsn=64, offsets={TOPIC: {0: end}}, reread=reread)


def test_h123_what_a_new_snapshot_does_not_hold_is_swept(bench: Bench) -> None:
    store = bench.begun()
    bench.settle(store, 3, row(1, 0), row(2, 1), row(3, 2))
    bench.settle(store, 5, second(1, 3), second(2, 4))
    assert bench.status(3) == "new"  # the snapshot may go on
    bench.view.note_progress([over(5)])
    bench.settle(store, 6, second(4, 5))
    assert [bench.status(number) for number in (1, 2, 3, 4)] == ["again", "again", None, "again"]
    mark = bench.watermark
    assert mark is not None and mark.epoch == 2


def test_h123_nothing_is_swept_before_the_snapshot_is_whole(bench: Bench) -> None:
    store = bench.begun()
    bench.settle(store, 3, row(1, 0), row(2, 1))
    bench.view.note_progress([over(9)])
    bench.settle(store, 8, second(1, 3))
    assert bench.status(2) == "new"
    bench.settle(store, 9, second(2, 8))
    assert bench.status(2) == "again"


@pytest.mark.parametrize("said", [over(5, reread=False), over(5, epoch=1)])
def test_h123_an_epoch_without_a_reading_sweeps_nothing(bench: Bench, said: Progress) -> None:
    store = bench.begun()
    bench.settle(store, 3, row(1, 0))
    bench.view.note_progress([said])
    bench.settle(store, 5, second(2, 4))
    assert bench.status(1) == "new"


def test_h123_a_store_that_was_filled_late_is_swept_too(bench: Bench) -> None:
    """A rebuild reads the records of epochs before, which compaction keeps where no tombstone came."""
    bench.view.note_progress([over(5)])
    bench.settle(bench.begun(), 5, row(1, 0), second(2, 4))
    assert (bench.status(1), bench.status(2)) == (None, "again")


def test_h123_a_sweep_cut_short_is_made_at_the_next_start(bench: Bench) -> None:
    store = bench.begun()
    bench.settle(store, 3, row(1, 0), row(2, 1))
    store.end()
    bench.view.note_progress([over(5)])
    bench.settle(bench.begun(), 5, second(2, 4))
    assert (bench.status(1), bench.status(2)) == (None, "again")


@given(st.booleans(), st.integers(0, 3), st.integers(0, 12), st.integers(1, 12))
def test_h123_sweeps_are_due_once_and_only_when_passed(whole: bool, held_epoch: int, offset: int, end: int) -> None:
    view, sweeps = LogView(), Sweeps()
    view.note_ends(LogEnds(1.0, {TOPIC: {0: 0}}))
    view.note_progress([over(end, epoch=3, reread=whole)])
    sweeps.begin(Watermark(epoch=held_epoch, lsn=8, offsets={TOPIC: {0: 0}}) if held_epoch else None)
    due = sweeps.due(view, Claim({TOPIC: {0: offset}}, 1.0), HERE)
    assert bool(due) == (whole and held_epoch < 3 and offset >= end)
    sweeps.done(due)
    assert not due or not sweeps.due(view, Claim({TOPIC: {0: offset}}, 1.0), HERE)


def test_h123_a_topic_that_no_progress_names_is_never_swept() -> None:
    view, other = LogView(), SinkTopics(ids={"t2": "id2"}, partitions={"t2": 1})
    view.note_ends(LogEnds(1.0, {"t2": {0: 0}}))
    view.note_progress([over(5)])
    assert Sweeps().due(view, Claim({"t2": {0: 99}}, 1.0), other) == {}


def test_h123_a_store_reads_an_epoch_from_its_beginning(bench: Bench) -> None:
    """A snapshot that began anew was noted behind what the store had read of it already."""
    store = bench.begun()
    bench.settle(store, 9, row(1, 0), row(2, 7))
    store.end()
    bench.facts.noted = EpochsState().begin({TOPIC: {0: 6}}, "second")
    again = bench.begun()
    assert again.starts == {TOPIC: {0: 6}}
    mark = bench.watermark
    assert mark is not None and mark.offsets == {TOPIC: {0: 6}}
    bench.view.note_progress([over(9)])
    bench.settle(again, 9, second(2, 7))
    assert (bench.status(1), bench.status(2)) == (None, "again")
    claimed = bench.watermark
    assert claimed is not None and (claimed.epoch, claimed.epoch_id) == (2, "second")
    assert bench.begun().starts == {TOPIC: {0: 9}}  # the epoch is claimed: no further way back


def test_h123_an_epoch_taken_over_behind_a_swept_one_stays() -> None:
    view, sweeps = LogView(), Sweeps()
    view.note_ends(LogEnds(1.0, {TOPIC: {0: 0}}))
    view.note_progress([over(5), over(9, epoch=3, reread=False)])
    assert sweeps.due(view, Claim({TOPIC: {0: 9}}, 1.0), HERE) == {}
    assert sweeps.due(view, Claim({TOPIC: {0: 5}}, 1.0), HERE) == {TOPIC: 2}


@pytest.mark.parametrize(
    ("shown", "due"),
    [
        (CLAIMED, False),
        (None, True),
        (replace(CLAIMED, lsn=0), True),
        (replace(CLAIMED, epoch=1), True),
        (replace(CLAIMED, offsets={OTHER: {0: 5}}), True),
        (replace(CLAIMED, held={TOPIC: Hold(table="public.orders")}), True),
    ],
)
def test_h123_a_store_that_claims_an_lsn_of_an_epoch_is_swept(shown: Watermark | None, due: bool) -> None:
    """But for tables that it holds, or has not read: of those it shows what it showed before."""
    view, sweeps = LogView(), Sweeps()
    view.note_ends(LogEnds(1.0, {TOPIC: {0: 0}}))
    view.note_progress([over(5)])
    sweeps.begin(CLAIMED)
    sweeps.begin(shown)
    assert sweeps.due(view, Claim({TOPIC: {0: 5}}, 1.0), HERE) == ({TOPIC: 2} if due else {})


def test_h123_a_swept_epoch_is_not_due_while_the_next_is_read() -> None:
    view, sweeps = LogView(), Sweeps()
    view.note_ends(LogEnds(1.0, {TOPIC: {0: 0}}))
    view.note_progress([over(5), over(9, epoch=3)])
    sweeps.done({TOPIC: 2})
    assert sweeps.due(view, Claim({TOPIC: {0: 8}}, 1.0), HERE) == {}
    assert sweeps.due(view, Claim({TOPIC: {0: 9}}, 1.0), HERE) == {TOPIC: 3}


def test_h123_a_floor_is_above_old_epochs_and_not_its_own() -> None:
    """In the newest shape: it says what the columns of the store's table are. A topic without a shape has no rows."""
    book = SchemaBook([orders(), orders(2, extra=("note",)), OTHERS])
    [floor] = event_rows(floors_of({TOPIC: 2, "shop.public.shapeless": 2}, book))
    pos = Position(2, 0, 0).text()
    assert floor == Event(TOPIC, 0, 0, b'{"__truncate":"public.orders"}', None, pos, "t", 2)
    assert Position(1, 2**56 - 1, 2**32 - 1).text() < pos


def test_the_swept_tables_are_named_in_order() -> None:
    book = SchemaBook([OTHERS, orders(), orders(2, extra=("note",))])
    assert said([OTHER, TOPIC], book) == "public.orders,public.others"
    assert said([OTHER], book) == "public.others"
