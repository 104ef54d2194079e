"""What Kafka's clients are told."""

from __future__ import annotations

from contextlib import closing

import pytest
from confluent_kafka import Consumer, TopicPartition

from cdc.settings.model import LogSettings
from connectors.kafka.clients import fetching_config, producer_config


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
