"""Where a time stands in the log: the first offset of each partition that is not older."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaException, TopicPartition

from cdc.progress import Offsets
from cdc.settings import LogSettings
from connectors.kafka.clients import reader_config
from connectors.kafka.compacted import log_error

_TIMEOUT_S = 30.0


def offsets_at(settings: LogSettings, ends: Offsets, times_ms: Mapping[str, int]) -> dict[str, dict[int, int]]:
    """The first offset whose record is as old as the topic's time in ``times_ms`` (since 1970) or younger. The
    partition's end, of ``ends``, where there is none. LogError when the broker does not answer."""
    asked = [TopicPartition(topic, p, times_ms[topic]) for topic, parts in ends.items() for p in parts]
    consumer = Consumer(reader_config(settings))
    try:
        answered = consumer.offsets_for_times(asked, timeout=_TIMEOUT_S) if asked else []
    except KafkaException as failure:
        raise log_error(failure.args[0], "asking Kafka for the offsets of a time", settings) from None
    finally:
        consumer.close()
    found: dict[str, dict[int, int]] = {}
    for place in answered:
        if place.error is not None:
            raise log_error(place.error, "asking Kafka for the offsets of a time", settings)
        end = ends[place.topic][place.partition]
        found.setdefault(place.topic, {})[place.partition] = place.offset if place.offset >= 0 else end
    return found
