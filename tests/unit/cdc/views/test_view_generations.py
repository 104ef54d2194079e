"""A changed view built beside the published one and put in its place. A store follows the topics.

The first generation goes on while the second one's state is made. The store then takes the second one's topic from its
beginning, on top of what it has, by position and floor.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc.views.log_cut import NEVER, Fence
from tests.examples import examples
from tests.memory_views import MemoryViewTopic
from tests.unit.cdc.views.oracles import DOCUMENTS, GROUPS, documents_of, groups_of
from tests.unit.cdc.views.view_histories import History, Rows, Runner, interfere, shown

Oracle = Callable[[Rows], dict[bytes, object]]
FILTERED = DOCUMENTS + " where o.customer_id is not null and o.id <> 2"


def filtered_of(rows: Rows) -> dict[bytes, object]:
    """The oracle of the filtered text."""
    kept = [k for k, order in rows["orders"].items() if order["customer_id"] is not None and k != 2]
    every = documents_of(rows)
    return {key: every[key] for key in (orjson.dumps({"id": k}) for k in kept)}


CHANGES: dict[str, tuple[str, str, Oracle]] = {
    "fewer documents": (DOCUMENTS, FILTERED, filtered_of),
    "more documents": (FILTERED, DOCUMENTS, documents_of),
    "other keys": (GROUPS, DOCUMENTS, documents_of),
    "groups": (DOCUMENTS, GROUPS, groups_of),
}


def moved_on(history: History) -> None:
    """A while of the source."""
    chance = history.chance
    for _ in range(chance.randint(0, 3)):
        history.transaction()
    if chance.random() < 0.7:
        history.progress()
    history.clock.advance(chance.choice([1, 20]))


def stored(first: MemoryViewTopic, second: MemoryViewTopic) -> dict[bytes, object]:
    """What a store shows that has taken the first topic, and then the second one."""
    partitions = first.records.keys() | second.records.keys()
    return shown(MemoryViewTopic({p: first.records.get(p, []) + second.records.get(p, []) for p in partitions}))


def built(runner: Runner, first: Runner, history: History) -> None:
    """The second generation's state is whole, while the first one goes on."""
    for _ in range(200):
        moved_on(history)
        interfere(runner, history.chance)
        for _ in range(3):
            first.turn()
            runner.turn()
            if runner.prepared:
                return
    raise AssertionError("it is never prepared")


def published(runner: Runner, history: History) -> Fence:
    """All of it is published, by runners that are killed, and then by one that is not."""
    runner.kill_chance = 0.2
    for _ in range(6):
        moved_on(history)
        interfere(runner, history.chance)
        for _ in range(3):
            runner.turn()
    history.transaction()  # a mark, where the source rests
    history.progress_now()
    return runner.until_level()


@pytest.mark.parametrize("change", CHANGES)
@settings(max_examples=examples(20))
@given(seed=st.integers(0, 2**32 - 1))
def test_v7_a_store_shows_the_later_generation(
    change: str, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("view")
    before, after, oracle = CHANGES[change]
    chance = random.Random(seed)
    history = History(chance)
    first = Runner(before, history, folder / "first")
    for _ in range(4):
        moved_on(history)
        first.turn()
    second = Runner(after, history, folder / "second", generation=2, above=NEVER)
    built(second, first, history)
    assert second.topic.records == {}
    second.end()
    moved_on(history)
    first.turn()
    first.end()
    newest = history.input.newest
    assert newest is not None
    second.above = Fence(newest.epoch, newest.lsn + 1)
    claim = published(second, history)
    assert claim > Fence(newest.epoch, newest.lsn)
    assert stored(first.topic, second.topic) == oracle(history.at(claim.lsn))
    second.end()
