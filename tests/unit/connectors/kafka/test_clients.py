"""What Kafka's clients are told."""

from __future__ import annotations

from contextlib import closing

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from cdc.process.errors import LogError
from cdc.settings.model import LogSettings
from connectors.kafka.clients import fetching_config, producer_config, raise_refused


def test_a_reader_logs_little_while_a_broker_is_away(capfd: pytest.CaptureFixture[str]) -> None:
    # Nobody listens on port 1. It had written twenty lines a second (lab: pipeline_kills seed 0).
    with closing(Consumer(fetching_config(LogSettings(bootstrap_servers="127.0.0.1:1")))) as consumer:
        consumer.assign([TopicPartition("shop.public.t", 0, 0)])
        assert consumer.poll(1) is None
    assert capfd.readouterr().err == ""


def test_h57_a_producer_gives_no_record_up_by_itself() -> None:
    user = LogSettings(bootstrap_servers="none:1", client={"linger.ms": 5})
    config = producer_config(user)
    # 0 is "for ever": a record that times out in a stall of the broker is one that nobody sends again.
    assert config["message.timeout.ms"] == 0
    assert (config["enable.idempotence"], config["acks"]) == (True, "all")


def test_a_connection_that_breaks_within_a_login_is_no_refusal() -> None:
    broken = "SASL PLAIN mechanism handshake failed: Local: Broker transport failure: mechanisms: (n/a)"
    raise_refused("localhost:9092", KafkaError(KafkaError._AUTHENTICATION, broken))
    with pytest.raises(LogError, match="refuses the login"):
        raise_refused("localhost:9092", KafkaError(KafkaError._AUTHENTICATION, "SASL authentication error"))
