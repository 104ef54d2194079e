"""The options of Kafka's clients: what each means to librdkafka, to Java, and to neither."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc.process.errors import ConfigError
from cdc.settings.client_options import (
    OPTIONS,
    Value,
    java_options,
    librdkafka_options,
    meaning,
    require_allowed,
    unused_options,
)
from cdc.settings.model import parse
from connectors.kafka.clients import fetching_config, producer_config
from tests.examples import examples

CONFLUENT: dict[str, Value] = {
    # As Confluent Cloud prints it for librdkafka and for Java, less what the settings say elsewhere.
    "security.protocol": "SASL_SSL",
    "sasl.mechanisms": "PLAIN",
    "sasl.username": "KEY",
    "sasl.password": "SECRET",
    "session.timeout.ms": 45000,
    "client.id": "ccloud-python-client",
    "client.dns.lookup": "use_all_dns_ips",
    "acks": "all",
    "linger.ms": 20,
    "retries": 3,
    "auto.offset.reset": "earliest",
    "group.id": "python-group-1",
    "schema.registry.url": "https://registry",
    "basic.auth.credentials.source": "USER_INFO",
    "key.serializer": "org.apache.kafka.common.serialization.StringSerializer",
}


def document(client: dict[str, Value]) -> dict[str, object]:
    log = {"bootstrap_servers": "127.0.0.1:1", "client": client}
    return {"name": "shop", "source": {"dsn": "host=none", "tables": ["public.t"]}, "log": log}


def test_x8_confluents_sample_is_taken_by_every_client() -> None:
    log = parse(document(CONFLUENT)).log
    produced, fetched = producer_config(log), fetching_config(log)
    Producer(produced).flush(0)
    Consumer(fetched).close()
    assert produced["linger.ms"] == 20
    assert fetched["group.id"] == "cdc-sink"
    assert "session.timeout.ms" not in produced
    java = java_options(librdkafka_options(CONFLUENT))
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="KEY" password="SECRET";'
    assert java == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": login,
        "client.id": "ccloud-python-client",
        "client.dns.lookup": "use_all_dns_ips",
    }
    assert unused_options(CONFLUENT) == [
        "session.timeout.ms", "retries", "auto.offset.reset", "group.id", "schema.registry.url",
        "basic.auth.credentials.source", "key.serializer",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("acks", 1, '"acks" is always "all"'),
        ("enable.idempotence", False, '"enable.idempotence" is always "true"'),
        ("transactional.id", "mine", "promises rest on it"),
        ("isolation.level", "read_uncommitted", 'always "read_committed"'),
        ("compression.type", "zstd", r"\[log\] compression"),
        ("bootstrap.servers", "a:1", r"\[log\] bootstrap_servers"),
        ("sasl.jaas.config", "x", '"sasl.username" here'),
        ("ssl.truststore.location", "x.jks", "PEM file"),
        ("sasl.mechanism", "AWS_MSK_IAM", "OAUTHBEARER"),
    ],
)
def test_x8_an_option_that_is_ours_is_refused(name: str, value: Value, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        parse(document({name: value}))
    assert "log.client" in refused.value.message


def test_x8_a_secret_option_is_judged_by_its_name() -> None:
    with pytest.raises(ConfigError, match=r"sasl\.username"):
        parse({**document({}), "log": {"bootstrap_servers": "a:1", "client_secrets": {"sasl.jaas.config": "env:X"}}})


@settings(max_examples=examples(200))
@given(st.dictionaries(st.sampled_from(sorted(OPTIONS)) | st.text(min_size=1), st.text(max_size=5)))
def test_x8_what_is_passed_says_the_same_twice(client: dict[str, Value]) -> None:
    """Options by librdkafka's names are taken as they are, and none that the table names is both passed and unused."""
    once = librdkafka_options(client)
    assert librdkafka_options(once) == once
    assert not set(unused_options(client)) & set(once)
    assert {name for name in client if meaning(name) is None} <= set(once)
    try:
        require_allowed(once)
    except ValueError as refused:
        assert "AWS_MSK_IAM" in str(refused)


def test_x8_the_manual_names_every_option_of_the_table() -> None:
    manual = Path("connectors/kafka/README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z.]+)`", manual[manual.index("### Client options") :]))
    assert {name for name in OPTIONS if name not in named} == set()
