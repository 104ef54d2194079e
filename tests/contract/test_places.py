"""A table's place stands with its rows: whatever is done to a table, its rows end right, and nothing is claimed of what
it lacks (H84, H100, H470, H472)."""

from __future__ import annotations

import pytest

from cdc.record.progress import Watermark
from sinks.contract.port import PlaceMissing
from sinks.contract.table_places import PLACE, TablePlace
from tests.contract import damage
from tests.contract.copies import copied, written_back
from tests.contract.feeding import RETENTION_S, TRUTH, Feeding, Killed, filled, goes_on, step_of
from tests.contract.orders import order
from tests.contract.stores import Store, live, rows
from tests.contract.topics import ORDERS, at

MOST_KILLS = 60
KILLS = [
    *((kind, damaged) for kind in ("memory", "folder") for damaged in ("copy", "drop", "none")),
    ("redis", "copy"),
    ("redis", "none"),
    pytest.param("sqlite", "drop", marks=pytest.mark.slow),
    *(pytest.param(kind, "copy", marks=pytest.mark.slow) for kind in ("opensearch", "postgres", "delta")),
]
"""A copy that is put back takes a sink through every kind of write: where each costs, it is that one alone."""
SELDOM = {"opensearch": 5, "postgres": 3}
"""Where a life takes a second: at each fifth or third of its writes, which are those of the others."""


@pytest.fixture(params=[True, False], ids=["runs", "rests"])
def runs(request: pytest.FixtureRequest) -> bool:
    """Whether the sink runs while it happens."""
    found: bool = request.param
    return found


def has_tables(store: Store) -> None:
    if store.kind == "redis":
        pytest.skip("a cache has no table that could be removed: its keys are")


def noticed(feeding: Feeding, runs: bool) -> None:
    """The sink looks at its tables once more, and begins again."""
    if not runs:
        feeding.end()
    feeding.rest()
    feeding.begun()
    assert not feeding.claims_all(), "the rows are not those that were claimed"
    feeding.level()
    assert feeding.shows() == TRUTH
    assert feeding.claims_all()
    feeding.end()


def test_a_table_read_back_has_its_place_and_no_row_more(store: Store) -> None:
    feeding = filled(store)
    opened = store.open(feeding.clock)
    place = opened.places.read(ORDERS)
    assert place is not None
    assert (place.topic_id, place.offsets) == (f"id of {ORDERS.topic}", {0: 3})
    assert sorted(rows(opened, ORDERS)) == ["1", "2", "3"]
    assert opened.reader.get(ORDERS, PLACE) is None
    assert opened.places.stands(ORDERS)
    feeding.end()


@pytest.mark.by_spark
def test_a_place_is_written_upon_the_one_that_it_began_from(store: Store) -> None:
    feeding = filled(store)
    feeding.end()
    opened = store.open(feeding.clock)
    opened.places.read(ORDERS)
    mark, both = Watermark(epoch=1, lsn=8), []
    for offset in (4, 5):
        one = store.open(feeding.clock)
        one.places.read(ORDERS)
        one.places.lead([(ORDERS, TablePlace(topic_id=f"id of {ORDERS.topic}", offsets={0: offset}))])
        both.append(one)
    both[0].commit(mark)
    with pytest.raises(PlaceMissing, match="another state"):
        both[1].commit(mark)
    both[1].close()
    assert not opened.places.stands(ORDERS)


@pytest.mark.by_spark
def test_h23_a_floor_and_a_purge_leave_the_place(store: Store) -> None:
    feeding = filled(store)
    feeding.log.orders.truncate(at(20))
    feeding.level()
    feeding.end()
    opened = store.open(feeding.clock, replay_window_s=0.001)
    assert opened.places.read(ORDERS) is not None
    assert live(opened, ORDERS) == {}


def test_h84_an_older_copy_is_gone_on_with(store: Store, runs: bool) -> None:
    feeding = filled(store)
    back = copied(store)
    goes_on(feeding)
    assert (feeding.shows(), feeding.claims_all()) == (TRUTH, True)
    back()
    noticed(feeding, runs)


def test_h84_an_older_copy_is_noticed_by_the_next_batch(store: Store) -> None:
    feeding = filled(store)
    back = copied(store)
    goes_on(feeding)
    back()
    feeding.log.orders.upsert(order(5, "third"), at(30))
    feeding.level()
    # A cache and a search that lead elsewhere hear of it within a minute, the others by the write itself.
    for _ in range(2):
        feeding.rest()
        feeding.level()
    assert feeding.shows() == {**TRUTH, "5": "third"}
    assert feeding.claims_all()
    feeding.end()


def test_h84_documents_written_back_by_hand_are_filled_anew(store: Store, runs: bool) -> None:
    if store.kind != "opensearch":
        pytest.skip("a search server alone gives them versions above the log's")
    feeding = filled(store)
    back = written_back(store)
    goes_on(feeding)
    back()
    noticed(feeding, runs)


