"""What Kafka's clients are told."""

from __future__ import annotations

from contextlib import closing

import pytest
from confluent_kafka import Consumer, TopicPartition

from cdc.settings import LogSettings
from connectors.kafka.clients import fetching_config


def test_a_reader_of_the_topics_does_not_chatter_while_a_broker_is_away(capfd: pytest.CaptureFixture[str]) -> None:
    # Nobody listens on port 1. It had written twenty lines a second (lab: pipeline_kills seed 0).
    with closing(Consumer(fetching_config(LogSettings(bootstrap_servers="127.0.0.1:1")))) as consumer:
        consumer.assign([TopicPartition("shop.public.t", 0, 0)])
        assert consumer.poll(1) is None
    assert capfd.readouterr().err == ""
