"""Topics read whole, with what other readers pass over, and the dead letters' topic trimmed: for ``cdc forget``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its __init__ re-exports without saying so
    AdminClient,
    ConfigResource,
    ResourceType,
)

from cdc.errors import LogError, TopicError
from cdc.forget.key_history import SeenRecord
from cdc.forget.letter_history import SeenLetter
from cdc.forget.rules import TopicOptions
from cdc.settings import LogSettings
from connectors.kafka.clients import client_config, reader_config
from connectors.kafka.compacted import known_partitions, log_error, read_on
from connectors.kafka.dead_letters import letter_of

_TIMEOUT_S = 15.0


class WholeTopics:
    """Implements :class:`cdc.forget.ports.ForgetLog`. ``dead``: the dead letters' topic."""

    def __init__(self, settings: LogSettings, dead: str) -> None:
        self._settings = settings
        self._dead = dead

    def records(self, topic: str) -> Iterator[SeenRecord]:
        for partition, message in self._messages(topic):
            yield _seen(partition, message)

    def _messages(self, topic: str) -> Iterator[tuple[int, Message]]:
        # Records of an aborted transaction are in the files as well.
        with closing(Consumer(reader_config(self._settings) | {"isolation.level": "read_uncommitted"})) as consumer:
            for partition in known_partitions(consumer, topic, self._settings):
                for message in read_on(consumer, self._settings, topic, partition):
                    yield partition, message

    def options(self, topic: str) -> TopicOptions:
        admin, asked = AdminClient(client_config(self._settings)), ConfigResource(ResourceType.TOPIC, topic)
        try:
            entries = admin.describe_configs([asked], request_timeout=_TIMEOUT_S)[asked].result(_TIMEOUT_S + 5)
        except KafkaException as error:
            raise log_error(error.args[0], f"asking for the settings of {topic}", self._settings, topic) from None
        except TimeoutError:
            raise LogError(f"asking for the settings of {topic}: no answer", hint="check the brokers") from None
        return TopicOptions.of({name: entry.value for name, entry in entries.items() if entry.value is not None})

    def letters(self) -> Sequence[SeenLetter]:
        try:
            return [
                SeenLetter(message.offset() or 0, message.timestamp()[1], letter_of(message))
                for _, message in self._messages(self._dead)
            ]
        except TopicError:
            return []

    def trim_letters(self, below: int) -> None:
        admin, where = AdminClient(client_config(self._settings)), TopicPartition(self._dead, 0, below)
        try:
            admin.delete_records([where], request_timeout=_TIMEOUT_S)[where].result(_TIMEOUT_S + 5)
        except KafkaException as error:
            raise log_error(error.args[0], f"deleting records of {self._dead}", self._settings, self._dead) from None
        except TimeoutError:
            raise LogError(f"deleting records of {self._dead}: no answer", hint="check the brokers") from None


def _seen(partition: int, message: Message) -> SeenRecord:
    headers: Any = message.headers() or ()
    return SeenRecord(
        partition=partition,
        offset=message.offset() or 0,
        time_ms=message.timestamp()[1],
        key=_bytes(message.key()),
        value=_bytes(message.value()),
        headers={name: value for name, value in headers if isinstance(value, bytes)},
    )


def _bytes(value: object) -> bytes | None:
    return value if isinstance(value, bytes) else None
