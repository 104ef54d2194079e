"""A hundred shards of capture and a thousand tasks of stores, killed in any order: order and watermarks hold.

Rules broken on purpose show that the same run would notice.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from cdc.progress import Watermark
from spark.ports import SinkTopics
from spark.watermark import Claim, LogView
from tests.unit.spark.sharded_source import Found
from tests.unit.spark.sharded_world import World

AWAY = frozenset((0,))


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Each life collects garbage at its start: what the test process had before need not be walked each time."""
    logging.disable(logging.WARNING)
    gc.freeze()
    yield
    gc.unfreeze()
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", range(12))
def test_h400_shards_killed_in_any_order_keep_order_and_claims(seed: int) -> None:
    world = World(seed, count=6, stores=2)
    world.run(30)
    world.settle()
    world.require_whole()
    assert sum(shard.kills for shard in world.shards) > 0
    assert sum(store.kills for store in world.stores) > 0


def test_h400_a_hundred_shards_and_a_thousand_tasks() -> None:
    world = World(7, count=100, stores=5)
    assert sum(len(store.tasks) for store in world.stores) == 1000
    world.run(60)
    world.settle()
    # From here on every shard has proven something, so that stores claim the least of a hundred.
    held = [store.shown.lsn for store in world.stores if store.shown is not None]
    world.run(40)
    assert min(held) > 0
    world.settle()
    world.require_whole()
    assert sum(shard.lives for shard in world.shards) > 400
    assert sum(shard.kills for shard in world.shards) > 100


@pytest.mark.parametrize("seed", range(4))
def test_h400_a_shard_that_is_away_holds_claims_and_no_rows(seed: int) -> None:
    world = World(seed, count=6, stores=2)
    world.run(10)
    world.settle()
    held = {id(store): store.shown for store in world.stores}
    world.run(20, AWAY)
    world.settle(AWAY)
    for store in world.stores:
        before, now = held[id(store)], store.shown
        assert before is not None
        assert now is not None
        assert (now.lsn, now.shards["s0"]) == (before.lsn, before.shards["s0"])
        others = [now.shards[f"s{number}"].lsn for number in range(1, 6)]
        assert min(others) >= world.truth.committed[-1].end_lsn > now.lsn
    world.settle()
    world.require_whole()


def _greatest(view: LogView, shown: Watermark | None, at: Claim, topics: SinkTopics) -> Watermark:
    mark = view.claim(shown, at, topics)
    return replace(mark, lsn=max((one.lsn for one in mark.shards.values()), default=0))


def _without_the_absent(view: LogView, shown: Watermark | None, at: Claim, topics: SinkTopics) -> Watermark:
    mark = view.claim(shown, at, topics)
    return replace(mark, lsn=min((one.lsn for one in mark.shards.values()), default=0))


def _whatever_was_read(view: LogView, shown: Watermark | None, at: Claim, topics: SinkTopics) -> Watermark:
    return view.claim(shown, Claim({t: dict.fromkeys(range(9), 1 << 40) for t in topics.ids}, at.read_at_s), topics)


def _of_another_shard(view: LogView, shown: Watermark | None, at: Claim, topics: SinkTopics) -> Watermark:
    mark = view.claim(shown, at, topics)
    shards = dict(zip(mark.shards, reversed(list(mark.shards.values())), strict=True))
    return replace(mark, shards=shards)


@pytest.mark.parametrize("claims", [_greatest, _without_the_absent, _whatever_was_read, _of_another_shard])
def test_a_wrong_rule_of_claims_is_found(
    claims: Callable[[LogView, Watermark | None, Claim, SinkTopics], Watermark],
) -> None:
    found = 0
    for seed in range(6):
        world = World(seed, count=6, stores=2, claims=claims)
        try:
            world.run(15)
            world.run(15, AWAY)
        except Found as broken:
            found += "a store claims" in str(broken)
    assert found > 0


def test_a_start_that_reads_no_tails_is_found() -> None:
    with pytest.raises(Found, match="and the source"):
        for seed in range(6):
            World(seed, count=6, stores=1, tails=False).run(30)
