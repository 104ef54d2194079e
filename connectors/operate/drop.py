"""The ports of ``cdc drop``: :mod:`cdc.operate.drop` on Postgres and Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial

from cdc.operate.drop import Drop, DropPlan, DropPorts, DropSource
from cdc.record.server_facts import ServerFacts, SlotFacts
from cdc.record.topic_names import state_topic
from cdc.settings.model import Settings, require_postgres
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted_topic import KafkaCompactedTopic
from connectors.kafka.doubted_topics import require_broker, stays_gone
from connectors.postgres.server.catalog_facts import read_server, read_slot
from connectors.postgres.server.connections import Connection, connect
from connectors.postgres.server.publication import drop_publication
from connectors.postgres.server.slot import drop_slot
from connectors.views.view_topics import topics_of_views


class DroppedSource:
    """Slot and publication of one pipeline, in an open session. Implements :class:`cdc.operate.drop.DropSource`."""

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
