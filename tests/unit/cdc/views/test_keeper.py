"""A view's runner over random histories, with kills between every two steps and states that are copied back.

The oracle computes the view from all transactions below a fence, by plain Python. At each claim the topic has to show
just that, whatever happened before.
"""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc.errors import Exit
from cdc.views.fences import Fence
from cdc.views.memory_views import MemoryViewTopic
from cdc.views.state_faults import StateAway
from tests.examples import examples
from tests.unit.cdc.views.oracles import DOCUMENTS, VIEWS, documents_of
from tests.unit.cdc.views.view_histories import History, Runner, interfere, shown


@pytest.mark.parametrize("view", VIEWS)
@settings(max_examples=examples(60))
@given(seed=st.integers(0, 2**32 - 1))
def test_v1_v9_h158_h185_claims_are_what_the_tables_say(
    view: str, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    sql, oracle = VIEWS[view]
    chance = random.Random(seed)
    history = History(chance)
    folder = tmp_path_factory.mktemp("view")
    runner = Runner(sql, history, folder, bulk=chance.choice([3, 1000]))
    for _ in range(12):
        for _ in range(chance.randint(0, 3)):
            history.transaction()
        if chance.random() < 0.1:
            history.truncate()
        if chance.random() < 0.2:
            history.foreign()
        if chance.random() < 0.7:
            history.progress()
        runner.kill_chance = 0.2
        for _ in range(chance.randint(0, 5)):
            runner.turn()
            if runner.level:
                claim = runner.topic.claims[-1]
                assert shown(runner.topic) == oracle(history.at(claim.lsn))
        interfere(runner, chance)
        history.clock.advance(chance.choice([1, 20, 70]))
        if chance.random() < 0.5:
            history.compact()
        if chance.random() < 0.4 and history.input.newest is not None:
            claim = runner.until_level()
            assert claim == Fence(1, history.input.newest.lsn)
            assert shown(runner.topic) == oracle(history.at(claim.lsn))
    runner.end()


def test_v17_a_state_in_use_stops_with_a_sentence(tmp_path: Path) -> None:
    history = History(random.Random(1))
    runner = Runner(DOCUMENTS, history, tmp_path)
    history.transaction()
    history.progress()
    runner.start()
    other = sqlite3.connect(tmp_path / "state", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StateAway, match="cannot be read or written: database is locked") as refused:
        assert runner.keeper is not None
        runner.keeper.turn()
    assert refused.value.exit is Exit.UNAVAILABLE
    assert runner.topic.records == {}
    other.execute("ROLLBACK")
    other.close()
    claim = runner.until_level()
    assert shown(runner.topic) == documents_of(history.at(claim.lsn))
    runner.end()


def ordered(history: History, number: int) -> None:
    """One more order, and nothing behind it."""
    history.write("orders", number, {"id": number, "customer_id": None})
    history.progress_now()


def test_h241_a_view_that_is_made_again_is_published_anew(tmp_path: Path) -> None:
    history = History(random.Random(1))
    runner = Runner(DOCUMENTS, history, tmp_path)
    ordered(history, 1)
    runner.until_level()
    runner.end()
    runner.topic = MemoryViewTopic(topic_id="second")
    ordered(history, 2)
    claim = runner.until_level()
    assert shown(runner.topic) == documents_of(history.at(claim.lsn))
    assert runner.opened[1].reached.topic_id == "second"
    runner.end()


def test_h241_a_state_that_noted_no_topic_goes_on(tmp_path: Path) -> None:
    history = History(random.Random(1))
    runner = Runner(DOCUMENTS, history, tmp_path, MemoryViewTopic(topic_id=""))
    ordered(history, 1)
    runner.until_level()
    runner.end()
    before = {partition: len(records) for partition, records in runner.topic.records.items()}
    runner.topic.topic_id = "first"
    runner.until_level()
    assert {partition: len(records) for partition, records in runner.topic.records.items()} == before
    assert runner.opened[1].reached.topic_id == "first"
    runner.end()


def test_h244_no_document_is_older_than_one_that_is_out(tmp_path: Path) -> None:
    history = History(random.Random(1))
    runner = Runner("select o.id, 12 / o.customer_id as share from orders o", history, tmp_path)
    history.write("orders", 1, {"id": 1, "customer_id": 3})
    history.progress_now()
    runner.until_level()
    runner.end()
    state, kept = tmp_path / "state", tmp_path / "kept"
    state.rename(kept)
    history.write("orders", 1, {"id": 1, "customer_id": 0})
    history.write("orders", 2, {"id": 2, "customer_id": 6})
    history.progress_now()
    for _ in range(5):
        runner.turn()
    assert shown(runner.topic) == {b'{"id":2}': {"id": 2, "share": 2}}, "one is parked, swept, and below no claim"
    runner.end()
    kept.replace(state)
    history.write("orders", 1, {"id": 1, "customer_id": 3})
    history.input.newest = None  # No progress record is read in the first turn.
    runner.turn()
    history.progress_now()
    runner.until_level()
    assert shown(runner.topic) == {b'{"id":1}': {"id": 1, "share": 4}, b'{"id":2}': {"id": 2, "share": 2}}
    runner.end()
