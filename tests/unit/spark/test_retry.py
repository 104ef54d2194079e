"""Dead letters tried again and dropped while the store is fed: in order, over crashes, with nothing overtaken."""

from __future__ import annotations

import random
from collections.abc import Iterator

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc.process.errors import SinkError
from cdc.wire.dead_letter import DeadLetter, Orders, Parked, Why, order, waiting
from spark.records.source import parse
from spark.stores.apply import Outcome, behind_letters, events_of_letters
from spark.stores.store_thread import Store
from spark.stores.watermark import LogEnds
from tests.examples import examples
from tests.unit.spark.doubles import MemoryDead
from tests.unit.spark.records import TOPIC, records_of
from tests.unit.spark.test_store import TABLE, Bench, at, row
from tests.waiting import wait_until


@pytest.fixture
def made() -> Iterator[Bench]:
    bench = Bench()
    bench.view.note_ends(LogEnds(1.0, {TOPIC: {0: 0}}))
    yield bench
    for store in bench.stores:
        store.end()


def ask(bench: Bench, why: Why, identity: str = "id1") -> list[DeadLetter]:
    """What ``cdc dead retry`` or ``drop`` writes: an order for each parked key."""
    last = {(one.topic, one.key): one for one in waiting(bench.dead.letters) if one.parks}
    orders = [order(one, why, f"{identity}-{number}") for number, one in enumerate(last.values())]
    bench.dead.write(orders)
    return orders


def heard(bench: Bench, store: Store) -> None:
    """The store hears of what is new, and has dealt with it."""
    store.hear(list(bench.dead.letters))
    store.run(lambda: None)


def answers(bench: Bench) -> list[tuple[Why, int]]:
    return [(one.why, one.offset) for one in bench.dead.letters if one.why in (Why.RELEASED, Why.HELD)]


def test_h67_a_retry_applies_the_queue_in_order_then_events_flow(made: Bench) -> None:
    made.memory.refuse = frozenset({"2"})
    store = made.begun()
    made.settle(store, 9, row(2, 7, status="a"), row(1, 8))
    made.settle(store, 10, row(2, 9, status="b"))
    made.memory.refuse = frozenset()
    ask(made, Why.RETRY)
    heard(made, store)
    assert made.status(2) == "b"
    assert answers(made) == [(Why.RELEASED, 9)]
    made.settle(store, 11, row(2, 10, status="c"))
    assert made.status(2) == "c"
    assert waiting(made.dead.letters) == []


def test_a_retry_of_what_is_still_refused_changes_nothing(made: Bench) -> None:
    made.memory.refuse = frozenset({"2"})
    store = made.begun()
    made.settle(store, 8, row(2, 7))
    ask(made, Why.RETRY)
    heard(made, store)
    assert answers(made) == [(Why.HELD, 7)]
    made.settle(store, 9, row(2, 8))
    assert [one.offset for one in waiting(made.dead.letters)] == [7, 8]


def test_a_dropped_key_keeps_its_row_until_its_next_change(made: Bench) -> None:
    store = made.begun()
    made.settle(store, 8, row(2, 7, status="a"))
    made.memory.refuse = frozenset({"2"})
    made.settle(store, 9, row(2, 8, status="b"))
    made.memory.refuse = frozenset()
    ask(made, Why.DROP)
    heard(made, store)
    assert made.status(2) == "a"
    made.settle(store, 10, row(2, 9, status="c"))
    assert made.status(2) == "c"


def test_an_order_that_nobody_heard_precedes_the_first_batch(made: Bench) -> None:
    made.memory.refuse = frozenset({"2"})
    made.settle(made.begun(), 8, row(2, 7))
    made.memory.refuse = frozenset()
    ask(made, Why.RETRY)
    again = made.begun()
    made.settle(again, 9, row(2, 8, status="later"))
    assert made.status(2) == "later"
    assert waiting(made.dead.letters) == []


def test_h67_killed_between_retry_and_answer_it_is_repeated_once(made: Bench) -> None:
    made.memory.refuse = frozenset({"2"})
    store = made.begun()
    made.settle(store, 8, row(2, 7, status="a"))
    made.memory.refuse = frozenset()
    ask(made, Why.RETRY)
    made.dead.failures.append(SinkError("the broker is away"))
    heard(made, store)
    assert made.status(2) == "a"
    wait_until(lambda: answers(made) == [(Why.RELEASED, 7)])
    assert Orders("cache", made.dead.letters).open() == []


def test_a_retry_sees_the_store_and_the_schemas_as_they_are_now(made: Bench) -> None:
    store = made.begun()
    made.settle(store, 7, row(1, 6, ver=2))
    shape = made.facts.shapes[0]
    made.facts.shapes.append(type(shape)(**{name: getattr(shape, name) for name in shape.__slots__} | {"version": 2}))
    opened = len(made.opened)
    ask(made, Why.RETRY)
    heard(made, store)
    assert made.status(1) == "new"
    assert len(made.opened) == opened + 1


