"""A view's topic on a real broker: transactions, what stands behind known ends, and a second runner."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cdc.errors import ActiveError
from cdc.settings import Settings, parse
from cdc.topic import view_topic, views_topic
from cdc.topic_specs import table_topic_spec
from cdc.views.fences import Fence
from cdc.views.view_records import ViewRecord
from cdc.wire.records import BEGINNING, Span
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.clients import fetching_config
from connectors.kafka.record_reader import KafkaReading
from connectors.view_log import KafkaViewOutput

_PARTITIONS = 2


@pytest.fixture
def settings(kafka: str, topic_prefix: str) -> Iterator[Settings]:
    document = {
        "name": topic_prefix,
        "source": {"dsn": "host=none", "tables": ["public.*"]},
        "log": {"bootstrap_servers": kafka, "partitions": _PARTITIONS},
    }
    made = parse(document)
    specs = [
        table_topic_spec(made.log, view_topic(made.name, "v", 1)),
        table_topic_spec(made.log, views_topic(made.name)),
    ]
    TopicAdmin(made.log).create(specs)
    yield made


def _output(settings: Settings) -> KafkaViewOutput:
    return KafkaViewOutput(settings, "v", 1, view_topic(settings.name, "v", 1), _PARTITIONS)


def _record(settings: Settings, partition: int, key: str) -> ViewRecord:
    headers = [("pos", b"0" * 32), ("op", b"c"), ("ver", b"1")]
    return ViewRecord(view_topic(settings.name, "v", 1), partition, key.encode(), b"{}", headers)


def _read(settings: Settings, ends: dict[int, int]) -> list[bytes | None]:
    reader = KafkaReading(tuple(sorted(fetching_config(settings.log).items()))).open()
    try:
        spans = [Span(view_topic(settings.name, "v", 1), partition, BEGINNING, end) for partition, end in ends.items()]
        return [key for lot in reader.read(spans) for key in lot.keys]
    finally:
        reader.close()


def test_v4_what_stands_behind_known_ends_is_found(settings: Settings) -> None:
    first = _output(settings)
    assert first.behind({}) == ([], {})
    assert first.claimed() is None
    ends = first.publish([_record(settings, 0, "a"), _record(settings, 1, "b")], Fence(1, 800))
    assert first.claimed() == Fence(1, 800)
    first.publish([_record(settings, 0, "c")], None)
    again = _output(settings)
    keys, reached = again.behind(ends)
    assert keys == [b"c"]
    # A transaction's end takes an offset of its own, so the ends lie beyond the number of records.
    assert reached[0] > ends[0]
    assert again.claimed() == Fence(1, 800)
    assert sorted(key or b"" for key in _read(settings, dict(reached))) == [b"a", b"b", b"c"]


def test_h16_a_second_runner_ends_the_first(settings: Settings) -> None:
    first = _output(settings)
    first.publish([_record(settings, 0, "a")], None)
    second = _output(settings)
    with pytest.raises(ActiveError, match="another runner keeps this view now"):
        first.publish([_record(settings, 0, "of the first")], Fence(1, 8))
    second.publish([_record(settings, 0, "b")], Fence(1, 16))
    assert second.claimed() == Fence(1, 16)
    keys, _ = second.behind({})
    assert keys == [b"a", b"b"]
