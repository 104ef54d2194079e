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

from cdc.process.errors import Exit
from cdc.views.log_cut import Fence
from cdc.views.state_reach import StateAway
from tests.examples import examples
from tests.memory_views import MemoryViewTopic
from tests.unit.cdc.views.oracles import DOCUMENTS, VIEWS, documents_of
from tests.unit.cdc.views.view_histories import History, Runner, interfere, shown, swept


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


def rebuilt(history: History, runner: Runner) -> Path:
    """The state is lost, and what it knew of is published anew: the first document cannot be computed now. Returns the
    folder of the state that was lost."""
    runner.end()
    kept = runner.folder / "kept"
    (runner.folder / "state").rename(kept)
    for number, customer in ((1, 0), (2, 6)):
        history.write("orders", number, {"id": number, "customer_id": customer})
    history.progress_now()
    for _ in range(5):
        runner.turn()
    return kept


def divided(tmp_path: Path, *customers: int) -> tuple[History, Runner]:
    """Orders, each with a share that cannot be computed of 0. What can be is published."""
    history = History(random.Random(1))
    runner = Runner("select o.id, 12 / o.customer_id as share from orders o", history, tmp_path)
    for number, customer in enumerate(customers, start=1):
        history.write("orders", number, {"id": number, "customer_id": customer})
    history.progress_now()
    for _ in range(5):
        runner.turn()
    return history, runner


def share(number: int, value: int) -> dict[bytes, object]:
    return {b'{"id":%d}' % number: {"id": number, "share": value}}


def test_h244_no_document_is_older_than_one_that_is_out(tmp_path: Path) -> None:
    history, runner = divided(tmp_path, 3, 6, 0)
    assert runner.topic.claims == [], "nothing was ever claimed, so the mark takes what is parked"
    kept = rebuilt(history, runner)
    assert shown(runner.topic) == share(2, 2), "one is parked, and swept"
    runner.end()
    kept.replace(tmp_path / "state")
    history.write("orders", 1, {"id": 1, "customer_id": 3})
    history.write("orders", 3, {"id": 3, "customer_id": 12})
    history.input.newest = None  # No progress record is read in the first turn.
    runner.turn()
    history.progress_now()
    runner.until_level()
    assert shown(runner.topic) == share(1, 4) | share(2, 2) | share(3, 1)
    runner.end()


def test_h510_a_lost_states_sweep_keeps_parked_documents(tmp_path: Path) -> None:
    history, runner = divided(tmp_path, 3, 12, 6)
    claim = runner.until_level()
    history.write("orders", 4, {"id": 4, "customer_id": 0})
    history.delete("orders", 3)
    rebuilt(history, runner)
    assert runner.topic.claims[-1] == claim
    assert shown(runner.topic) == share(1, 4) | share(2, 2), "the former one, as of the claim, and none of three"
    runner.end()
    runner.turn()
    history.write("orders", 1, {"id": 1, "customer_id": 4})
    history.progress_now()
    runner.turn()
    assert shown(runner.topic) == share(1, 3) | share(2, 2)
    assert swept(runner.topic) == 1, "the fourth is parked, and below the claim"
    history.write("orders", 4, {"id": 4, "customer_id": 1})
    assert runner.until_level() > claim
    assert shown(runner.topic) == share(1, 3) | share(2, 2) | share(4, 12)
    assert swept(runner.topic) == 2
    runner.end()


@settings(max_examples=examples(60))
@given(seed=st.integers(0, 2**32 - 1))
def test_h510_no_document_below_a_claim_vanishes(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    chance = random.Random(seed)
    history, runner = divided(tmp_path_factory.mktemp("view"), 3, 6, 12)
    runner.until_level()
    there = shown(runner.topic).keys()
    for _ in range(8):
        for _ in range(chance.randint(0, 3)):
            number = chance.randint(1, 3)
            history.write("orders", number, {"id": number, "customer_id": chance.choice([0, 1, 2, 3])})
        history.progress_now()
        runner.kill_chance = 0.3
        for _ in range(chance.randint(1, 5)):
            runner.turn()
            interfere(runner, chance)
            assert shown(runner.topic).keys() == there
    for number in (1, 2, 3):
        history.write("orders", number, {"id": number, "customer_id": number})
    history.progress_now()
    runner.until_level()
    assert shown(runner.topic) == share(1, 12) | share(2, 6) | share(3, 4)
    runner.end()


@pytest.mark.parametrize("lost", [True, False], ids=["lost", "too old"])
def test_h512_a_deletion_goes_while_a_claim_waits(tmp_path: Path, lost: bool) -> None:
    history, runner = divided(tmp_path, 3, 6, 12)
    claim = runner.until_level()
    history.write("orders", 2, {"id": 2, "customer_id": 0})
    history.delete("orders", 3)
    history.progress_now()
    for _ in range(3):
        runner.turn()
    assert shown(runner.topic) == share(1, 4) | share(2, 2)
    runner.end()
    history.clock.advance(history.input.retention_s + 1)
    cleaned(runner.topic)
    history.compact()
    assert shown(runner.topic) == share(1, 4) | share(2, 2), "to one who reads from the beginning"
    if lost:
        (tmp_path / "state").unlink()
    history.progress_now()
    for _ in range(5):
        runner.turn()
    assert runner.topic.claims[-1] == claim
    assert shown(runner.topic) == share(1, 4) | share(2, 2)
    history.write("orders", 2, {"id": 2, "customer_id": 1})
    history.write("orders", 3, {"id": 3, "customer_id": 4})
    assert runner.until_level() > claim
    assert shown(runner.topic) == share(1, 4) | share(2, 12) | share(3, 3)
    runner.end()


def cleaned(topic: MemoryViewTopic) -> None:
    """Of each key the newest record stays, and no deletion."""
    for records in topic.records.values():
        newest = {record.key: record for record in records}
        records[:] = [one for one in records if newest[one.key] is one and one.value is not None]
