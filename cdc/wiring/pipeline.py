"""A pipeline's beginning and end: what ``cdc init`` makes and ``cdc drop`` removes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from cdc.wiring import open_source, open_state, require_broker

__all__ = ["PreparedPipeline", "begin_epoch", "open_drop", "prepare_pipeline"]

if TYPE_CHECKING:
    from cdc.clock import Clock
    from cdc.drop.ports import Source
    from cdc.drop.run import Drop
    from cdc.settings import Settings
    from connectors.prepare import Prepared as PreparedPipeline


def prepare_pipeline(settings: Settings) -> PreparedPipeline:
    """Make or check publication, topics and shapes; see :func:`connectors.prepare.prepare`."""
    from connectors.kafka.admin import TopicAdmin
    from connectors.prepare import prepare

    with closing(open_source(settings, application_name="cdc init")) as connection:
        require_broker(settings)
        admin = TopicAdmin(settings.log)
        return prepare(connection, settings, admin, open_state(settings))


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


def open_drop(settings: Settings) -> Drop:
    """The drop of the pipeline that the settings describe. Nothing is opened before it is run."""
    from cdc.drop.ports import Ports
    from cdc.drop.run import Drop, Plan
    from connectors.kafka.admin import TopicAdmin
    from connectors.postgres.drop import DroppedSource

    @contextmanager
    def source() -> Iterator[Source]:
        with closing(open_source(settings, application_name="cdc drop")) as session:
            yield DroppedSource(session, slot=settings.slot, publication=settings.publication)

    plan = Plan(
        name=settings.name,
        slot=settings.slot,
        publication=settings.publication,
        by_debezium=settings.source.kind == "debezium",
    )
    ports = Ports(
        reach=partial(require_broker, settings),
        source=source,
        state=open_state(settings),
        topics=partial(TopicAdmin, settings.log),
    )
    return Drop(plan, ports)
