"""The outbox of a session. A topic is made with its first event, and refused events go to the dead letters."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from cdc.capture.outbox import MalformedEvent, OutboxRules
from cdc.record.topic_names import TableName, dead_topic
from cdc.settings.event_settings import OutboxSettings
from cdc.settings.model import Settings
from cdc.wire.dead_letter import CAPTURE, DeadLetter, Why, events_address
from connectors.kafka.dead_letters import DeadLetterTopic
from connectors.postgres.assembly.outbox_events import OutboxPorts, RefusedEvent
from connectors.session.captured_topics import CapturedTopics, PartitionNumbers

log = logging.getLogger(__name__)

_MOST_TOPICS = 500
"""Beyond this, what chooses the topic is likely to be an id."""


def outbox_ports(
    settings: Settings, topics: CapturedTopics, lanes: PartitionNumbers, waiting: Callable[[], None]
) -> OutboxPorts | None:
    """The ports of the stream's outbox, None where the settings have none. ``waiting``: called while Kafka does not
    answer, may raise."""
    if settings.outbox is None:
        return None
    dead = DeadLetterTopic(settings.log, dead_topic(settings.name), waiting=waiting)
    return OutboxPorts(
        rules=outbox_rules(settings.outbox, settings.name),
        lanes=partial(_lanes, settings.outbox, topics, lanes),
        refuse=partial(_put_aside, dead, events_address(settings.name), 2 * settings.log.max_message_bytes),
        limit_bytes=settings.log.max_message_bytes,
    )


def outbox_rules(outbox: OutboxSettings, name: str) -> OutboxRules:
    """The rules of the outbox of the pipeline ``name``."""
    return OutboxRules(
        table=TableName(*outbox.table.rsplit(".", 1)) if outbox.table is not None else None,
        prefix=outbox.message or None,
        topic_name=outbox.topic.replace("{name}", name),
        id=outbox.id,
        aggregate_type=outbox.aggregatetype,
        aggregate_id=outbox.aggregateid,
        type=outbox.type,
        payload=outbox.payload,
        headers=outbox.headers,
    )


def _lanes(outbox: OutboxSettings, topics: CapturedTopics, lanes: PartitionNumbers, topic: str) -> tuple[int, int]:
    events = topics.known.events
    if topic not in events and len(events) >= _MOST_TOPICS:
        raise MalformedEvent(
            f"its {outbox.aggregatetype} would make one more topic beside {len(events)}; is it an id, and no type?"
        )
    topics.add_events(topic, outbox.keep_ms)
    return lanes.of(topic)


def _put_aside(dead: DeadLetterTopic, address: str, limit_bytes: int, refused: Sequence[RefusedEvent]) -> None:
    """Write a dead letter of each. Its LSN and its number stand in for a place, so that a repeat has the same."""
    letters = [
        DeadLetter(
            sink=CAPTURE,
            why=Why.OVERSIZED if one.oversized else Why.UNREADABLE,
            topic=address,
            partition=one.number,
            offset=one.lsn,
            reason=one.reason,
            key=None,
            value=one.content if len(one.content or b"") < limit_bytes else None,
        )
        for one in refused
    ]
    dead.write(letters)
    for letter in letters:
        log.warning("event_put_aside", extra={"record": letter.address, "why": letter.reason})
