"""A look at the topics' ends never waits, and gets over brokers that stood still."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from connectors.kafka.topic_ends import EndsWatch

NO_LEADER = KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))


class Brokers:
    """Answers when told to; what the client remembers of a partition without a leader stays until it looks again."""

    def __init__(self) -> None:
        self.open: dict[TopicPartition, Future[Any]] = {}
        self.remembered = False
        self.silent = False

    def ask_ends(self, asked: list[TopicPartition]) -> Mapping[TopicPartition, Future[Any]]:
        self.open = {where: Future() for where in asked}
        return self.open

    def look_again(self, timeout_s: float) -> None:
        assert timeout_s <= 1
        if self.silent:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        self.remembered = False

    def answer(self) -> None:
        for where, future in self.open.items():
            if self.remembered and where.partition == 1:
                future.set_exception(NO_LEADER)
            else:
                future.set_result(SimpleNamespace(offset=10 + where.partition))


def test_h76_an_answer_comes_at_the_next_look_without_waiting() -> None:
    brokers = Brokers()
    watch = EndsWatch(brokers, {"t": 2})
    assert watch.look() is None
    assert watch.look() is None, "nobody has answered"
    brokers.answer()
    assert watch.look() == {"t": {0: 10, 1: 11}}


def test_h76_after_a_stall_every_partition_is_watched_again() -> None:
    brokers = Brokers()
    watch = EndsWatch(brokers, {"t": 2})
    watch.look()
    brokers.remembered = brokers.silent = True
    for _ in range(2):
        brokers.answer()
        assert watch.look() == {"t": {0: 10}}
    brokers.silent = False
    brokers.answer()
    assert watch.look() == {"t": {0: 10}}
    brokers.answer()
    assert watch.look() == {"t": {0: 10, 1: 11}}