def test_h84_a_copy_older_than_deletes_is_filled_anew(store: Store, runs: bool) -> None:
    feeding = filled(store)
    back = copied(store)
    goes_on(feeding)
    feeding.clock.advance(2 * RETENTION_S)
    orders = feeding.log.orders
    orders.events = [one for one in orders.events if one.key != orders.key(order(2))]
    feeding.log.others.upsert({"id": 2, "n": 2}, at(40))
    orders.upsert(order(1, "second"), at(41))
    feeding.level()
    back()
    noticed(feeding, runs)


def test_h100_a_table_that_was_dropped_is_filled_anew(store: Store, runs: bool) -> None:
    has_tables(store)
    feeding = filled(store)
    goes_on(feeding)
    damage.drop(store)
    noticed(feeding, runs)


def test_h472_a_table_put_back_beside_its_own_successor(store: Store, runs: bool) -> None:
    """It was dropped and filled anew. Then the one that was lost comes back, which has seen more commits."""
    has_tables(store)
    if store.kind == "opensearch":
        pytest.skip("readers are led to a copy there")
    feeding = filled(store)
    for number in range(5):
        feeding.log.orders.upsert(order(1, "first"), at(4 + number))
        feeding.level()
    back = copied(store)
    damage.drop(store)
    feeding.rest()
    goes_on(feeding)
    assert (feeding.shows(), feeding.claims_all()) == (TRUTH, True)
    back()
    noticed(feeding, runs)


def test_h100_what_is_claimed_of_others_stays_where_one_was_lost(store: Store) -> None:
    has_tables(store)
    feeding = filled(store)
    goes_on(feeding)
    before = feeding.claims()
    damage.drop(store)
    feeding.rest()
    feeding.begun()
    found = feeding.claims()
    assert before is not None and found is not None
    assert (found.lsn, list(found.held)) == (before.lsn, [ORDERS.topic])
    assert found.offsets == {topic: parts for topic, parts in before.offsets.items() if topic != ORDERS.topic}
    feeding.end()


def test_h84_a_claim_that_was_lost_is_built_up_again(store: Store) -> None:
    """The place says how old the rows are."""
    feeding = filled(store)
    goes_on(feeding)
    feeding.end()
    forget_claim(store)
    feeding.level()
    assert feeding.shows() == TRUTH
    assert feeding.claims_all()
    feeding.end()


def forget_claim(store: Store) -> None:
    opened = store.open()
    mark = opened.watermarks.read()
    assert mark is not None
    notes = opened.watermarks
    notes.write(type(mark)(epoch=1, lsn=0))
    opened.close()


def test_h101_a_place_by_somebody_else_s_hand_says_nothing(store: Store) -> None:
    feeding = filled(store)
    goes_on(feeding)
    opened = store.open(feeding.clock)
    place = opened.places.read(ORDERS)
    assert place is not None
    store_of_places = vars(opened.places)["_store"]
    text = step_of(feeding, place.to_json())
    mark = opened.watermarks.read()
    assert mark is not None
    store_of_places.put_places([text._replace(after=b'{"format":1,"offsets":7}')])
    opened.commit(mark)
    feeding.end()
    feeding.level()
    for _ in range(2):
        feeding.rest()
        feeding.level()
    assert feeding.shows() == TRUTH
    assert feeding.claims_all()
    feeding.end()


@pytest.mark.parametrize(("store", "damaged"), KILLS, indirect=["store"])
def test_h470_killed_before_and_after_each_write(store: Store, damaged: str) -> None:
    """A process ends at each of its writes in turn, the next one goes on. At no time is more claimed than the rows
    show, once it has looked."""
    for number in range(0, MOST_KILLS, SELDOM.get(store.kind, 1)):
        if not killed_at(store.fresh(), number, damaged):
            return
    raise AssertionError("the sink never comes to its end")


@pytest.mark.by_spark(alone=True)
def test_h470_killed_behind_a_merge_of_what_was_put_back(store: Store) -> None:
    """Behind the rows of its first batch, and before it claims them."""
    assert killed_at(store, 13, "copy")


def killed_at(corner: Store, number: int, damaged: str) -> bool:
    """A process ends at this one of its writes, and another one goes on. Whether it came that far."""
    feeding = filled(corner)
    back = copied(corner)
    goes_on(feeding)
    feeding.end()
    if damaged == "copy":
        back()
    elif damaged == "drop":
        damage.drop(corner)
    feeding.mortal = number
    feeding.log.orders.upsert(order(5, "third"), at(30))
    killed = False
    try:
        feeding.level()
    except Killed:
        killed = True
        feeding.mortal = None
        feeding.end()
        feeding.level()
    assert feeding.shows() == {**TRUTH, "5": "third"}, f"killed at write {number}"
    assert feeding.claims_all()
    feeding.end()
    return killed
