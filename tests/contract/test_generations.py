"""Generations of every kind of store: one filled beside another, the switch, the way back, and what is left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from cdc.record.progress import Watermark
from sinks.contract.generations import Generations, OpenGeneration, lower
from sinks.contract.kinds import beside, open_generations
from sinks.contract.port import CannotCarry, OpenSink
from sinks.contract.sink_spec import open_sink
from tests.contract import damage
from tests.contract.orders import SHAPES, order, statuses
from tests.contract.stores import Store
from tests.contract.topics import ORDERS, Topic, at, batch


def mark(offset: int) -> Watermark:
    return Watermark(epoch=1, lsn=offset, offsets={ORDERS.topic: {0: offset}})


@pytest.fixture
def generations(store: Store) -> Iterator[Generations]:
    if store.spec is None:
        pytest.skip("a store in memory is made anew by making another one")
    with closing(open_generations(store.spec)) as made:
        yield made


def filled(store: Store, offset: int, **rows: str) -> OpenSink:
    """The store as readers have it, after these rows were applied."""
    sink, topic = store.open(), Topic()
    fill(sink, topic, offset, **rows)
    return sink


def fill(sink: OpenSink, topic: Topic, offset: int, **rows: str) -> None:
    changes = [topic.upsert(order(int(name[1:]), status), at(offset)) for name, status in rows.items()]
    sink.sink.apply(batch(*changes), SHAPES)
    sink.commit(mark(offset))


def built(store: Store, number: int, offset: int, **rows: str) -> None:
    """A generation, filled beside the one in use."""
    assert store.spec is not None
    sink = open_sink(beside(store.spec, number))
    fill(sink, Topic(), offset, **rows)
    sink.close()


def test_readers_see_the_old_generation_until_the_switch(store: Store, generations: Generations) -> None:
    old = filled(store, 5, k1="old", k2="only old")
    built(store, 2, 7, k1="new", k3="only new")
    assert generations.in_use() == 1
    assert statuses(old) == {"1": "old", "2": "only old"}
    assert old.current()
    generations.keep(1, [ORDERS])
    generations.switch(2, [ORDERS])
    assert generations.in_use() == 2
    now = store.open()
    assert statuses(now) == {"1": "new", "3": "only new"}
    assert now.watermarks.read() == mark(7)
    assert now.current() and not old.current()


@pytest.mark.by_spark("iceberg")
def test_a_switch_may_be_repeated_and_taken_back(store: Store, generations: Generations) -> None:
    filled(store, 5, k1="old", k2="only old")
    built(store, 2, 7, k1="new", k3="only new")
    generations.keep(1, [ORDERS])
    for _ in range(2):
        generations.switch(2, [ORDERS])
    fill(store.open(), Topic(), 9, k3="changed since")
    generations.switch(2, [ORDERS])
    assert statuses(store.open())["3"] == "changed since", "a switch that is over takes nothing back (hazard H541)"
    generations.switch(1, [ORDERS])
    back = store.open()
    assert generations.in_use() == 1
    assert statuses(back) == {"1": "old", "2": "only old"}
    assert back.watermarks.read() == mark(5)
    fill(back, Topic(), 11, k1="goes on")
    assert statuses(store.open())["1"] == "goes on"


@pytest.mark.by_spark("iceberg")
def test_what_is_kept_can_be_removed_and_the_one_in_use_stays(store: Store, generations: Generations) -> None:
    filled(store, 5, k1="old")
    built(store, 2, 7, k1="new")
    generations.keep(1, [ORDERS])
    generations.switch(2, [ORDERS])
    generations.discard(1, [ORDERS])
    assert store.spec is not None
    gone = open_sink(beside(store.spec, 1))
    assert gone.watermarks.read() is None
    assert list(gone.reader.scan(ORDERS)) == []
    gone.close()
    assert generations.in_use() == 2
    assert statuses(store.open()) == {"1": "new"}
    generations.discard(9, [ORDERS])


def test_an_open_store_follows_the_switch_with_its_next_batch(store: Store, generations: Generations) -> None:
    if store.kind not in ("redis", "opensearch", "folder"):
        pytest.skip("written by the driver alone")
    task = store.open(parallel=True)
    fill(task, Topic(), 5, k1="old")
    built(store, 2, 7, k1="new")
    generations.switch(2, [ORDERS])
    task.sink.apply(batch(Topic().upsert(order(2, "after"), at(9))), SHAPES)
    task.sink.show()
    assert statuses(store.open()) == {"1": "new", "2": "after"}


def test_the_watermark_of_two_stores_is_the_lower_one() -> None:
    one = Watermark(epoch=1, lsn=9, offsets={"a": {0: 5, 1: 2}, "b": {0: 1}})
    other = Watermark(epoch=1, lsn=7, offsets={"a": {0: 3, 1: 4}})
    assert lower(one, other) == Watermark(epoch=1, lsn=7, offsets={"a": {0: 3, 1: 2}})
    assert lower(one, None) == one


def test_a_given_generation_is_always_the_one_in_use() -> None:
    class Notes:
        """Notes that say 3."""

        def read(self) -> dict[str, bytes]:
            return {"generation": b"3"}

        def write(self, name: str, text: bytes) -> None: ...

    assert OpenGeneration(Notes(), 2, shared=True).current()
    assert not OpenGeneration(Notes(), 2, shared=True).look()
    assert OpenGeneration(Notes(), None, shared=True).number == 3


def test_h100_a_switch_makes_a_place_anew_that_takes_nothing(store: Store, generations: Generations) -> None:
    """A rebuild is the way out for a table that somebody put a column of their own into, which may not be null."""
    if store.kind not in ("postgres", "sqlite"):
        pytest.skip("a column that may not be null is one of SQL")
    used = filled(store, 1, n1="old")
    used.close()
    table = damage.sql_table(store)
    damage.execute(store, f"alter table {table} add column mine int not null default 0")
    if store.kind == "postgres":
        damage.execute(store, f"alter table {table} alter column mine drop default")
        with pytest.raises(CannotCarry, match="column mine"):
            store.open().sink.prepare(ORDERS)
    assert store.spec is not None
    new = open_sink(beside(store.spec, 2))
    fill(new, Topic(), 2, n1="new", n2="new")
    new.close()
    generations.switch(2, [ORDERS])
    again = store.open()
    again.sink.prepare(ORDERS)
    assert statuses(again) == {"1": "new", "2": "new"}
