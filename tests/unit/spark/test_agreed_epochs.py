"""A store claims no epoch, and is swept below none, that began below what it has read as an earlier one (H231)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pyarrow as pa
import pytest

from cdc.clock import SYSTEM_CLOCK
from cdc.epochs import EpochsState
from cdc.progress import Progress, Watermark
from cdc.wire.records import Span
from spark.fanout import FanOut, Lane
from spark.known_epochs import SnapshotAgain
from spark.query_run import Engine
from spark.sink_metrics import Metrics
from spark.store_thread import Store
from spark.sweeps import agreed
from spark.translate import TaskNotes, TaskTranslation, Version
from spark.watermark import Claim, LogEnds, LogView
from tests.unit.spark.noted_store import Noted
from tests.unit.spark.records import TOPIC, KafkaRecord, records_of
from tests.unit.spark.test_batch import batch_of
from tests.unit.spark.test_fanout import content_of
from tests.unit.spark.test_query import cared_for
from tests.unit.spark.test_store import at, row
from tests.unit.spark.test_sweeps import over, second

HELD = "shop.public.held"


def begun(offset: int) -> EpochsState:
    """The second epoch, from an offset on."""
    return EpochsState().begin({TOPIC: {0: offset}}).settled()


@pytest.fixture
def bench() -> Iterator[Noted]:
    made = Noted()
    made.view.note_ends(LogEnds(1.0, {TOPIC: {0: 0}}))
    yield made
    for store in made.stores:
        store.end()


def settle(store: Store, end: int, noted: int, *records: KafkaRecord) -> None:
    """A batch whose records got their positions when this epoch was the newest."""
    store.run(partial(store.settle, records_of(*records), at(end)._replace(noted=noted)))


def mark(bench: Noted) -> Watermark:
    found = bench.watermark
    assert found is not None
    return found


def test_h231_a_store_at_rest_goes_back_before_it_claims(bench: Noted) -> None:
    """Another program notes an epoch that begins below the store's place. It goes back once, and then rests."""
    store = bench.begun()
    settle(store, 9, 1, row(1, 0), row(2, 7))
    bench.facts.noted = begun(6)
    bench.view.note_progress([over(9)])
    bench.rest(store)
    assert [type(store.fault)] == [SnapshotAgain]
    assert (bench.status(1), bench.status(2), mark(bench).epoch) == ("new", "new", 1)
    assert store.run(store.begin) == {TOPIC: {0: 6}}
    settle(store, 9, 2, second(2, 7))
    assert (bench.status(1), bench.status(2), mark(bench).epoch) == (None, "again", 2)
    for _ in range(3):
        bench.rest(store, 2.0)
    assert store.fault is None
    assert store.run(store.begin) == {TOPIC: {0: 9}}


def test_h231_an_epoch_that_was_read_as_such_is_claimed(bench: Noted) -> None:
    """The store is beyond its beginning as well, and has nothing to read again."""
    store = bench.begun()
    settle(store, 5, 1, row(1, 0))
    bench.facts.noted = begun(5)
    settle(store, 9, 2, second(2, 7))
    bench.view.note_progress([over(9)])
    bench.rest(store)
    assert store.fault is None
    assert (bench.status(1), bench.status(2), mark(bench).epoch) == (None, "again", 2)


@pytest.mark.parametrize(("offset", "goes_back"), [(6, True), (9, False)])
def test_h231_a_runs_first_batch_is_read_by_newer_notes(bench: Noted, offset: int, goes_back: bool) -> None:
    """What was read before the run began bears the number that was the newest then."""
    store = bench.begun()
    settle(store, 9, 1, row(1, 0), row(2, 7))
    store = bench.begun()
    bench.facts.noted = begun(offset)
    bench.view.note_progress([over(12)])
    if goes_back:
        with pytest.raises(SnapshotAgain):
            settle(store, 12, 2, second(3, 11))
    else:
        settle(store, 12, 2, second(3, 11))
    assert bench.status(2) == ("new" if goes_back else None)


