"""``cdc dead``, put together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from cdc.operate.letters import LetterPorts, LettersRun
from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.record.topic_names import dead_topic
from cdc.wiring import require_broker
from sinks.contract.stores import open_store

if TYPE_CHECKING:
    from cdc.operate.letters import ReadsStore
    from cdc.settings.model import Settings


def open_letters(settings: Settings, clock: Clock = SYSTEM_CLOCK) -> LettersRun:
    """The dead letters of the pipeline that the settings describe. LogError, at once, when no broker takes a
    connection."""
    from connectors.kafka.dead_letters import DeadLetterTopic
    from connectors.kafka.feed import DeadLetterFeed
    from connectors.views.view_topics import all_shapes

    @contextmanager
    def reader(sink: str) -> Iterator[ReadsStore]:
        with closing(open_store(sink, settings)) as store:
            yield store.reader

    require_broker(settings)
    topic = dead_topic(settings.name)
    ports = LetterPorts(
        letters=DeadLetterTopic(settings.log, topic),
        follow=partial(DeadLetterFeed, settings.log, topic),
        shapes=partial(all_shapes, settings),
        open_store=reader,
    )
    return LettersRun(ports, clock)
