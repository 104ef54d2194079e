"""A broker that has just started, or that stood still, says of topics that it does not have them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from cdc.capture.topic_specs import TopicSpec, table_topic_spec
from cdc.process.clock import ManualClock
from cdc.process.errors import LogError, Retry, TopicError
from cdc.record.progress import Offsets
from cdc.settings.model import LogSettings
from connectors.kafka.broker_answers import ends_of_made, facts_of_made, make_known, stays_gone
from connectors.kafka.topic_problems import TopicFacts


def names(clock: ManualClock, known_after_s: float) -> list[str]:
    return ["shop.progress", "shop.state"] if clock.monotonic() >= known_after_s else ["shop.state"]


@pytest.mark.parametrize(("known_after_s", "gone"), [(0.0, False), (4.0, False), (60.0, True)])
def test_h579_a_topic_is_gone_that_stays_gone(known_after_s: float, gone: bool) -> None:
    clock = ManualClock()
    known_s = clock.monotonic() + known_after_s
    assert stays_gone(["shop.progress"], lambda: names(clock, known_s), clock) is gone
    assert clock.monotonic() - known_s + known_after_s <= 6.0


def test_h579_one_of_several_is_enough() -> None:
    assert stays_gone(["shop.state", "shop.other"], lambda: ["shop.state"], ManualClock())


def test_h579_brokers_that_do_not_answer_say_nothing() -> None:
    def away() -> list[str]:
        raise LogError("away")

    assert not stays_gone(["shop.progress"], away, ManualClock())


class _Lagging:
    """Brokers that know one topic, and hear of the others after so many seconds."""

    def __init__(self, after_s: float) -> None:
        self.clock = ManualClock()
        self.made: list[str] = []
        self._after_s = self.clock.monotonic() + after_s

    def describe(self, topics: Iterable[str]) -> dict[str, TopicFacts]:
        known = set(topics) if self.clock.monotonic() >= self._after_s else {"shop.state"} & set(topics)
        return {
            one: TopicFacts(topic=one, topic_id=f"id of {one}", partitions=1, replication_factor=1) for one in known
        }

    def end_offsets(self, partitions: Mapping[str, int]) -> Offsets:
        if self.clock.monotonic() < self._after_s:
            raise TopicError("the topic does not exist")
        return {topic: dict.fromkeys(range(count), 7) for topic, count in partitions.items()}

    def create(self, specs: Iterable[TopicSpec]) -> list[str]:
        self.made += [spec.topic for spec in specs]
        return self.made


@pytest.mark.parametrize(("after_s", "known"), [(0.0, True), (1.2, True), (4.0, True), (60.0, False)])
def test_h582_a_topic_is_missing_that_stays_missing(after_s: float, known: bool) -> None:
    """A sink ended for good, and was told that what the topic had held is gone."""
    brokers = _Lagging(after_s)
    found = facts_of_made(brokers, ["shop.state", "shop.public.t"], brokers.clock)
    assert found.keys() == ({"shop.state", "shop.public.t"} if known else {"shop.state"})
    assert found["shop.state"].topic_id == "id of shop.state"


def test_h582_topics_that_are_known_are_asked_for_once() -> None:
    brokers = _Lagging(60.0)
    began_s = brokers.clock.monotonic()
    assert facts_of_made(brokers, ["shop.state"], brokers.clock).keys() == {"shop.state"}
    assert brokers.clock.monotonic() == began_s


def test_h583_a_new_topic_that_a_broker_does_not_know_yet() -> None:
    """Its table was set aside, as one whose topic Kafka never makes."""
    spec = table_topic_spec(LogSettings(bootstrap_servers="x:1"), "shop.public.t")
    lagging, away = _Lagging(2.0), _Lagging(60.0)
    made, facts = make_known(lagging, [spec], lagging.clock)
    assert (made, [*facts]) == ([spec.topic], [spec.topic])
    with pytest.raises(LogError, match="does not know it yet") as failure:
        make_known(away, [spec], away.clock)
    assert failure.value.retry is Retry.LATER
    assert lagging.made == away.made == [spec.topic]


def test_h582_the_end_of_a_new_topic_is_waited_for() -> None:
    """Capture ended for good where it had just made the topic of a table."""
    lagging, away = _Lagging(2.0), _Lagging(60.0)
    assert ends_of_made(lagging, {"shop.public.t": 2}, lagging.clock) == {"shop.public.t": {0: 7, 1: 7}}
    with pytest.raises(TopicError):
        ends_of_made(away, {"shop.public.t": 2}, away.clock)
