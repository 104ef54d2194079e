"""Small compacted topics, when no broker answers."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from cdc.process.errors import LogError, TopicError
from cdc.settings.model import LogSettings
from connectors.kafka.compacted_topic import KafkaCompactedTopic, bounds, known_partitions, leaderless, read_on, stands


class _GivenUp(Exception):
    pass


@dataclass(frozen=True)
class _Topic:
    error: object
    partitions: Mapping[int, object]


def test_a_running_captures_notes_wait_for_the_brokers() -> None:
    asked = 0

    def waiting() -> None:
        nonlocal asked
        asked += 1
        if asked > 1:
            raise _GivenUp

    # Nobody listens on port 1.
    topic = KafkaCompactedTopic(LogSettings(bootstrap_servers="127.0.0.1:1"), "shop.state", waiting=waiting)
    for turns in (2, 3):
        with pytest.raises(_GivenUp):
            topic.write([(b"key", b"value")])
        assert asked == turns
    with pytest.raises(_GivenUp):
        topic.read()


def test_a_broker_that_just_came_back_has_no_leaders_yet() -> None:
    # The last as librdkafka words it when none is known at all (tests.faults stalled_broker, seed 0).
    none_found = KafkaError(KafkaError._NOENT, "Failed to query partition leaders: No leaders found")
    newer = KafkaError(KafkaError.FENCED_LEADER_EPOCH)  # pipeline_kills, seed 0
    # A broker that came back to a leader with one replica less (test_in_sync).
    behind = KafkaError(KafkaError.OFFSET_NOT_AVAILABLE)
    # A consumer that asks just as its broker is killed (H580).
    gone_meanwhile = KafkaError(KafkaError._DESTROY_BROKER)
    assert all(leaderless(KafkaException(error)) for error in (none_found, newer, behind, gone_meanwhile))
    assert not leaderless(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))


def test_a_partition_without_a_leader_is_there_all_the_same() -> None:
    held = _Topic(error=None, partitions={0: KafkaError(KafkaError.LEADER_NOT_AVAILABLE)})
    unknown = _Topic(error=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), partitions={})
    assert stands(held, 0)
    assert not stands(held, 1)
    assert not stands(unknown, 0)
    assert not stands(None, 0)


class _Brokers:
    """Brokers that know no partition at first, and fail when asked whether there is one. Then they know two."""

    def __init__(
        self, silence: int, refusal: int = KafkaError._UNKNOWN_PARTITION, failure: int = KafkaError._TRANSPORT
    ) -> None:
        self.silence = silence
        self.asked = 0
        self._refusal, self._failure = KafkaError(refusal), KafkaError(failure)

    def get_watermark_offsets(self, where: TopicPartition, timeout: float) -> tuple[int, int]:
        if self.silence:
            raise KafkaException(self._refusal)
        return 3, 7

    def list_topics(self, topic: str, timeout: float) -> object:
        self.asked += 1
        if not self.silence:
            return SimpleNamespace(topics={topic: _Topic(error=None, partitions={1: None, 0: None})})
        self.silence -= 1
        raise KafkaException(self._failure)


class _Naming(_Brokers):
    """Brokers that say of the topic that something is wrong with it, so many times."""

    def list_topics(self, topic: str, timeout: float) -> object:
        self.asked += 1
        self.silence -= 1
        said = self._failure if self.silence >= 0 else None
        return SimpleNamespace(topics={topic: _Topic(error=said, partitions={} if said else {0: None})})


def test_without_an_answer_a_partition_may_be_there() -> None:
    """Unknown is not absent: the brokers are asked again until one answers."""
    brokers = _Brokers(silence=2)
    settings = LogSettings(bootstrap_servers="127.0.0.1:1")
    found = bounds(cast("Consumer", brokers), TopicPartition("shop.progress", 0), settings)
    assert (found, brokers.asked) == ((3, 7), 2)


@pytest.mark.parametrize("failure", [KafkaError._DESTROY_BROKER, KafkaError._TIMED_OUT])
@pytest.mark.parametrize("refusal", [KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART])
@pytest.mark.parametrize("brokers", [_Brokers, _Naming])
def test_h580_a_broker_that_went_says_nothing_of_topics(brokers: type[_Brokers], refusal: int, failure: int) -> None:
    """It is forgotten while it is asked, and what is known of the topic then is nothing."""
    asked = brokers(2, refusal, failure)
    settings = LogSettings(bootstrap_servers="127.0.0.1:1")
    assert bounds(cast("Consumer", asked), TopicPartition("shop.progress", 0), settings) == (3, 7)
    assert asked.asked == 2


def test_h580_a_topic_that_the_brokers_refuse_is_not_asked_again() -> None:
    asked = _Naming(9, failure=KafkaError.UNKNOWN_TOPIC_OR_PART)
    # Nobody listens on port 1, so no broker says which topics there are instead.
    with pytest.raises(LogError, match="did not know the topic for a moment"):
        bounds(cast("Consumer", asked), TopicPartition("t", 0), LogSettings(bootstrap_servers="127.0.0.1:1"))
    assert asked.asked == 1


def test_a_partition_that_a_known_topic_lacks_does_not_exist() -> None:
    asked = _Naming(-1)
    with pytest.raises(TopicError, match="partition 2 does not exist"):
        bounds(cast("Consumer", asked), TopicPartition("t", 2), LogSettings(bootstrap_servers="127.0.0.1:1"))


def _partitions(asked: _Brokers, waiting: Callable[[], None] | None = None) -> list[int]:
    return known_partitions(cast("Consumer", asked), "shop.t", LogSettings(bootstrap_servers="127.0.0.1:1"), waiting)


def test_h580_partitions_that_are_not_known_are_not_none() -> None:
    """A table's topic was read as an empty one, and its rows that were gone from the table stayed."""
    assert _partitions(_Brokers(2)) == [0, 1]
    assert _partitions(_Naming(2, failure=KafkaError.LEADER_NOT_AVAILABLE)) == [0]
    with pytest.raises(LogError, match="did not know the topic for a moment"):
        _partitions(_Naming(9, failure=KafkaError.UNKNOWN_TOPIC_OR_PART))
    with pytest.raises(LogError, match="lacks the right Read on the topic"):
        _partitions(_Naming(9, failure=KafkaError.TOPIC_AUTHORIZATION_FAILED))


