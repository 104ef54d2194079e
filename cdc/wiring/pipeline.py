"""A pipeline's beginning and end: what ``cdc init`` makes and ``cdc drop`` removes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from cdc.errors import TopicError
from cdc.state import TopicsState
from cdc.topic import state_topic
from cdc.wiring import open_source, open_state, require_broker

__all__ = ["PreparedPipeline", "begin_epoch", "drop_pipeline", "prepare_pipeline"]

if TYPE_CHECKING:
    from cdc.clock import Clock
    from cdc.settings import Settings
    from connectors.kafka.admin import TopicAdmin
    from connectors.prepare import Prepared as PreparedPipeline


def prepare_pipeline(settings: Settings, *, handing_over: bool = False) -> PreparedPipeline:
    """Make or check publication, topics and shapes; see :func:`connectors.prepare.prepare`."""
    from connectors.kafka.admin import TopicAdmin
    from connectors.prepare import prepare

    with closing(open_source(settings, application_name="cdc init")) as connection:
        require_broker(settings)
        admin = TopicAdmin(settings.log)
        return prepare(connection, settings, admin, open_state(settings), handing_over=handing_over)


def begin_epoch(settings: Settings, clock: Clock) -> tuple[int, PreparedPipeline]:
    """End the present epoch and prepare the next one; see :mod:`connectors.epoch`. Its number, and what was made."""
    from connectors.epoch import begin_epoch as begin
    from connectors.kafka.admin import TopicAdmin
    from connectors.prepare import check_ready, prepare

    with closing(open_source(settings, application_name="cdc init")) as connection:
        require_broker(settings)
        # First, because nothing may be given up that cannot be begun again.
        check_ready(connection, settings, None, besides=("publication", "slot", "free_slots"))
        state, admin = open_state(settings), TopicAdmin(settings.log)
        epoch = begin(connection, settings, admin, state, clock)
        return epoch, prepare(connection, settings, admin, state)


def drop_pipeline(settings: Settings, *, topics: bool) -> Iterator[str]:
    """Drop slot and publication (and topics), a sentence at a time. ActiveError while something reads the slot."""
    from connectors.kafka.admin import TopicAdmin
    from connectors.postgres.publication import drop_publication
    from connectors.postgres.slot import drop_slot

    with closing(open_source(settings, application_name="cdc drop")) as connection:
        there = drop_slot(connection, settings.slot)
        yield f"slot {settings.slot}: {'dropped' if there else 'was not there'}"
        there = drop_publication(connection, settings.publication)
        yield f"publication {settings.publication}: {'dropped' if there else 'was not there'}"
    if topics:
        require_broker(settings)
        yield _drop_topics(settings, TopicAdmin(settings.log))


def _drop_topics(settings: Settings, admin: TopicAdmin) -> str:
    state = state_topic(settings.name)
    try:
        known = TopicsState.find(open_state(settings).read())
    except TopicError:
        left = [topic for topic in admin.names() if topic.startswith(f"{settings.name}.") and topic != state]
        if left:
            return f"topics: {state} is not there, so these are left to be deleted by hand: {', '.join(left)}"
        return f"topics: the pipeline {settings.name} has none"
    names = set(known.topics) if known is not None else set()
    admin.delete(sorted(names - {state}))
    # Last, because it names the others: a drop that was cut short can be run again.
    admin.delete([state])
    return f"topics: {len(names | {state})} deleted"
