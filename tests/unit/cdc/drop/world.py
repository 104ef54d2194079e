"""A source and a log in memory. A killed drop leaves them as they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from cdc.checks.facts import ServerFacts, SlotFacts
from cdc.drop.ports import DropPorts
from cdc.drop.run import Drop, DropPlan
from cdc.errors import ActiveError, ConfigError, LogError, TopicError
from cdc.shard_documents import ShardState
from cdc.state import SlotState, TopicsState
from cdc.testing import MemoryCompactedTopic
from tests.killing import Steps
from tests.unit.cdc.handover.world import SERVER, SLOT

PLAN = DropPlan(name="shop", slot="cdc_shop", publication="cdc_shop")
STATE = "shop.state"
OWN = frozenset({STATE, "shop.public.t", "shop.dead"})
VIEWS_TOPIC = "shop.views"
VIEWS = frozenset({"shop.view.orders.1", VIEWS_TOPIC})


class World:
    """A pipeline with a slot, a publication and three topics, beside a topic of somebody else."""

    def __init__(self) -> None:
        self.steps = Steps()
        self.slot: SlotFacts | None = SLOT
        self.published = True
        self.of_another_role = False
        """Whether the publication is."""
        self.topics = {*OWN, "other.state"}
        self.away = False
        """Whether the brokers are."""
        self.lags: set[str] = set()
        """Topics that a broker does not know for the moment."""
        noted = TopicsState(cluster_id="c", topics={name: {"id": name, "partitions": 1} for name in OWN}, tables={})
        self.state = MemoryCompactedTopic({noted.key(): noted.to_json(), **slot_made()})

    def drop(self, plan: DropPlan = PLAN) -> Drop:
        over = self.steps.over

        @contextmanager
        def source() -> Iterator[Any]:
            yield over("source", Source(self))

        ports = DropPorts(
            reach=self.reach,
            source=source,
            state=over("state", State(self)),
            topics=lambda: over("topics", Topics(self)),
            gone=self.gone,
            views=lambda: sorted(self.topics & VIEWS, key=VIEWS_TOPIC.__eq__),
        )
        return Drop(plan, ports)

    def reach(self) -> None:
        if self.away:
            raise LogError("no broker takes a connection")

    def gone(self, topic: str) -> bool:
        return topic not in self.topics


def slot_made(name: str = PLAN.slot) -> dict[bytes, bytes]:
    """The record by which ``cdc snapshot`` notes the slot that it made."""
    made = SlotState(
        slot=name,
        publication=PLAN.publication,
        consistent_point=1,
        system_identifier=SERVER.system_identifier,
        timeline=SERVER.timeline,
        database=SERVER.database,
        database_oid=SERVER.database_oid,
        epoch=1,
    )
    return {made.key(): made.to_json()}


class Source:
    """As Postgres does it: a slot goes at once, a publication when its transaction ends."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._unpublished = False

    def server(self) -> ServerFacts:
        return SERVER

    def slot(self) -> SlotFacts | None:
        return self._world.slot

    @contextmanager
    def transaction(self) -> Iterator[None]:
        yield
        self._world.published = self._world.published and not self._unpublished

    def drop_publication(self) -> bool:
        if self._world.of_another_role:
            raise ConfigError("the role cdc may not change the publication cdc_shop", hint="let its owner drop it")
        self._unpublished = True
        return self._world.published

    def drop_slot(self) -> bool:
        if self._world.slot is not None and self._world.slot.active_pid is not None:
            raise ActiveError("another reader is running")
        there, self._world.slot = self._world.slot is not None, None
        return there


class State:
    """The state topic, which goes with the others."""

    def __init__(self, world: World) -> None:
        self._world = world

    def read(self) -> Mapping[bytes, bytes]:
        if STATE not in self._world.topics - self._world.lags:
            raise TopicError(f"there is no topic {STATE}")
        return self._world.state.read()

    def write(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        raise AssertionError("a drop notes nothing")


class Topics:
    """Topics of one call go one by one; a kill in between leaves the rest, and the state topic may be the first."""

    def __init__(self, world: World) -> None:
        self._world = world

    def names(self) -> list[str]:
        return sorted(self._world.topics)

    def delete(self, topics: Iterable[str]) -> None:
        for topic in sorted(topics, key=lambda one: (one != STATE, one)):
            self._world.topics.discard(topic)
            self._world.steps.reach(f"deleted {topic}")


def read_by(pid: int) -> SlotFacts:
    """The slot while a process reads it."""
    return replace(SLOT, active_pid=pid)


class OfShards(World):
    """A pipeline of two shards, of which the first one is dropped first."""

    SHARED = frozenset({"shop.dead", "shop.schema"})

    def __init__(self) -> None:
        super().__init__()
        self.topics = {"shop.state", *self.SHARED, "other.state"}
        self.states: dict[str, MemoryCompactedTopic] = {}
        self.kept: dict[str, tuple[SlotFacts | None, bool]] = {}
        self._shard = ""
        notes = [ShardState(shard=shard) for shard in ("sales", "rest")]
        self.pipeline = MemoryCompactedTopic({note.key(): note.to_json() for note in notes})
        for shard, table in (("sales", "shop.public.a"), ("rest", "shop.public.b")):
            own = {f"shop.state-{shard}", f"shop.progress-{shard}", table}
            made = {name: {"id": name, "partitions": 1} for name in own | self.SHARED}
            noted = TopicsState(cluster_id="c", topics=made, tables={table.removeprefix("shop."): table})
            self.states[shard] = MemoryCompactedTopic({noted.key(): noted.to_json(), **slot_made(f"cdc_shop__{shard}")})
            self.topics |= own

    def drop_shard(self, shard: str) -> list[str]:
        # What is gone of a shard stays gone.
        self.kept[self._shard] = self.slot, self.published
        self._shard = shard
        self.slot, self.published = self.kept.get(shard, (replace(SLOT, slot=f"cdc_shop__{shard}"), True))
        over, world = self.steps.over, self

        class Kept:
            """A topic that goes with the others."""

            def __init__(self, topic: str, held: MemoryCompactedTopic) -> None:
                self._topic, self._held = topic, held

            def read(self) -> Mapping[bytes, bytes]:
                if self._topic not in world.topics - world.lags:
                    raise TopicError(f"there is no topic {self._topic}")
                return self._held.read()

            def write(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
                self._held.write(records)

        @contextmanager
        def source() -> Iterator[Any]:
            yield over("source", Source(self))

        ports = DropPorts(
            reach=self.reach,
            source=source,
            state=over("state", Kept(f"shop.state-{shard}", self.states[shard])),
            topics=lambda: over("topics", Topics(self)),
            gone=self.gone,
            pipeline=over("pipeline", Kept("shop.state", self.pipeline)),
        )
        plan = DropPlan(name="shop", slot=f"cdc_shop__{shard}", publication=f"cdc_shop__{shard}", shard=shard)
        return list(Drop(plan, ports).run(topics=True))
