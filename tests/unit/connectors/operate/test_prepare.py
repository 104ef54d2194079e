"""A pipeline that is there already, asked about from a broker that lags behind."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from cdc.process.clock import ManualClock
from connectors.kafka.topic_problems import TopicFacts
from connectors.operate.init import BegunPipeline, noted_documents
from tests.memory_log import MemoryCompactedTopic

NOTED = {b"slot": b"{}"}


class _Broker:
    """It knows each topic from a second on, counted from the first question."""

    def __init__(self, clock: ManualClock, **known_s: float) -> None:
        self._clock, self._began_s = clock, clock.monotonic()
        self._known_s = known_s

    def describe(self, topics: Iterable[str]) -> dict[str, TopicFacts]:
        now_s = self._clock.monotonic() - self._began_s
        known = [topic for topic in topics if self._known_s.get(topic, 1e9) <= now_s]
        return {topic: TopicFacts(topic=topic, topic_id=topic, partitions=1, replication_factor=1) for topic in known}


def _found(clock: ManualClock, *, slot: bool, **known_s: float) -> dict[bytes, bytes]:
    broker, begun = _Broker(clock, **known_s), BegunPipeline("state", "progress", lambda: slot)
    return dict(noted_documents(broker, MemoryCompactedTopic(NOTED), begun, clock))


@pytest.mark.parametrize(
    ("slot", "known_s"), [(True, {"state": 3.0}), (False, {"state": 3.0, "progress": 0.0}), (False, {"state": 0.0})]
)
def test_h591_a_pipeline_that_is_there_is_known(slot: bool, known_s: dict[str, float]) -> None:
    """It was told that its slot is somebody else's, and how to drop it."""
    assert _found(ManualClock(), slot=slot, **known_s) == NOTED


def test_h591_a_first_init_waits_for_nothing() -> None:
    clock = ManualClock()
    began_s = clock.monotonic()
    assert _found(clock, slot=False) == {}
    assert clock.monotonic() == began_s


def test_h591_a_slot_without_a_state_topic_is_somebody_elses() -> None:
    assert _found(ManualClock(), slot=True) == {}
