"""Signals on a real broker: whether a snapshot of a connector may have been asked for."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from cdc.settings import Settings, parse
from cdc.topic_specs import TopicSpec
from connectors.connect.asked_snapshots import asked_for
from connectors.debezium.connector_config import signal_topic
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.clients import producer_config

_DAY_MS = 86_400_000
_NOW_MS = 1_790_000_000_000
_BLOCKING = b'{"id": "1", "type": "execute-snapshot", "data": {"type": "blocking", "data-collections": ["s.t"]}}'
_INCREMENTAL = _BLOCKING.replace(b"blocking", b"incremental")
_PAUSE = b'{"id": "2", "type": "pause-snapshot", "data": {"type": "incremental"}}'


def _settings(kafka: str, name: str, **debezium: Any) -> Settings:
    return parse(
        {
            "name": name,
            "source": {"kind": "debezium", "dsn": "host=h user=cdc dbname=app", "tables": ["s.t"]},
            "log": {"bootstrap_servers": kafka},
            "debezium": {"database_password": "${env:PASSWORD}", **debezium},
        }
    )


def _signals(settings: Settings, *signals: tuple[bytes, int]) -> None:
    topic = signal_topic(settings)
    # Kept however old: the test's own time is not the broker's.
    spec = TopicSpec(topic=topic, partitions=1, replication_factor=1, config={"retention.ms": "-1"})
    TopicAdmin(settings.log).create([spec])
    producer = Producer(producer_config(settings.log))
    for value, at_ms in signals:
        producer.produce(topic, value, b"shop", timestamp=at_ms)
    assert producer.flush(30) == 0


@pytest.mark.parametrize(
    ("signals", "asked"),
    [
        ([], False),
        ([(_BLOCKING, _NOW_MS - 60_000)], True),
        ([(_BLOCKING, _NOW_MS + 60_000)], True),
        ([(_BLOCKING, _NOW_MS - _DAY_MS - 1)], False),
        ([(_BLOCKING, _NOW_MS + 600_000)], False),
        ([(_INCREMENTAL, _NOW_MS), (_PAUSE, _NOW_MS)], False),
        ([(_PAUSE, _NOW_MS), (b"no json", _NOW_MS)], True),
    ],
)
def test_h221_a_snapshot_is_asked_for_by_a_signal(
    kafka: str, topic_prefix: str, signals: list[tuple[bytes, int]], asked: bool
) -> None:
    settings = _settings(kafka, topic_prefix)
    _signals(settings, *signals)
    assert asked_for(settings, _NOW_MS, _NOW_MS + 1000) is asked


def test_h221_what_is_not_known_is_not_denied(kafka: str, topic_prefix: str) -> None:
    """Whoever sweeps then takes rows away that are there."""
    settings = _settings(kafka, topic_prefix)
    assert asked_for(settings, _NOW_MS, _NOW_MS) is None, "there is no topic of signals"
    _signals(settings)
    assert asked_for(settings, _NOW_MS, _NOW_MS) is False
    assert asked_for(settings, _NOW_MS - _DAY_MS - 1, _NOW_MS) is None, "what the topic lost since is not known"
    for other in (
        {"signal_table": "s.signals"},
        {"snapshot_mode": "always"},
        {"options": {"snapshot.mode": "always"}},
        {"options": {"snapshot.max.threads": "4"}},
        {"database": "mongodb"},
        {"options": {"signal.enabled.channels": "kafka,file"}},
    ):
        assert asked_for(_settings(kafka, topic_prefix, **other), _NOW_MS, _NOW_MS) is None, other
    harmless = {"signal.poll.interval.ms": "100", "snapshot.delay.ms": "5"}
    assert asked_for(_settings(kafka, topic_prefix, options=harmless), _NOW_MS, _NOW_MS) is False
    native = parse(
        {"name": topic_prefix, "source": {"dsn": "host=h", "tables": ["s.t"]}, "log": {"bootstrap_servers": kafka}}
    )
    assert asked_for(native, _NOW_MS, _NOW_MS) is None


def test_h221_signals_that_are_gone_may_have_asked(kafka: str, topic_prefix: str) -> None:
    settings = _settings(kafka, topic_prefix)
    _signals(settings, (_BLOCKING, _NOW_MS - 5000), (_PAUSE, _NOW_MS - 1000))
    client = AdminClient({"bootstrap.servers": kafka})
    for left_from in (1, 2):
        places = [TopicPartition(signal_topic(settings), 0, left_from)]
        [deletion] = client.delete_records(places).values()
        deletion.result()
        assert asked_for(settings, _NOW_MS, _NOW_MS) is None