def test_h231_a_batch_read_before_the_note_claims_nothing(bench: Noted) -> None:
    store = bench.begun()
    bench.facts.noted = begun(6)
    bench.view.note_progress([over(9)])
    with pytest.raises(SnapshotAgain):
        settle(store, 9, 1, row(1, 0), row(2, 7))
    assert (bench.status(2), bench.watermark) == ("new", None)


@pytest.mark.parametrize(("judges", "noted"), [(True, 0), (False, 0), (False, 1)])
def test_h231_records_that_bear_their_epoch_are_not_asked_about(judges: bool, noted: int) -> None:
    """Where we capture the records say it themselves, and the store is beyond an epoch's beginning when it claims.

    Where Debezium could be handed the topics, or had them before, that is so as well. A run may begin with its records.
    """
    bench = Noted(view=LogView(judges=judges), ours=True)
    bench.view.note_ends(LogEnds(1.0, {TOPIC: {0: 0}}))
    store = bench.begun()
    settle(store, 5, noted, row(1, 0))
    bench.facts.noted = begun(5)
    settle(store, 9, noted, second(2, 7))
    bench.view.note_progress([over(9, reread=False)])
    bench.rest(store)
    assert (store.fault, mark(bench).epoch) == (None, 2)
    store.end()


def test_h231_documents_of_a_view_bear_their_epoch(bench: Noted) -> None:
    """The view's runner has read its tables in the new epoch, and its documents stand beyond the beginning."""
    bench.facts.views = {TOPIC: "view.orders"}
    store = bench.begun()
    settle(store, 5, 0, row(1, 0))
    bench.facts.noted = begun(5)
    settle(store, 9, 0, second(2, 7))
    bench.view.note_progress([Progress(epoch=2, lsn=64, offsets={})])
    bench.view.note_views([over(9)])
    bench.rest(store)
    assert (store.fault, mark(bench).epoch) == (None, 2)
    assert store.run(store.begin) == {TOPIC: {0: 9}}


def test_h231_a_view_beside_a_table_lets_the_table_be_compared() -> None:
    known = EpochsState().begin({TOPIC: {0: 6}, HELD: {0: 3}})
    before = Claim({TOPIC: {0: 6}, HELD: {0: 9}}, 0.0, 1)
    wanted = Watermark(epoch=2, lsn=8, offsets=before.offsets)
    assert agreed(before, before, wanted, {}, lambda: known, {HELD}).noted == 2
    with pytest.raises(SnapshotAgain):
        agreed(before, before, wanted, {}, lambda: known, {TOPIC})


