"""Waiting for a store whose tables several shards of capture write."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import pytest

from cdc.clock import ManualClock
from cdc.errors import DifferenceFound
from cdc.freshness.rules import InLog, TopicWatermarks
from cdc.freshness.run import WaitPorts, Waits
from cdc.progress import ShardMark, Watermark
from cdc.source_lineage import SourceLineage
from cdc.tokens import Token

HERE = SourceLineage("7301", 1)
IDS = {f"shop.public.{table}": "id" for table in "abc"}
MARK = Watermark(
    epoch=1,
    lsn=20,
    topic_ids={topic: IDS[topic] for topic in list(IDS)[:2]},
    shards={
        "first": ShardMark(epoch=1, lsn=90, lineage=HERE, topics=("shop.public.a",)),
        "second": ShardMark(epoch=2, lsn=20, lineage=HERE, topics=("shop.public.b",)),
    },
)


@dataclass
class Shown:
    """A store that shows one watermark."""

    mark: Watermark | None = MARK
    epochs: dict[str, int] = field(default_factory=lambda: {"": 1, "first": 1, "second": 2})
    asked: list[str] = field(default_factory=list)

    @property
    def watermarks(self) -> Shown:
        return self

    def read(self) -> Watermark | None:
        return self.mark

    def current(self) -> bool:
        return True

    def close(self) -> None:
        """Nothing is open."""

    def waits(self) -> Waits:
        ports = WaitPorts(
            open=lambda sink: self,
            briefly=nullcontext,
            epoch=lambda: self._epoch(""),
            letters=lambda: [],
            nudge=lambda: None,
            by_gtids=False,
            require=lambda: None,
            passed=lambda gtids, timeout_s: InLog("", {}),
            keeps=lambda sink, topic: True,
            place=lambda sink, table: f"shop.{table}",
            divided=True,
            shard_epoch=self._epoch,
        )
        return Waits(ports, ManualClock())

    def _epoch(self, shard: str) -> int | None:
        self.asked.append(shard)
        return self.epochs[shard]


def test_h400_a_table_is_shown_as_far_as_its_own_shard() -> None:
    store = Shown()
    waits = store.waits()
    assert waits.wait("cache", 90, table="public.a").lsn == 90
    with pytest.raises(DifferenceFound, match="cache stands at 0/14"):
        waits.wait("cache", 90, table="public.b", timeout_s=3)
    with pytest.raises(DifferenceFound, match="cache stands at 0/14"):
        waits.wait("cache", 90, timeout_s=3)
    assert waits.wait("cache", 20).lsn == 20


def test_h408_a_store_is_held_against_its_own_shards_alone() -> None:
    """Each in its own epoch. One of whose tables the store has none is not asked for."""
    store = Shown(epochs={"": 1, "first": 1, "second": 2, "third": 1})
    assert store.waits().wait("cache", 20).lsn == 20
    store.epochs["second"] = 3
    with pytest.raises(DifferenceFound, match=r"the shard of capture second is the last"):
        store.waits().wait("cache", 20, timeout_s=3)
    alone = replace(MARK, lsn=20, epoch=2, topic_ids={"shop.public.b": "id"}, shards={"second": MARK.shards["second"]})
    store = Shown(mark=alone, epochs={"": 1, "first": 1, "second": 2})
    assert store.waits().wait("cache", 20).epoch == 2, "the least epoch of all shards is 1"


def test_h408_a_table_of_a_shard_without_a_proof_is_waited_for() -> None:
    store = Shown(mark=replace(MARK, lsn=20, topic_ids=IDS))
    with pytest.raises(DifferenceFound, match=r"a shard of capture has not begun"):
        store.waits().wait("cache", 20, timeout_s=3)


def test_h403_the_epoch_is_asked_of_the_tables_shard() -> None:
    store = Shown()
    waits = store.waits()
    assert waits.wait("cache", 20, table="public.b").epoch == 2
    assert (waits.wait("cache", 20).epoch, store.asked) == (1, ["", "second", "first"])
    store.epochs["second"] = 3
    fresh = store.waits()
    with pytest.raises(DifferenceFound):
        fresh.wait("cache", 5, table="public.b", timeout_s=3)


def test_h403_a_store_in_a_newer_epoch_has_its_shard_asked_again() -> None:
    store = Shown(epochs={"": 1, "first": 1, "second": 1})
    waits = store.waits()
    with pytest.raises(DifferenceFound):
        waits.wait("cache", 5, table="public.b", timeout_s=1)
    store.epochs["second"] = 2
    assert waits.wait("cache", 5, table="public.b", timeout_s=1).lsn == 20


def test_h402_a_mark_speaks_of_the_tables_that_it_names() -> None:
    """Of a table that the store has under another shard, or under none yet, nothing is known."""
    store = Shown()
    with pytest.raises(DifferenceFound, match="cache has no watermark yet"):
        store.waits().wait("cache", 1, table="public.c", timeout_s=3)
    assert TopicWatermarks(Shown(mark=None), "shop.public.a").read() is None


def test_h400_a_token_of_a_table_is_judged_by_its_shard() -> None:
    token = Token.parse("7301/1:0/5A")
    assert Shown().waits().wait("cache", token, table="public.a").lineage == HERE
    with pytest.raises(DifferenceFound):
        Shown().waits().wait("cache", token, timeout_s=3)
