"""How far a followed topic is read before it counts as read to its end, on a consumer in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from cdc.settings.model import LogSettings
from connectors.kafka.feed import CompactedFeed


@dataclass(frozen=True)
class _Come:
    """A record, or the end as the replica has it."""

    at: int
    end: bool = False

    def error(self) -> KafkaError | None:
        return KafkaError(KafkaError._PARTITION_EOF) if self.end else None

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes:
        return b"%d" % self.at

    def value(self) -> bytes:
        return b"{}"


class _ByReplica:
    """What a replica shows at each look, and the leader's ends. One that is None is not said in time: ``failure``."""

    def __init__(self, shown: list[_Come | None], ends: list[int | None], failure: int) -> None:
        self._shown, self.ends, self._failure = shown, ends, failure

    def assign(self, partitions: list[TopicPartition], /) -> None:
        pass

    def poll(self, timeout: float, /) -> Message | None:
        return cast("Message | None", self._shown.pop(0))

    def consume(self, num_messages: int, timeout: float) -> list[Message]:
        return []

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int] | None:
        end = self.ends.pop(0)
        if end is None:
            raise KafkaException(KafkaError(self._failure))
        return 0, end

    def close(self) -> None:
        pass


def _looks(shown: list[_Come | None], ends: list[int | None], failure: int = KafkaError._TIMED_OUT) -> list[bool]:
    """After each look, whether the topic was read to its end."""
    consumer, looks = _ByReplica(shown, ends, failure), len(shown)
    feed = CompactedFeed(LogSettings(bootstrap_servers="none:9092"), "shop.state", consumer)
    found = []
    for _ in range(looks):
        feed.poll(0)
        found.append(feed.caught_up)
    assert consumer.ends == [], "each is asked for, and none once the end was read"
    return found


def test_h584_a_replicas_end_is_not_the_end() -> None:
    """Requests were worked off by a state that lacked what was written last."""
    shown = [_Come(0), _Come(1, end=True), None, _Come(1), _Come(2, end=True), None]
    assert _looks(shown, [2, 2, 2]) == [False, False, False, False, True, True]


@pytest.mark.parametrize("failure", [KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE])
def test_h584_a_leader_that_says_nothing_is_asked_again(failure: int) -> None:
    """A broker that stood still as a session began ended it: the question had not even been sent."""
    looks = _looks([_Come(0), _Come(1, end=True), None, None], [None, 1], failure)
    assert looks == [False, False, True, True]