@pytest.mark.parametrize(
    ("before", "at", "claimed", "due", "noted"),
    [
        (Claim({TOPIC: {0: 9}}, 0.0, 1), Claim({TOPIC: {0: 9}}, 0.0, 1), 1, {}, 1),
        (Claim({TOPIC: {0: 6}}, 0.0, 1), Claim({TOPIC: {0: 6}}, 0.0, 1), 2, {}, 2),
        (Claim({TOPIC: {0: 9}}, 0.0, 1), Claim({TOPIC: {0: 9}}, 0.0, 1), 2, {}, None),
        # A sweep may be due while no LSN is proven.
        (Claim({TOPIC: {0: 9}}, 0.0, 1), Claim({TOPIC: {0: 9}}, 0.0, 1), 1, {TOPIC: 2}, None),
        (Claim({TOPIC: {0: 6}}, 0.0, 1), Claim({TOPIC: {0: 9}}, 0.0, 2), 2, {}, 2),
        (Claim({TOPIC: {0: 6}}, 0.0, 1), Claim({TOPIC: {0: 9}}, 0.0, 1), 2, {}, None),
        (Claim({TOPIC: {0: 7}}, 0.0, 1), Claim({TOPIC: {0: 9}}, 0.0, 2), 1, {}, None),
        # What a query of several stores read before the note comes behind a look of this one.
        (Claim({TOPIC: {0: 6}}, 0.0, 2), Claim({TOPIC: {0: 9}}, 0.0, 1), 2, {}, None),
        # A batch of no record, or of ours alone, says nothing.
        (Claim({TOPIC: {0: 6}}, 0.0, 2), Claim({TOPIC: {0: 9}}, 0.0, 0), 2, {}, 2),
        # The place of a held table, which the batch lacks and the watermark has.
        (Claim({HELD: {0: 4}, TOPIC: {0: 6}}, 0.0, 1), Claim({TOPIC: {0: 9}}, 0.0, 2), 2, {}, None),
        (Claim({HELD: {0: 3}, TOPIC: {0: 6}}, 0.0, 1), Claim({TOPIC: {0: 9}}, 0.0, 2), 2, {}, 2),
        # Progress that is ahead of the notes is asked about once.
        (Claim({TOPIC: {0: 6}}, 0.0, 2), Claim({TOPIC: {0: 9}}, 0.0, 2), 3, {}, 3),
    ],
)
def test_h231_a_place_agrees_with_what_is_claimed(
    before: Claim, at: Claim, claimed: int, due: dict[str, int], noted: int | None
) -> None:
    known = EpochsState().begin({TOPIC: {0: 6}, HELD: {0: 3}})
    wanted = Watermark(epoch=claimed, lsn=8, offsets={**before.offsets, **at.offsets})
    if noted is None:
        with pytest.raises(SnapshotAgain, match="another epoch has begun"):
            agreed(before, at, wanted, due, lambda: known)
        return
    found = agreed(before, at, wanted, due, lambda: known)
    assert found == at._replace(offsets=wanted.offsets, noted=noted)

    def asked() -> EpochsState:
        raise AssertionError("nothing is new")

    assert agreed(found, found, wanted, due, asked) == found


@dataclass
class ByNotes:
    """Implements :class:`spark.micro_batch.Translate`: leaves records as they are, and says which epoch was noted."""

    noted: int

    def __call__(self, records: pa.Table) -> pa.Table:
        return records

    def for_tasks(self, spans: Iterable[Span]) -> TaskTranslation:
        raise NotImplementedError

    def decide(self, told: TaskNotes) -> frozenset[Version]:
        raise NotImplementedError

    def go_on(self, told: TaskNotes) -> None:
        raise NotImplementedError


def test_h231_a_query_says_by_which_notes_it_has_read(bench: Noted, tmp_path: Path) -> None:
    query = cared_for(bench, tmp_path)
    query.store.run(query.store.begin)
    query._deliver(batch_of([row(1, 0), row(2, 7)], {0: 9})._replace(translate=ByNotes(1)))
    bench.facts.noted = begun(6)
    with pytest.raises(SnapshotAgain):
        query._deliver(batch_of([second(3, 11)], {0: 12}, {0: 9})._replace(translate=ByNotes(2)))


def test_h231_a_shared_query_says_by_which_notes_it_read(bench: Noted) -> None:
    store = bench.begun()
    settle(store, 9, 1, row(1, 0), row(2, 7))
    bench.facts.noted = begun(6)
    fan_out = FanOut({}, cast(Engine, SimpleNamespace(clock=SYSTEM_CLOCK, metrics=Metrics())))
    batch = batch_of([second(3, 11)], {0: 12}, {0: 9})._replace(translate=ByNotes(2))
    content = fan_out._content(batch, 1.0, records=records_of(second(3, 11)))
    lane = Lane(store, 1000)
    lane._waiting.extend([content_of(9, second(3, 9)), content])
    joined = lane.take()
    assert joined is not None and joined.noted == content.noted == 2
    assert isinstance(store.submit(partial(fan_out._settle, store, content)).exception(), SnapshotAgain)
