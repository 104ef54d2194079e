"""The tables as the log knows them when a session begins: their topics, their shapes, and those that are set aside."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from cdc.clock import Clock
from cdc.masks import MaskNotes, masks_of
from cdc.settings import Settings
from cdc.topic import schema_topic, state_topic
from connectors.kafka.compacted import KafkaCompactedTopic
from connectors.kafka.schema_registry import SchemaRegistry
from connectors.session.asides import SetAside
from connectors.session.captured import CapturedTopics
from connectors.session.known_state import KnownState


class KnownTables(NamedTuple):
    """Read from the state topic and the topic of shapes."""

    topics: CapturedTopics
    asides: SetAside
    registry: SchemaRegistry


def known_tables(settings: Settings, known: KnownState, clock: Clock, waiting: Callable[[], None]) -> KnownTables:
    """Read them. ``waiting``: called while the brokers do not answer, may raise. Raises LogError."""
    state, shapes = (
        KafkaCompactedTopic(settings.log, topic, waiting=waiting)
        for topic in (state_topic(settings.name), schema_topic(settings.name))
    )
    documents = state.read()
    registry = SchemaRegistry(shapes, notes=MaskNotes(masks_of(settings), state, documents))
    asides = SetAside(
        state,
        documents,
        epoch=known.slot.epoch,
        clock=clock,
        histories=settings.capture.histories,
        accept=registry.accept_key,
    )
    topics = CapturedTopics(
        settings,
        known.topics,
        clock,
        registry=registry,
        waiting=waiting,
        asides=asides,
        documents=documents,
    )
    return KnownTables(topics, asides, registry)
