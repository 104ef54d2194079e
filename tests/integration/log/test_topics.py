"""Topics that go while they are looked at."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its __init__ re-exports without saying so
    AdminClient,
    ConfigResource,
)
from pytest import LogCaptureFixture

from cdc.capture.topic_specs import table_topic_spec
from cdc.process.errors import Exit, LogError
from cdc.settings.model import LogSettings, parse
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.clients import client_config
from connectors.kafka.topic_problems import copy_problems, spec_problems
from tests.waiting import wait_until


def test_h62_a_topic_goes_while_it_is_described(kafka: str, topic_prefix: str) -> None:
    """A description asks twice, for the topic and for its settings. One that goes in between is none, and no error."""
    document = {
        "name": topic_prefix,
        "source": {"dsn": "host=none", "tables": ["public.*"]},
        "log": {"bootstrap_servers": kafka, "partitions": 1},
    }
    log = parse(document).log
    goes, stays = f"{topic_prefix}.public.goes", f"{topic_prefix}.public.stays"
    other = TopicAdmin(log)
    other.create(table_topic_spec(log, topic) for topic in (goes, stays))

    class Between(TopicAdmin):
        """Another client deletes one of them between the two questions."""

        def _configs(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
            other.delete([goes])
            wait_until(lambda: goes not in other.names(), 60)
            return super()._configs(topics)

    assert sorted(Between(log).describe([goes, stays])) == [stays]
    assert not other.describe([goes])


class LaggingClient(AdminClient):
    """The broker that is asked for settings does not know a new topic yet, so many times."""

    def __init__(self, config: dict[str, Any], times: int) -> None:
        super().__init__(config)
        self.left = times

    def describe_configs(  # type: ignore[override]  # as AdminClient itself does
        self, resources: list[ConfigResource], **limits: Any
    ) -> dict[ConfigResource, Future[Any]]:
        if self.left <= 0:
            return super().describe_configs(resources, **limits)
        self.left -= 1
        answers: dict[ConfigResource, Future[Any]] = {resource: Future() for resource in resources}
        for answer in answers.values():
            answer.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
        return answers


def test_h62_a_broker_that_lags_behind_is_asked_again(kafka: str, topic_prefix: str) -> None:
    """One broker of several names the topic that was just made, and the next one does not know it: init ended there."""
    log, topic = log_of(kafka, topic_prefix), f"{topic_prefix}.public.t"
    admin = TopicAdmin(log)
    admin._client = client = LaggingClient(client_config(log), 3)
    assert admin.create([table_topic_spec(log, topic)]) == [topic]
    assert client.left == 0
    client.left = 3
    assert [*admin.describe([topic])] == [topic]
    assert client.left == 0


def log_of(kafka: str, name: str, **more: object) -> LogSettings:
    source = {"dsn": "host=none", "tables": ["public.*"]}
    return parse({"name": name, "source": source, "log": {"bootstrap_servers": kafka, "partitions": 1, **more}}).log


def test_x8_the_brokers_choose_how_many_copies_there_are(kafka: str, topic_prefix: str) -> None:
    log, topic = log_of(kafka, topic_prefix), f"{topic_prefix}.public.t"
    admin = TopicAdmin(log)
    assert admin.create([table_topic_spec(log, topic)]) == [topic]
    facts = admin.describe([topic])
    assert facts[topic].replication_factor == 1
    assert admin.brokers() == 1
    assert not copy_problems(facts, 1)
    [problem] = copy_problems(facts, 3)
    assert f"{topic} has one copy, and the cluster has 3 brokers" in problem.message
    assert not problem.fatal


def test_x8_a_refused_topic_says_the_brokers_reason(kafka: str, topic_prefix: str) -> None:
    log = log_of(kafka, topic_prefix, replication_factor=3)
    with pytest.raises(LogError) as refused:
        TopicAdmin(log).create([table_topic_spec(log, f"{topic_prefix}.public.t")])
    assert "replication factor" in refused.value.message.lower()
    assert "replication_factor = -1" in refused.value.hint
    assert refused.value.exit is Exit.CONFIG


def test_x8_a_setting_without_a_promise_is_given_up(kafka: str, topic_prefix: str, caplog: LogCaptureFixture) -> None:
    """As where a provider keeps settings of topics to itself."""
    log, topic = log_of(kafka, topic_prefix), f"{topic_prefix}.public.t"
    spec = table_topic_spec(log, topic)
    with caplog.at_level("INFO"):
        made = TopicAdmin(log).create([replace(spec, config={**spec.config, "segment.bytes": "none"})])
    assert made == [topic]
    assert "topic_settings_refused" in caplog.messages
    assert not spec_problems(spec, TopicAdmin(log).describe([topic])[topic])
    with pytest.raises(LogError, match=r"cleanup\.policy"):
        TopicAdmin(log).create([replace(spec, topic=f"{topic}2", config={"cleanup.policy": "none"})])
