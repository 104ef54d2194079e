"""Where topics end, for a loop that must not wait."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Protocol

from confluent_kafka import KafkaException, TopicPartition

from cdc.progress import Offsets
from connectors.kafka.compacted import leaderless

_GLANCE_S = 1.0


class AsksEnds(Protocol):
    """The part of :class:`connectors.kafka.admin.TopicAdmin` that is used here."""

    def ask_ends(self, asked: list[TopicPartition]) -> Mapping[TopicPartition, Future[Any]]:
        """Ask for the next offsets of partitions. Each answer has an ``offset``, or raises KafkaException."""

    def look_again(self, timeout_s: float) -> None:
        """Have the client ask who leads, for at most ``timeout_s``."""


class EndsWatch:
    """The ends of topics. They are asked for at one look and returned at a later one, so that nothing waits for a slow
    broker."""

    def __init__(self, admin: AsksEnds, partitions: Mapping[str, int]) -> None:
        self._admin = admin
        self._asked = [TopicPartition(topic, p) for topic, count in partitions.items() for p in range(count)]
        self._answers: Mapping[TopicPartition, Future[Any]] = {}

    def look(self) -> Offsets | None:
        """topic -> partition -> next offset, as of some time since the look before. None while nobody answered."""
        if not all(answer.done() for answer in self._answers.values()):
            return None
        ends, led = _read(self._answers)
        # Gone before the next are made: those of thousands of partitions take megabytes.
        self._answers = {}
        if not led:
            # The brokers answer, so this takes no time. Should they stand still again, the next look comes anyway.
            with suppress(KafkaException):
                self._admin.look_again(_GLANCE_S)
        self._answers = self._admin.ask_ends(self._asked)
        return ends or None


def _read(answers: Mapping[TopicPartition, Future[Any]]) -> tuple[Offsets, bool]:
    """The offsets, and whether each partition has somebody who leads."""
    ends: dict[str, dict[int, int]] = {}
    led = True
    for where, answer in answers.items():
        error = answer.exception()
        if error is None:
            ends.setdefault(where.topic, {})[where.partition] = answer.result().offset
        elif leaderless(error):
            led = False
    return ends, led
