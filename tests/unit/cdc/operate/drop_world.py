"""A source and a log in memory. A killed drop leaves them as they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from cdc.operate.drop import Drop, DropPlan, DropPorts
from cdc.process.errors import ActiveError, ConfigError, LogError, TopicError
from cdc.record.server_facts import ServerFacts, SlotFacts
from cdc.record.state import SlotState, TopicsState
from tests.killing import Steps
from tests.memory_log import MemoryCompactedTopic
from tests.unit.cdc.operate.handover_world import SERVER, SLOT

PLAN = DropPlan(name="shop", slot="cdc_shop", publication="cdc_shop")
STATE = "shop.state"
OWN = frozenset({STATE, "shop.public.t", "shop.dead"})
VIEWS_TOPIC = "shop.views"
VIEWS = frozenset({"shop.view.orders.1", "shop.stream.traffic.2", "shop.stream.traffic.late", VIEWS_TOPIC})


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
