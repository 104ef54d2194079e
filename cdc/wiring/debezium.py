"""Debezium: its connector, the Kafka Connect side of the checks, and its topics as the sinks read them."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from cdc.epochs import EpochsState
from cdc.state import TopicsState
from cdc.wiring import open_schemas, open_state

if TYPE_CHECKING:
    from cdc.checks.finding import Finding
    from cdc.progress import Offsets
    from cdc.schema import TableSchema
    from cdc.settings import Settings
    from connectors.connect.connector import Connector
    from connectors.debezium.progress import ConnectProgress
    from spark.app import SinkApplication
    from spark.debezium import Translation

_BATCH_RECORDS = 20_000
"""Records of one batch at most: they are read on the driver, each with kilobytes of schema."""


def open_connector(settings: Settings) -> Connector:
    """The Debezium connector that the settings describe. ConfigError without a [debezium] section."""
    from connectors.connect.connector import Connector

    return Connector(settings)


def connect_warnings(settings: Settings) -> list[str]:
    """What to be wary of before a word is said to Kafka Connect."""
    from connectors.debezium.client import unencrypted
    from connectors.debezium.mongodb import patch_cautions

    warning = unencrypted(settings.debezium.url) if settings.debezium is not None else None
    cautions = [f"{message} (instead: {fix})" for message, fix in patch_cautions(settings)]
    return [*([warning] if warning is not None else []), *cautions]


def check_connect(settings: Settings) -> list[Finding]:
    """The Kafka Connect side of ``cdc check``."""
    from connectors.connect.checks import check_connect

    return check_connect(settings)


class Shapes:
    """The schema topic for shapes that come with records: each found or written. Any thread."""

    def __init__(self, settings: Settings) -> None:
        self._registry = open_schemas(settings)
        self._lock = threading.Lock()

    def version(self, topic: str, shape: TableSchema | None) -> int:
        """The version that this shape is known by, written if it is new; of None the topic's newest, 0 for none.

        A shape that was known before keeps its number: a rebuild reads old records again.
        """
        with self._lock:
            known = self._find(topic, shape)
            if known is None:
                self._registry.refresh()
                known = self._find(topic, shape)
            if known is None and shape is not None:
                known = self._registry.register(shape, new_key=True)
        return known.version if known is not None else 0

    def _find(self, topic: str, shape: TableSchema | None) -> TableSchema | None:
        versions = [known for known in reversed(self._registry.versions()) if known.topic == topic]
        if shape is None:
            return versions[0] if versions else None
        return next((known for known in versions if known.same_shape(shape)), None)


def read_epochs(settings: Settings) -> EpochsState:
    """Where the positions of Debezium's records start over; the first epoch alone unless it was noted otherwise."""
    return EpochsState.find(open_state(settings).read()) or EpochsState()


def open_feed(settings: Settings) -> ConnectProgress:
    """How far the topics hold Postgres, asked of Kafka Connect."""
    from connectors.debezium.progress import ConnectProgress
    from connectors.kafka.admin import TopicAdmin

    connector = open_connector(settings)
    admin = TopicAdmin(settings.log)

    def ends() -> Offsets:
        state = TopicsState.find(open_state(settings).read())
        tables = set(state.tables.values()) if state is not None else set()
        topics = state.topics if state is not None else {}
        return admin.end_offsets({topic: topics[topic]["partitions"] for topic in sorted(tables & topics.keys())})

    return ConnectProgress(connector.offsets, ends, lambda: read_epochs(settings).latest)


def _compaction_lag_s(settings: Settings) -> float:
    """How old a record is at least before the cleaner may take it, by the topics themselves; 0 where none is known.
    Asked for MongoDB alone: no other connector writes patches."""
    if settings.debezium is None or settings.debezium.database != "mongodb":
        return 0.0
    from connectors.kafka.admin import TopicAdmin

    state = TopicsState.find(open_state(settings).read())
    facts = TopicAdmin(settings.log).describe(sorted(set(state.tables.values()))) if state is not None else {}
    return min((int(found.config.get("min.compaction.lag.ms", 0)) / 1000 for found in facts.values()), default=0.0)


def may_hold_debezium(settings: Settings) -> bool:
    """Whether the topics may hold records of Debezium's: it writes them, or a handover is or was possible."""
    own = settings.debezium is not None and settings.debezium.database == "postgres"
    return own or settings.source.kind == "debezium"


def reading_debezium(application: SinkApplication, settings: Settings) -> SinkApplication:
    """The same application for topics that Debezium fills: translated, and applied by the driver.

    How far the topics are is asked of whoever writes them now.
    """
    from spark.debezium import Translation

    shapes = Shapes(settings)

    def translation() -> Translation:
        lag_s = _compaction_lag_s(settings)
        return Translation(shapes.version, partial(read_epochs, settings), compaction_lag_s=lag_s)

    kafka = application.kafka
    debezium = settings.debezium
    own = settings.source.kind == "debezium" and debezium is not None and debezium.database == "postgres"
    return replace(
        application,
        translation=translation,
        open_feed=partial(open_feed, settings) if own else application.open_feed,
        kafka=kafka._replace(max_offsets=min(kafka.max_offsets, _BATCH_RECORDS)),
        driver_rows=2**62,
    )
