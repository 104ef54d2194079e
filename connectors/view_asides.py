"""Rows that the log lacks, as a view's runner asks for them: dead letters of capture, and tables set aside or read.

The documents that somebody asks the runner for stand in the same topic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer

from cdc.aside import AsideState
from cdc.dead import DeadLetter
from cdc.settings import Settings
from cdc.state import CommandState, FormState, ReadingState, RequestState, what_of
from cdc.topic import dead_topic, state_topic
from cdc.views.asked_keys import AskedKeys
from connectors.kafka.clients import reader_config
from connectors.kafka.compacted import read_on
from connectors.kafka.dead_letters import letter_of

_KINDS = frozenset(kind.WHAT for kind in (AsideState, FormState, ReadingState, RequestState, CommandState, AskedKeys))


class KafkaAsides:
    """Both topics, each read on to its end at every call. One thread at a time. LogError when no broker answers."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._consumer = Consumer(reader_config(settings.log))
        self._documents: dict[bytes, bytes] = {}
        self._next = 0

    def letters(self, start: int) -> tuple[Sequence[DeadLetter], int]:
        """See :meth:`cdc.views.view_ports.ViewInput.letters`."""
        found = []
        for message in read_on(self._consumer, self._settings.log, dead_topic(self._settings.name), 0, start):
            start = (message.offset() or 0) + 1
            letter = letter_of(message)
            if letter is not None:
                found.append(letter)
        return found, start

    def documents(self) -> Mapping[bytes, bytes]:
        """See :meth:`cdc.views.view_ports.ViewInput.documents`."""
        for message in read_on(self._consumer, self._settings.log, state_topic(self._settings.name), 0, self._next):
            self._next = (message.offset() or 0) + 1
            key, value = message.key(), message.value()
            if isinstance(key, bytes) and what_of(key) in _KINDS:
                if isinstance(value, bytes):
                    self._documents[key] = value
                else:
                    self._documents.pop(key, None)
        return self._documents

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()