def test_h580_whoever_waits_for_partitions_may_give_up() -> None:
    def given_up() -> None:
        raise _GivenUp

    with pytest.raises(_GivenUp):
        _partitions(_Brokers(2), given_up)


def test_h449_a_closed_consumer_goes_without_the_collector() -> None:
    """``cdc view run`` looks at a topic every ten seconds, and its collector does not come for hours."""
    brokers = _Brokers(silence=1)
    left, settings = weakref.ref(brokers), LogSettings(bootstrap_servers="127.0.0.1:1")
    gc.disable()
    try:
        assert bounds(cast("Consumer", brokers), TopicPartition("shop.views", 0), settings) == (3, 7)
        del brokers
        assert left() is None
    finally:
        gc.enable()


@dataclass(frozen=True)
class _Said:
    """A record, or the end of a partition."""

    at: int
    end: bool = False

    def error(self) -> KafkaError | None:
        return KafkaError(KafkaError._PARTITION_EOF) if self.end else None

    def offset(self) -> int:
        return self.at


class _Replica:
    """A partition of which the leader says these ends, one after the other, and a replica shows this."""

    def __init__(self, ends: list[int], shown: list[_Said]) -> None:
        self._ends, self._shown = ends, shown

    def get_watermark_offsets(self, where: TopicPartition, timeout: float) -> tuple[int, int]:
        return 0, self._ends.pop(0) if len(self._ends) > 1 else self._ends[0]

    def assign(self, places: list[TopicPartition]) -> None:
        pass

    def unassign(self) -> None:
        pass

    def poll(self, timeout: float) -> _Said | None:
        return self._shown.pop(0) if self._shown else None

    def consume(self, most: int, timeout: float) -> list[_Said]:
        return []


def _offsets_read(ends: list[int], shown: list[_Said]) -> list[int]:
    settings = LogSettings(bootstrap_servers="127.0.0.1:1")
    return [m.offset() or 0 for m in read_on(cast("Consumer", _Replica(ends, shown)), settings, "shop.state", 0)]


def test_h584_a_replica_that_lags_hides_no_record() -> None:
    """With ``client.rack`` each look at the state lacked what was written last."""
    assert _offsets_read([3], [_Said(0), _Said(1), _Said(2, end=True), _Said(2)]) == [0, 1, 2]
    with pytest.raises(LogError, match="sent nothing"):
        _offsets_read([3], [_Said(0), _Said(1), _Said(2, end=True)])


def test_h584_records_that_are_gone_meanwhile_are_not_waited_for() -> None:
    """Behind an unclean election the partition ends below where it did."""
    assert _offsets_read([3, 2], [_Said(0), _Said(1), _Said(2, end=True)]) == [0, 1]
