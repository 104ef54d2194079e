"""A broker's word that it has no such topic, doubted for a while: one that has just started knows none yet."""

from __future__ import annotations

from collections.abc import Callable, Collection

from confluent_kafka import KafkaError

from cdc.clock import SYSTEM_CLOCK, Clock
from cdc.errors import LogError
from cdc.settings import LogSettings
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted import log_error
from connectors.kafka.passing_errors import GONE

_DOUBTED_S, _EVERY_S = 5.0, 0.5


def following_error(error: KafkaError, topics: Collection[str], settings: LogSettings) -> LogError:
    """The error of a consumer that follows topics, as one of ours.

    A topic that is gone is a TopicError, which ends those who follow it. A broker that was killed and starts says it of
    topics that it has (hazard H579): then it is a LogError that passes.
    """
    doing = f"following {' and '.join(sorted(topics))}"
    if error.code() not in GONE or stays_gone(topics, TopicAdmin(settings).names):
        return log_error(error, doing, settings)
    return LogError(
        f"{doing}: Kafka at {settings.bootstrap_servers} did not know the topic for a moment",
        hint="a broker that starts comes to know its topics by itself",
    )


def stays_gone(topics: Collection[str], names: Callable[[], Collection[str]], clock: Clock = SYSTEM_CLOCK) -> bool:
    """Whether one of these topics is gone for five seconds on end. ``names``: of the topics that there are. It is not
    known where that raises LogError."""
    until_s = clock.monotonic() + _DOUBTED_S
    while True:
        try:
            if set(topics) <= set(names()):
                return False
        except LogError:
            return False
        if clock.monotonic() >= until_s:
            return True
        clock.sleep(_EVERY_S)
