"""A runner that is asked for documents once more and is not there: the wish stays, and stands in nobody's way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.capture.topic_specs import table_topic_spec
from cdc.process.clock import SYSTEM_CLOCK
from cdc.record.topic_names import VIEW_SCHEMA, TableName, state_topic, views_topic
from cdc.settings.model import Settings
from cdc.verification.repair import RunnerSilent
from cdc.views.known_views import KnownView
from cdc.views.view_ports import AskedKeys, RunnerAnswer, answer_key, asked_of
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted_topic import KafkaCompactedTopic
from connectors.views.view_recomputing import KafkaRunners

VIEW = TableName(VIEW_SCHEMA, "v")


@pytest.fixture
def settings(kafka: str, topic_prefix: str) -> Settings:
    """A pipeline with one view that was published, and no runner."""
    made = Settings.model_validate(
        {
            "name": topic_prefix,
            "source": {"dsn": "postgresql://u@h/d", "tables": ["public.*"]},
            "log": {"bootstrap_servers": kafka, "partitions": 1},
        }
    )
    names = (state_topic(made.name), views_topic(made.name))
    config = {"cleanup.policy": "compact"}
    TopicAdmin(made.log).create(
        [replace(table_topic_spec(made.log, name), partitions=1, config=config) for name in names]
    )
    topic = f"{made.name}.view.v.1"
    known = KnownView(view="v", generation=1, topic=topic, topic_id="i", partitions=1, digest="d", shape="{}")
    KafkaCompactedTopic(made.log, names[1]).write([(known.key, known.to_json())])
    return made


def wish_of(settings: Settings) -> AskedKeys | None:
    """What stands in the state topic."""
    documents = KafkaCompactedTopic(settings.log, state_topic(settings.name)).read()
    return asked_of(documents, f"{settings.name}.view.v.1")


@pytest.mark.slow
def test_h380_a_wish_that_nobody_answers_stays_for_a_runner(settings: Settings) -> None:
    fences: list[None] = []
    runners = KafkaRunners(settings, lambda: fences.append(None), SYSTEM_CLOCK)
    for number in (1, 2):
        with pytest.raises(RunnerSilent, match="no runner of the view v has answered within 1 s"):
            runners.recompute(VIEW, [b'{"id":%d}' % number], 1)
        left = wish_of(settings)
        assert left is not None
        assert (left.keys, left.asked_ms) == ([f'{{"id":{number}}}'], 0)
    assert len(fences) == 2, "behind each wish"


def test_h380_a_second_repair_of_a_view_is_told(settings: Settings) -> None:
    now_ms = SYSTEM_CLOCK.now_ns() // 1_000_000
    other = AskedKeys(topic=f"{settings.name}.view.v.1", id="other", keys=["{}"], asked_ms=now_ms)
    KafkaCompactedTopic(settings.log, state_topic(settings.name)).write([(other.key(), other.to_json())])
    runners = KafkaRunners(settings, lambda: None, SYSTEM_CLOCK)
    with pytest.raises(RunnerSilent, match="another cdc verify --repair waits"):
        runners.recompute(VIEW, [b'{"id":1}'], 1)
    assert wish_of(settings) == other, "it is left alone"


@pytest.mark.slow
def test_h552_a_killed_repair_is_waited_for_until_its_answer(settings: Settings) -> None:
    now_ms = SYSTEM_CLOCK.now_ns() // 1_000_000
    killed = AskedKeys(topic=f"{settings.name}.view.v.1", id="killed", keys=["{}"], asked_ms=now_ms)
    KafkaCompactedTopic(settings.log, state_topic(settings.name)).write([(killed.key(), killed.to_json())])
    answers = KafkaCompactedTopic(settings.log, views_topic(settings.name))
    runners = KafkaRunners(settings, lambda: None, SYSTEM_CLOCK)
    answers.write([(answer_key("v", 1), RunnerAnswer(id="earlier").to_json())])
    with pytest.raises(RunnerSilent, match="another cdc verify --repair waits"):
        runners.recompute(VIEW, [b'{"id":1}'], 1)
    answers.write([(answer_key("v", 1), RunnerAnswer(id="killed").to_json())])
    with pytest.raises(RunnerSilent, match="no runner of the view v has answered"):
        runners.recompute(VIEW, [b'{"id":1}'], 1)
