"""Why the broker did not take a record, in one sentence that holds no row data."""

from __future__ import annotations

import hashlib

from confluent_kafka import KafkaError

from cdc.errors import CdcError, PoisonError, TopicError
from cdc.settings import LogSettings
from connectors.kafka.compacted import log_error

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
