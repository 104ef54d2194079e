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
from cdc.views.view_state import StateAway
from tests.unit.cdc.views.oracles import DOCUMENTS, VIEWS, documents_of
from tests.unit.cdc.views.view_histories import History, Runner, interfere, shown


@pytest.mark.parametrize("view", VIEWS)
@settings(max_examples=60)
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
