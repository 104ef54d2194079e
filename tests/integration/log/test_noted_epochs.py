"""Notes of epochs on a real broker: topics that are made anew, and tables that are read anew."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from cdc.epochs import EpochsState
from cdc.settings import Settings, parse
from cdc.topic import state_topic
from cdc.topic_specs import table_topic_spec
from connectors.connect.connector_epochs import NotedEpochs, begin_table_again, next_epoch, read_epochs, repeated
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.clients import producer_config
from tests.waiting import wait_until

_AT_MS = 1_790_000_000_000


@pytest.fixture
def settings(kafka: str, topic_prefix: str) -> Settings:
    return parse(
        {
            "name": topic_prefix,
            "source": {"kind": "debezium", "dsn": "host=h user=cdc dbname=app", "tables": ["s.*"]},
            "log": {"bootstrap_servers": kafka, "partitions": 1},
        }
    )


def _written(settings: Settings, table: str, count: int) -> str:
    """A topic of a pattern's table, which no note is kept of, with records a second apart. Returns its name."""
    topic = f"{settings.name}.s.{table}"
    TopicAdmin(settings.log).create([table_topic_spec(settings.log, topic)])
    producer = Producer(producer_config(settings.log))
    for number in range(count):
        producer.produce(topic, b"{}", b"%d" % number, timestamp=_AT_MS + 1000 * number)
    assert producer.flush(30) == 0
    return topic


def _noted(settings: Settings) -> EpochsState:
    """As the sinks of a run read the notes."""
    return NotedEpochs(settings, list).read()


@pytest.mark.slow
def test_h232_a_topic_made_anew_is_no_epochs_that_is_over(settings: Settings) -> None:
    topic = _written(settings, "t", 3)
    assert next_epoch(settings) == 2
    assert [_noted(settings).epoch(topic, 0, offset) for offset in (2, 3)] == [1, 2]
    admin = TopicAdmin(settings.log)
    admin.delete([topic])
    wait_until(lambda: topic not in admin.names(), 60)
    _written(settings, "t", 2)
    assert _noted(settings).epoch(topic, 0, 0) == 2
    place = (topic, 0, 1, _AT_MS + 1000)
    assert repeated(settings, [place]) == [place], "its first record is of the latest epoch"
    assert next_epoch(settings) == 3
    found = read_epochs(settings)
    assert [found.epoch(topic, 0, offset) for offset in (0, 1, 2)] == [2, 2, 3]
    assert state_topic(settings.name) in found.starts
    assert set(found.topic_ids) == {topic}, "a sink may look at the topics of tables alone"


@pytest.mark.slow
def test_h233_a_table_that_is_read_anew_frees_no_other(settings: Settings) -> None:
    """What the others have in the latest epoch is of the new one, and nothing sweeps a row under a former key there."""
    again, other = _written(settings, "again", 3), _written(settings, "other", 3)
    next_epoch(settings)
    _written(settings, "again", 2)
    epochs = NotedEpochs(settings, list)
    for topic in (again, other):
        epochs.keyed_anew(topic, 2)
    begin_table_again(settings, again, 0, 4, _AT_MS + 1000)
    found = read_epochs(settings)
    assert (found.latest, found.rekeyed()) == (3, frozenset({other}))
    assert [found.epoch(other, 0, offset) for offset in (2, 3)] == [1, 3]
