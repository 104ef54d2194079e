"""The dead letters' topic, ``<name>.dead``: read whole, appended to, and the rows of a size that no topic takes put
aside on it.

Where the policy is ``dead-letter``, such a row is found before it is sent, by its bytes as they are: a producer that
met a refusal could not go on in order. The letter is on the topic before anything behind the record is acknowledged.
Delete events that carry a large old row go the same way. The tombstone behind each says the delete. A later row of
the key that fits is carried as ever.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from confluent_kafka import KafkaError, Message, Producer

from cdc.process.errors import CdcError, LogError, PoisonError, TopicError
from cdc.record.ports import Headers, Withheld
from cdc.record.topic_names import dead_topic
from cdc.settings.model import LogSettings, Settings
from cdc.wire.dead_letter import CAPTURE, DeadLetter, Why
from cdc.wire.format import POS
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


log = logging.getLogger(__name__)

_RECORD_BYTES = 1024
"""The bytes of a batch and a record around key, value and headers, generously."""


class OversizedLetters(Protocol):
    """Where they go."""

    def write(self, letters: Iterable[DeadLetter]) -> None:
        """Append letters. Returns when the brokers have them all, raises LogError otherwise."""


class Oversized:
    """Puts records aside. ``topics``: those of the tables whose policy is to do so. None of them: nothing is."""

    def __init__(self, settings: LogSettings, dead: OversizedLetters, topics: Iterable[str]) -> None:
        self._limit = settings.max_message_bytes
        self._dead = dead
        self._topics = frozenset(topics)

    @classmethod
    def of(
        cls, settings: Settings, tables: Mapping[str, str], *, waiting: Callable[[], None] | None = None
    ) -> Oversized:
        """By the settings. ``tables``: table -> topic. ``waiting``: see :class:`DeadLetterTopic`."""
        log_, every = settings.log, settings.log.oversized
        chosen = [topic for table, topic in tables.items() if log_.oversized_tables.get(table, every) == "dead-letter"]
        return cls(log_, DeadLetterTopic(log_, dead_topic(settings.name), waiting=waiting), chosen)

    def __bool__(self) -> bool:
        return bool(self._topics)

    def concerns(self, topic: str) -> bool:
        """Whether records of this topic may be put aside."""
        return topic in self._topics

    def too_large(self, topic: str, key: bytes, value: bytes | None) -> bool:
        """Whether a record is one that the topic does not take and the policy puts aside."""
        return value is not None and len(value) + len(key) + _RECORD_BYTES > self._limit and topic in self._topics

    def put_aside(self, topic: str, partition: int, records: Sequence[tuple[bytes, bytes, Headers]]) -> None:
        """Write the letters of records (key, value, headers). Return when the broker holds them. LogError otherwise."""
        letters = [self._letter(topic, partition, *record) for record in records]
        self._dead.write(letters)
        for letter, (_, value, _) in zip(letters, records, strict=True):
            # No key: rows stay out of logs. By the record's name cdc dead show prints it.
            log.warning("row_put_aside", extra={"record": letter.address, "bytes": len(value)})

    def _reason(self, value: bytes) -> str:
        if isinstance(value, Withheld):
            return f"the row has {len(value):,} bytes in the source, and the topic takes {self._limit:,}"
        digest = hashlib.sha256(value).hexdigest()
        return f"the record has {len(value):,} bytes, and the topic takes {self._limit:,}; value sha256:{digest}"

    def _letter(self, topic: str, partition: int, key: bytes, value: bytes, headers: Headers) -> DeadLetter:
        # A letter may be twice as large as a record. A larger value stands there as its hash.
        whole = len(value) + len(key) + 2 * _RECORD_BYTES < 2 * self._limit
        pos = dict(headers).get(POS, b"0" * 32)
        kept: list[tuple[str, Any]] = [*headers]
        return DeadLetter(
            sink=CAPTURE,
            why=Why.OVERSIZED,
            topic=topic,
            partition=partition,
            # It has no offset: its commit stands for it, so that a record that is sent again is the same letter.
            offset=int(pos[8:24], 16),
            reason=self._reason(value),
            key=key,
            value=value if whole else None,
            headers=tuple(kept),
        )


_TOO_LARGE = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE)


def key_hash(key: bytes) -> str:
    """A key as errors name it: row data stays out of them."""
    return f"sha256:{hashlib.sha256(key).hexdigest()[:16]}"


def refusal(error: KafkaError, topic: str, key: bytes | None, settings: LogSettings) -> CdcError:
    """The broker's error as one of ours. ``key`` where it is known which record it was."""
    named = _named(key)
    if error.code() in _TOO_LARGE:
        return too_large(topic, key, settings)
    found = log_error(error, f"writing a record of {topic}{named}", settings, topic)
    if isinstance(found, TopicError):
        return TopicError(f"the topic {topic} does not exist any more", hint="cdc check compares the topics")
    return found


def too_large(topic: str, key: bytes | None, settings: LogSettings) -> PoisonError:
    """The refusal of a record that is larger than its topic takes. No broker needs to be asked."""
    return PoisonError(
        f"a row of {topic}{_named(key)} is larger than the topic takes ({settings.max_message_bytes} bytes)",
        hint="raise [log] max_message_bytes and the topic's max.message.bytes, leave the large column out of the "
        "publication, or set [log] oversized to dead-letter, and cdc dead list names the key. In the source "
        "select ... from TABLE as t order by octet_length(t::text) desc limit 5 finds large rows",
    )


def _named(key: bytes | None) -> str:
    return f" with the key {key_hash(key)}" if key is not None else ""
