"""Waiting for a store whose tables several shards of capture write."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import pytest

from cdc.clock import ManualClock
from cdc.errors import DifferenceFound, LogError
from cdc.freshness.rules import TopicWatermarks
from cdc.freshness.run import WaitPorts, Waits
from cdc.progress import Hold, ShardMark, Watermark
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
    later: list[Watermark] = field(default_factory=list)
    log: LogError | None = None

    @property
    def watermarks(self) -> Shown:
        return self

    def read(self) -> Watermark | None:
        if self.later:
            self.mark = self.later.pop(0)
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
            require=lambda: None,
            place=lambda sink, table: f"shop.{table}",
            divided=True,
            shard_epoch=self._epoch,
        )
        return Waits(ports, ManualClock())

    def _epoch(self, shard: str) -> int | None:
        if self.log is not None:
            raise self.log
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


ASIDE = {topic: f"{topic.removeprefix('shop.')} is set aside" for topic in IDS}
BOTH = replace(
    MARK, topic_ids=IDS, shards={**MARK.shards, "first": replace(MARK.shards["first"], topics=tuple(IDS)[::2])}
)
"""The shard first has the tables a and c."""


def test_h461_another_table_of_the_shard_set_aside_refuses_none() -> None:
    """It was refused for as long as any table of the shard was set aside, whatever the table that was asked for."""
    a, _, c = IDS
    waits = Shown(mark=replace(BOTH, aside={c: ASIDE[c]})).waits()
    assert waits.wait("cache", 90, table="public.a").lsn == 90
    assert waits.wait("cache", Token.parse("7301/1:0/5A"), table="public.a").lsn == 90
    with pytest.raises(DifferenceFound, match=r"but these: public\.c is set aside$"):
        waits.wait("cache", 90, table="public.c")
    with pytest.raises(DifferenceFound, match="0/5B was not reached"):
        waits.wait("cache", 91, table="public.a", timeout_s=3)
    own = Shown(mark=replace(BOTH, aside={a: ASIDE[a], c: ASIDE[c]})).waits()
    with pytest.raises(DifferenceFound, match=r"but these: public\.a is set aside$"):
        own.wait("cache", 90, table="public.a")
    with pytest.raises(DifferenceFound, match=r"public\.c is set aside$"):
        waits.wait("cache", 20)  # all of them count
    assert waits.wait("cache", 20, table="public.b").lsn == 20, "of another shard none did, and none does"


HELD = replace(BOTH, held={"shop.public.a": Hold(table="public.a", reason="it is read again", since_ms=1)})


def test_h461_a_table_that_was_held_counts_by_the_store_of_now() -> None:
    """Shown while it was held, spoken for when the store had begun anew: of no one moment do both say the LSN."""
    anew = replace(BOTH, shards={**BOTH.shards, "first": replace(BOTH.shards["first"], lsn=0)})
    store = Shown(mark=HELD, later=[HELD, HELD, anew])
    with pytest.raises(DifferenceFound, match="0/5A was not reached"):
        store.waits().wait("cache", 90, table="public.a", timeout_s=3)
    store = Shown(mark=HELD, later=[HELD, HELD, anew, anew, BOTH])
    assert store.waits().wait("cache", 90, table="public.a", timeout_s=3).lsn == 90


def test_h461_without_the_log_a_held_table_is_not_claimed() -> None:
    away = LogError("Kafka is away")
    with pytest.raises(LogError):
        Shown(mark=HELD, log=away).waits().wait("cache", 90, table="public.a")
    store = Shown(mark=BOTH, log=away).waits()
    assert (store.wait("cache", 90, table="public.a").lsn, bool(store.unsure)) == (90, True)