def test_events_of_a_key_freed_during_its_batch_are_applied(made: Bench) -> None:
    made.memory.refuse = frozenset({"2"})
    store = made.begun()
    made.settle(store, 8, row(2, 7, status="a"))
    # A task sorted its batch by the keys that were parked when it began...
    events, _ = parse(records_of(row(2, 8, status="b"), row(2, 9, status="c")))
    outcome = Outcome(letters=behind_letters(events), records=2)
    made.memory.refuse = frozenset()
    ask(made, Why.RETRY)
    heard(made, store)
    # ...and reports after the key was freed.
    store.run(lambda: store.conclude(outcome, at(10)))
    assert made.status(2) == "c"
    assert waiting(made.dead.letters) == []


def test_a_key_refused_in_a_batch_parks_its_later_events_there(made: Bench) -> None:
    store = made.begun()
    events, _ = parse(records_of(row(2, 8, status="b")))
    refused = DeadLetter(
        sink="", why=Why.REFUSED, topic=TOPIC, partition=0, offset=7, reason="no", key=row(2, 7).key, value=b""
    )
    outcome = Outcome(letters=(refused, *behind_letters(events)), records=2)
    store.run(lambda: store.conclude(outcome, at(9)))
    assert made.status(2) is None
    assert [one.offset for one in waiting(made.dead.letters)] == [7, 8]


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 2**32))
@pytest.mark.slow
def test_h67_a_key_never_goes_back_and_ends_at_its_newest(
    seed: int,
) -> None:
    chance = random.Random(seed)
    bench = Bench()
    bench.view.note_ends(LogEnds(1.0, {TOPIC: {0: 0}}))
    offset, newest = 0, dict.fromkeys(range(3), -1)
    store = bench.begun()
    for step in range(chance.randrange(4, 14)):
        match chance.choice(("batch", "batch", "batch", "retry", "drop", "kill", "mapping")):
            case "batch":
                numbers = [chance.randrange(3) for _ in range(chance.randrange(1, 4))]
                rows = [row(number, offset + place, status=str(offset + place)) for place, number in enumerate(numbers)]
                newest |= {number: offset + place for place, number in enumerate(numbers)}
                offset += len(rows)
                bench.settle(store, offset, *rows)
            case "retry":
                if ask(bench, Why.RETRY, str(step)) and chance.random() < 0.3:
                    bench.dead.failures.append(SinkError("away"))
                heard(bench, store)
            case "drop":
                ask(bench, Why.DROP, str(step))
                heard(bench, store)
            case "kill":
                store = bench.begun()
            case "mapping":
                bench.memory.refuse = frozenset(str(n) for n in range(3) if chance.random() < 0.4)
        before_first(bench)
    bench.memory.refuse = frozenset()
    for number in range(3):
        bench.settle(store, offset + 1, row(number, offset, status=str(offset)))
        newest[number] = offset
        offset += 1
    ask(bench, Why.RETRY, "last")
    heard(bench, store)
    wait_until(lambda: not waiting(bench.dead.letters))
    assert {number: bench.status(number) for number in range(3)} == {n: str(o) for n, o in newest.items()}
    for one in bench.stores:
        one.end()


def before_first(bench: Bench) -> None:
    """What the store shows of a parked key lies before its first letter."""
    for key, (_, first) in Parked("cache", bench.dead.letters).firsts().get(TOPIC, {}).items():
        stored = bench.memory.table(TABLE).get(str(orjson.loads(key)["id"]))
        if stored is not None and stored.row is not None:
            assert int(orjson.loads(stored.row)["status"]) < first


def test_a_letter_s_record_is_the_event_it_was() -> None:
    events, _ = parse(records_of(row(2, 8, status="b")))
    assert events_of_letters(behind_letters(events)).equals(pa.table(events))


def test_a_thousand_orders_and_more_read_the_letters_once(made: Bench) -> None:
    """Each thousand is shown and answered before the next; none asks the topic again for what is known."""

    class Counted(MemoryDead):
        reads = 0

        def read(self) -> list[DeadLetter]:
            self.reads += 1
            return super().read()

    made.dead = Counted()
    count = 1200
    made.memory.refuse = frozenset(str(number) for number in range(count))
    store = made.begun()
    made.settle(store, count, *(row(number, number) for number in range(count)))
    made.memory.refuse = frozenset()
    asked = ask(made, Why.RETRY)
    before = made.dead.reads
    heard(made, store)
    assert len(asked) == len(answers(made)) == count
    assert waiting(made.dead.letters) == []
    assert made.dead.reads == before + 1
