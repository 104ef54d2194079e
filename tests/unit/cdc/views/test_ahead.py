"""A view over a log that holds what is newer than its place, or lacks rows for a while: nothing of it shows too early.

The histories of :mod:`tests.unit.cdc.views.ahead_histories`, with kills, compaction and states that are copied back.
"""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cdc.views.log_cut import Fence
from tests.examples import examples
from tests.unit.cdc.views.ahead_histories import SHAPES, VIEWS, AheadHistory, history
from tests.unit.cdc.views.view_histories import Rows, Runner, interfere, shown, whole_at


def followed(seed: int, view: str, runner: Runner, chance: AheadHistory) -> None:
    """A while of a history, and the runner beside it."""
    oracle = VIEWS[view][1]
    log, random = chance, chance.chance
    for _ in range(10):
        for _ in range(random.randint(0, 3)):
            log.transaction()
        log.stream(random.randint(0, 3))
        what = random.randrange(6)
        if what == 0:
            log.read(random.choice(("orders", "lines", "customers")))
        elif what == 1:
            log.read(random.choice(("orders", "lines", "customers")), random.sample(range(1, 7), 2))
        elif what == 2:
            log.set_aside()
        elif what == 3:
            log.follow_again()
        if random.random() < 0.7:
            log.progress()
        runner.kill_chance = 0.2
        for _ in range(random.randint(0, 5)):
            runner.turn()
            require_whole(runner, log, oracle)
        interfere(runner, random)
        log.clock.advance(random.choice([1, 20, 70]))
        if random.random() < 0.5:
            log.compact()


def require_whole(runner: Runner, log: AheadHistory, oracle: object) -> None:
    """What a reader sees is the view at the claim, where it shows a claim and nothing newer."""
    fence = whole_at(runner.topic)
    if fence is not None:
        assert shown(runner.topic) == said(oracle, log.at(fence.lsn)), fence


def said(oracle: object, rows: Rows) -> object:
    assert callable(oracle)
    return oracle(rows)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", ["read again", "put aside", "set aside"])
@settings(max_examples=examples(30))
@given(seed=st.integers(0, 2**32 - 1))
@example(seed=5552)
@example(seed=30257)
@example(seed=30607)
@example(seed=41111)
@example(seed=50887)
@example(seed=70307)
def test_v25_nothing_newer_than_its_fence_shows(
    view: str, kind: str, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    log = history(seed, puts_aside=kind == "put aside", sets_aside=kind == "set aside")
    runner = Runner(
        VIEWS[view][0], log, tmp_path_factory.mktemp("view"), bulk=log.chance.choice([3, 1000]), shapes=SHAPES
    )
    followed(seed, view, runner, log)
    log.mend()
    claim = runner.until_level()
    assert log.input.newest is not None
    assert claim == Fence(1, log.input.newest.lsn)
    assert shown(runner.topic) == said(VIEWS[view][1], log.at(claim.lsn))
    runner.end()
