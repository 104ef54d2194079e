"""A look at one shard of capture: stores whose sinks take its tables, and those that take others alone."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from cdc.clock import ManualClock
from cdc.errors import LogError
from cdc.progress import Hold, ShardMark, Watermark
from cdc.shard_progress import as_shard
from cdc.status.facts import StatusFacts
from cdc.status.rules import status_of
from cdc.status.run import StatusPlan, StatusReader
from cdc.status.sink_lines import SinkStatus
from connectors.postgres.selection import keeps_some
from tests.unit.cdc.checks.test_postgres import KNOWN
from tests.unit.cdc.status.test_rules import LIMITS
from tests.unit.cdc.status.test_run import SNAPSHOT, TOPICS, World

OTHERS = Watermark(
    epoch=1,
    lsn=300,
    topic_ids={"shop.public.b": "y"},
    shards={"rest": ShardMark(epoch=1, lsn=300, topics=("shop.public.b",))},
)
"""A store that has shown what another shard writes, and nothing of this one."""


@dataclass
class Shard(World):
    """A look at the shard sales, which has public.a: cache takes it, search takes public.b alone."""

    mark: Watermark | None = OTHERS
    patterns: tuple[str, ...] = ("public.b",)

    def looked(self) -> StatusFacts:
        def feeds(sink: str, tables: object) -> bool:
            assert isinstance(tables, dict)
            return keeps_some({"cache": ("public.*",), "search": self.patterns}[sink], tables)

        plan = StatusPlan(
            name="shop", slot="cdc_shop__sales", sinks={"cache": "redis", "search": "opensearch"},
            takes=lambda table: table == "public.a", shard="sales", feeds=feeds,
        )  # fmt: skip
        with StatusReader(plan, self.ports(), ManualClock(), limit_s=60) as look:
            return look.read()

    def shown_by(self, sink: str) -> Watermark | None:
        return self.mark

    def stores(self) -> dict[str, SinkStatus]:
        return {sink.name: sink for sink in status_of(self.looked(), LIMITS).sinks}


def test_h460_a_store_of_another_shards_tables_is_not_empty() -> None:
    """Its exit code was 1 for ever, with the advice to run a sink that had nothing to do."""
    shown = status_of(Shard().looked(), LIMITS)
    assert {sink.name: sink.state for sink in shown.sinks} == {"cache": "empty", "search": "elsewhere"}
    assert [words for words in shown.passed if "empty" in words] == [
        "cache is empty, and the log is not: cdc sink cache fills it"
    ]
    assert Shard(mark=None).stores()["search"].state == "elsewhere", "it may have nothing of the other shard yet"
    assert Shard(patterns=()).stores()["search"].state == "empty", "without patterns a sink takes every table"


def test_h460_a_shard_whose_tables_are_not_known_is_not_judged() -> None:
    away = Shard(away={"log": LogError("Kafka is away")})
    assert {sink.state for sink in away.stores().values()} == {"unjudged"}
    before = Shard(held={one.key(): one.to_json() for one in (KNOWN, SNAPSHOT)})
    assert before.stores()["search"].state == "empty"


@pytest.mark.parametrize("lsn", [300, 400])
def test_h460_a_store_that_shows_some_of_the_shard_is_judged(lsn: int) -> None:
    """Also where its sink does not take the table any more."""
    topic = TOPICS.tables["public.a"]
    mark = Watermark(
        epoch=1, lsn=lsn, topic_ids={topic: "x"}, shards={"sales": ShardMark(epoch=1, lsn=lsn, topics=(topic,))}
    )
    assert as_shard(mark, "sales") is not None
    assert Shard(mark=mark).stores()["search"].lsn == lsn


A, B = TOPICS.tables["public.a"], "shop.public.b"
HOLDS = {A: Hold(table="public.a", reason="public.a: too long"), B: Hold(table="public.b", reason="public.b: too long")}
MARK = {"sales": ShardMark(epoch=1, lsn=300, topics=()), "rest": ShardMark(epoch=1, lsn=300, topics=())}


@pytest.mark.parametrize("mark", [MARK, {"rest": MARK["rest"]}])
def test_h501_a_held_table_is_shown_by_its_own_shard(mark: dict[str, ShardMark]) -> None:
    """Also where no other table of the shard claims anything: the store was called empty."""
    looked = Shard(mark=Watermark(epoch=1, lsn=300, held=HOLDS, shards=mark))
    assert looked.stores()["cache"].held == {"public.a": "public.a: too long"}
    assert looked.stores()["cache"].state != "empty"
    others = Shard(mark=Watermark(epoch=1, lsn=300, held={B: HOLDS[B]}, shards=MARK))
    assert others.stores()["cache"].held == {}


def test_h501_without_its_topics_a_shard_goes_by_the_settings() -> None:
    away = Shard(mark=Watermark(epoch=1, lsn=300, held=HOLDS, shards=MARK), away={"log": LogError("Kafka is away")})
    assert away.stores()["cache"].held == {"public.a": "public.a: too long"}
