"""The dead letters' topic, ``<name>.dead``: read whole, appended to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from cdc.process.errors import LogError
from cdc.settings.model import LogSettings
from cdc.wire.dead_letter import DeadLetter
from connectors.kafka.clients import producer_config
from connectors.kafka.compacted_topic import flush, log_error, read_range

_TIMEOUT_S = 30.0


class DeadLetterTopic:
    """One partition, never compacted: letters stand in the order in which they were written.

    Brokers that do not take a letter within 30 s are an error. With ``waiting`` they are waited for, however long that
    takes: it is called several times a second, and gives up by raising.
    """

    def __init__(self, settings: LogSettings, topic: str, *, waiting: Callable[[], None] | None = None) -> None:
        self._settings = settings
        self._topic = topic
        self._waiting = waiting

    def read(self) -> Iterator[DeadLetter]:
        """Every letter, in order, as far as the topic's end at the call. A record that is no letter is passed over."""
        for message in read_range(self._settings, self._topic, 0):
            letter = letter_of(message)
            if letter is not None:
                yield letter

    def write(self, letters: Iterable[DeadLetter]) -> None:
        """Append and return when the broker holds them all. LogError otherwise."""
        producer = Producer(_config(self._settings, 0 if self._waiting is not None else _TIMEOUT_S))
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                failures.append(error)

        for letter in letters:
            headers: Any = letter.record_headers()
            producer.produce(
                self._topic, value=letter.value, key=letter.key, partition=0, headers=headers, on_delivery=delivered
            )
        left = flush(producer, self._waiting)
        if failures:
            raise log_error(failures[0], f"writing {self._topic}", self._settings, self._topic)
        if left:
            raise LogError(
                f"writing {self._topic}: {left} letters unanswered after {_TIMEOUT_S:g} s", hint="check the brokers"
            )


def _config(settings: LogSettings, timeout_s: float) -> dict[str, Any]:
    """A letter holds a whole record and the reason: it may be twice as large (see the topic's own limit)."""
    return producer_config(settings) | {
        "message.timeout.ms": int(timeout_s * 1000),
        "message.max.bytes": 2 * settings.max_message_bytes + 64 * 1024,
    }


def letter_of(message: Message) -> DeadLetter | None:
    """A record as the letter it is. None where it is none."""
    try:
        return DeadLetter.from_record(_bytes(message.key()), _bytes(message.value()), _headers(message))
    except (KeyError, ValueError):
        return None


def _headers(message: Message) -> list[tuple[str, bytes | None]]:
    headers: Any = message.headers() or ()
    return [(name, _bytes(value)) for name, value in headers]


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
