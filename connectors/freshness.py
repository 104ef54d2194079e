"""What a wait for freshness asks of Kafka and Postgres: :class:`cdc.freshness.run.WaitPorts`."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing, suppress

from cdc.dead import DeadLetter
from cdc.epochs import epoch_of
from cdc.errors import CdcError
from cdc.settings import Settings, require_postgres
from cdc.topic import dead_topic, state_topic
from connectors.kafka.compacted import KafkaCompactedTopic
from connectors.kafka.dead_letters import DeadLetterTopic
from connectors.kafka.reach import require_broker
from connectors.postgres.connections import connect
from connectors.postgres.cut import write_fence

_APPLICATION = "cdc wait"


def read_epoch(settings: Settings) -> int | None:
    """The pipeline's epoch. None before it has one. LogError, at once, when no broker takes a connection."""
    require_broker(settings.log)
    return epoch_of(KafkaCompactedTopic(settings.log, state_topic(settings.name)).read(), settings.source.kind)


def read_letters(settings: Settings) -> Iterable[DeadLetter]:
    """The pipeline's dead letters. LogError, at once, when no broker takes a connection."""
    require_broker(settings.log)
    return DeadLetterTopic(settings.log, dead_topic(settings.name)).read()


def nudge(settings: Settings) -> None:
    """Write a fence, so that a quiet server's log moves. Nothing where Postgres cannot be asked."""
    with suppress(CdcError):
        require_postgres(settings, _APPLICATION)
        with closing(connect(settings.source, application_name=_APPLICATION, autocommit=True)) as session:
            write_fence(session)
