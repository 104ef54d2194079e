"""Debezium: its connector, the Kafka Connect side of the checks, and its topics as the sinks read them."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from cdc.epochs import EpochsState
from cdc.state import TopicsState
from cdc.status.rules import ConnectorFacts
from cdc.wiring import open_schemas, open_state

if TYPE_CHECKING:
    from cdc.checks.finding import Finding
    from cdc.progress import Offsets
    from cdc.schema import TableSchema
    from cdc.settings import Settings
    from connectors.connect.connector import Connector
    from connectors.debezium.progress import ConnectProgress
    from connectors.kafka.admin import TopicAdmin
    from spark.app import SinkApplication
    from spark.debezium import Place, Translation

log = logging.getLogger(__name__)

_RESELECT = "io.debezium.processors.reselect.ReselectColumnsPostProcessor"
_BATCH_RECORDS = 20_000
"""Records of one batch at most: they are read on the driver, each with kilobytes of schema."""


def open_connector(settings: Settings) -> Connector:
    """The Debezium connector that the settings describe. ConfigError without a [debezium] section."""
    from connectors.connect.connector import Connector

    return Connector(settings)


def connector_facts(settings: Settings) -> ConnectorFacts:
    """What Kafka Connect says of the connector. ConnectError where it does not answer, ConfigError without one."""
    from connectors.debezium.progress import shown_lsn, shown_position, snapshot_state

    connector = open_connector(settings)
    status, stored = connector.condition(), connector.offsets()
    return ConnectorFacts(
        name=connector.name,
        database=connector.database,
        address=connector.address,
        state=status.state if status.runs or status.fault or status.state != "RUNNING" else "STARTING",
        fault=status.fault,
        snapshot=snapshot_state(stored),
        position=shown_position(stored),
        lsn=shown_lsn(stored) if connector.database == "postgres" else None,
    )


def connect_warnings(settings: Settings) -> list[str]:
    """What to be wary of before a word is said to Kafka Connect."""
    from connectors.debezium.client import unencrypted
    from connectors.debezium.mongodb import patch_cautions

    warning = unencrypted(settings.debezium.url) if settings.debezium is not None else None
    cautions = [f"{message} (instead: {fix})" for message, fix in patch_cautions(settings)]
    return [*([warning] if warning is not None else []), *cautions]


def fault_advice(fault: str, database: str) -> str:
    """What helps against a task's failure."""
    from connectors.debezium.faults import advice

    return advice(fault, database)


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


class NotedEpochs:
    """:class:`spark.debezium.Epochs` in ``<name>.state``. Any thread."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def read(self) -> EpochsState:
        return read_epochs(self._settings)

    def fell(self, why: str) -> None:
        from connectors.connect.epochs import note_fall

        note_fall(self._settings, why)

    def snapshot_at(self, place: Place) -> None:
        from connectors.connect.epochs import note_first

        note_first(self._settings, *place[:3])

    def snapshot_again(self, place: Place) -> None:
        from connectors.connect.epochs import begin_again

        begin_again(self._settings, *place)

    def reading(self) -> bool:
        from connectors.debezium.progress import is_first_snapshot

        return self._settings.debezium is not None and is_first_snapshot(open_connector(self._settings).offsets())


def with_patterns(settings: Settings, state: TopicsState, admin: TopicAdmin) -> TopicsState:
    """The topics that Debezium made for tables of a pattern, too: nobody has noted those."""
    from connectors.connect.topics import topics_of_patterns
    from connectors.kafka.admin import topics_state

    if settings.source.kind != "debezium":
        return state
    made = topics_of_patterns(settings, admin.names())
    new = {topic: table for topic, table in made.items() if topic not in state.topics}
    facts = admin.describe(new)
    tables = {table: topic for topic, table in new.items() if topic in facts}
    found = topics_state(facts, tables, state.cluster_id, state.encoding)
    return replace(state, topics={**found.topics, **state.topics}, tables={**found.tables, **state.tables})


def open_feed(settings: Settings) -> ConnectProgress:
    """How far the topics hold the source, asked of Kafka Connect."""
    from connectors.debezium.progress import ConnectProgress
    from connectors.kafka.admin import TopicAdmin

    connector = open_connector(settings)
    admin = TopicAdmin(settings.log)

    def ends() -> Offsets:
        noted = TopicsState.find(open_state(settings).read())
        state = with_patterns(settings, noted, admin) if noted is not None else None
        tables = set(state.tables.values()) if state is not None else set()
        topics = state.topics if state is not None else {}
        return admin.end_offsets({topic: topics[topic]["partitions"] for topic in sorted(tables & topics.keys())})

    return ConnectProgress(
        connector.offsets,
        ends,
        partial(read_epochs, settings),
        config=connector.running_config,
        has_lsn=settings.debezium is not None and settings.debezium.database == "postgres",
    )


def _compaction_lag_s(settings: Settings) -> float:
    """How old a record is at least before the cleaner may take it, by the topics themselves; 0 where none is known.
    Asked for MongoDB alone: no other connector writes patches."""
    if settings.debezium is None or settings.debezium.database != "mongodb":
        return 0.0
    from connectors.kafka.admin import TopicAdmin

    state = TopicsState.find(open_state(settings).read())
    facts = TopicAdmin(settings.log).describe(sorted(set(state.tables.values()))) if state is not None else {}
    return min((int(found.config.get("min.compaction.lag.ms", 0)) / 1000 for found in facts.values()), default=0.0)


def _reselects(settings: Settings) -> bool:
    """Whether the connector has Debezium's post-processor that asks the database for NULLs again."""
    options = settings.debezium.options if settings.debezium is not None else {}
    made = [name.rpartition(".")[0] for name, value in options.items() if value == _RESELECT]
    return any(options.get(f"{name}.reselect.null.values", "true") == "true" for name in made)


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
        earlier = kafka.reading.open
        return Translation(
            shapes.version,
            NotedEpochs(settings),
            compaction_lag_s=lag_s,
            earlier=earlier,
            reselected=_reselects(settings),
        )

    kafka = application.kafka
    own = settings.source.kind == "debezium" and settings.debezium is not None
    if not own:
        log.warning(
            "topics_may_be_debeziums",
            extra={
                "reason": "[debezium] is set, so that a handover can be followed: all records are read on the driver",
                "hint": "take [debezium] out of the settings when none is planned and none was made",
            },
        )
    return replace(
        application,
        translation=translation,
        open_feed=partial(open_feed, settings) if own else application.open_feed,
        kafka=kafka._replace(max_offsets=min(kafka.max_offsets, _BATCH_RECORDS)),
        driver_rows=2**62,
    )
