"""The ports of ``cdc drop``: :mod:`cdc.drop.ports` on Postgres and Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial

from cdc.checks.facts import ServerFacts, SlotFacts
from cdc.drop.ports import DropPorts, DropSource
from cdc.drop.run import Drop, DropPlan
from cdc.settings import Settings, require_postgres
from cdc.topic import state_topic
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted import KafkaCompactedTopic
from connectors.kafka.doubted_topics import stays_gone
from connectors.kafka.reach import require_broker
from connectors.postgres.catalog_facts import read_server, read_slot
from connectors.postgres.connections import Connection, connect
from connectors.postgres.publication import drop_publication
from connectors.postgres.slot import drop_slot
from connectors.view_topics import topics_of_views


class DroppedSource:
    """Slot and publication of one pipeline, in an open session. Implements :class:`cdc.drop.ports.DropSource`."""

    def __init__(self, session: Connection, *, slot: str, publication: str) -> None:
        self._session = session
        self._slot = slot
        self._publication = publication

    def server(self) -> ServerFacts:
        return read_server(self._session)

    def slot(self) -> SlotFacts | None:
        return read_slot(self._session, self._slot)

    def transaction(self) -> AbstractContextManager[object]:
        return self._session.transaction()

    def drop_publication(self) -> bool:
        return drop_publication(self._session, self._publication)

    def drop_slot(self) -> bool:
        return drop_slot(self._session, self._slot)


def drop_of(settings: Settings) -> Drop:
    """The drop of the pipeline that the settings describe. Nothing is opened before it is run."""

    @contextmanager
    def source() -> Iterator[DropSource]:
        require_postgres(settings, "cdc drop")
        with closing(connect(settings.source, application_name="cdc drop", autocommit=True)) as session:
            yield DroppedSource(session, slot=settings.slot, publication=settings.publication)

    plan = DropPlan(
        name=settings.name,
        slot=settings.slot,
        publication=settings.publication,
        by_debezium=settings.source.kind == "debezium",
    )
    ports = DropPorts(
        reach=partial(require_broker, settings.log),
        source=source,
        state=KafkaCompactedTopic(settings.log, state_topic(settings.name)),
        topics=partial(TopicAdmin, settings.log),
        gone=lambda topic: stays_gone([topic], TopicAdmin(settings.log).names),
        views=partial(topics_of_views, settings),
    )
    return Drop(plan, ports)
