"""A view's topic on a real broker: transactions, what stands behind known ends, and a second runner."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Producer

from cdc.capture.topic_specs import table_topic_spec
from cdc.process.clock import SYSTEM_CLOCK
from cdc.process.errors import ActiveError
from cdc.record.progress import PROGRESS_KEY, Progress
from cdc.record.topic_names import progress_topic, view_topic, views_topic
from cdc.settings.model import Settings, parse
from cdc.views.log_cut import Fence
from cdc.views.view_records import ViewRecord
from cdc.wire.records import BEGINNING, Span
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.clients import fetching_config, producer_config
from connectors.kafka.record_reader import KafkaReading
from connectors.views.view_log import KafkaViewInput, KafkaViewOutput
from tests.waiting import wait_until

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


def _claims(output: KafkaViewOutput, fence: Fence) -> None:
    """A commit is answered before its markers are in the topics: whoever reads at once may not see it yet."""
    wait_until(lambda: output.claimed() == fence, 30, output.claimed)


def test_v4_what_stands_behind_known_ends_is_found(settings: Settings) -> None:
    first = _output(settings)
    assert first.behind({}) == ([], {})
    assert first.claimed() is None
    ends = first.publish([_record(settings, 0, "a"), _record(settings, 1, "b")], Fence(1, 800))
    _claims(first, Fence(1, 800))
    first.publish([_record(settings, 0, "c")], None)
    again = _output(settings)
    keys, reached = again.behind(ends)
    assert keys == [b"c"]
    # A transaction's end takes an offset of its own, so the ends lie beyond the number of records.
    assert reached[0] > ends[0]
    assert again.claimed() == Fence(1, 800)
    assert sorted(key or b"" for key in _read(settings, dict(reached))) == [b"a", b"b", b"c"]


def test_h185_what_stands_behind_a_cut_is_seen(settings: Settings) -> None:
    topic = view_topic(settings.name, "v", 1)
    ends = _output(settings).publish([_record(settings, 0, "a")], None)
    TopicAdmin(settings.log).create([table_topic_spec(settings.log, progress_topic(settings.name))])
    with closing(KafkaViewInput(settings, 60.0, 86_400.0)) as source:
        assert (source.progress(), source.progress_ms) == (None, 0)
        assert source.beyond({topic: {}})
        # The end of a transaction is a record, too.
        wait_until(lambda: not source.beyond({topic: {0: ends[0] + 1}}), 30)
        assert source.beyond({topic: {1: 1}})
        begun_ms = SYSTEM_CLOCK.now_ns() // 1_000_000
        producer = Producer(producer_config(settings.log))
        value = Progress(epoch=1, lsn=800, offsets={topic: {0: 1}}).to_json()
        producer.produce(progress_topic(settings.name), value=value, key=PROGRESS_KEY, partition=0)
        assert producer.flush(30) == 0
        wait_until(lambda: source.progress() is not None, 30)
        assert begun_ms <= source.progress_ms <= SYSTEM_CLOCK.now_ns() // 1_000_000


def test_h16_a_second_runner_ends_the_first(settings: Settings) -> None:
    first = _output(settings)
    first.publish([_record(settings, 0, "a")], None)
    second = _output(settings)
    with pytest.raises(ActiveError, match="another runner keeps this view now"):
        first.publish([_record(settings, 0, "of the first")], Fence(1, 8))
    second.publish([_record(settings, 0, "b")], Fence(1, 16))
    _claims(second, Fence(1, 16))
    wait_until(lambda: second.behind({})[0] == [b"a", b"b"], 30, lambda: second.behind({}))
