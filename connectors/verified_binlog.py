"""The source's side of a verification where Debezium captures a MySQL or a MariaDB."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack

from cdc.clock import SYSTEM_CLOCK, Clock
from cdc.cuts import Cut, VerifiedTable
from cdc.errors import ConfigError
from cdc.progress import Offsets
from cdc.schema import TableSchema
from cdc.settings import Settings
from cdc.state import TopicsState
from cdc.topic import TableName, schema_topic
from connectors.connect.connector import Connector
from connectors.debezium.address import address
from connectors.debezium.captured_tables import captures
from connectors.debezium.connector_config import debezium_settings
from connectors.debezium.passed import require_heartbeat, wait_until_passed
from connectors.debezium.source_progress import stored_place
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted import KafkaCompactedTopic
from connectors.kafka.doubted_topics import facts_of_made
from connectors.kafka.schema_registry import SchemaRegistry
from connectors.mysql.binlog_cut import MySqlCut, Passed
from connectors.mysql.columns import Readings, readings_of, without
from connectors.mysql.session import open_session

_PORT = 3306


class BinlogSource:
    """The source's reader, its tables in their two shapes, and the wait for the connector.

    ConfigError where it is not known what the connector has passed: no heartbeats, no GTIDs, no schemas in the
    records. SourceError and ConnectError where a server does not answer.
    """

    def __init__(self, settings: Settings, topics: TopicsState, clock: Clock = SYSTEM_CLOCK) -> None:
        if not debezium_settings(settings).schemas:
            raise ConfigError(
                "the records hold no schemas ([debezium] schemas = false), so it is not known what their values mean",
                hint="set schemas = true and deploy: rows that are written from then on can be compared",
            )
        self._settings = settings
        self._topics = topics
        self._clock = clock
        self._connector = Connector(settings, clock=clock)
        require_heartbeat(self._connector.name, self._connector.running_config())
        parts = address(settings, _PORT)
        with ExitStack() as opening:
            reads = open_session(settings, parts)
            opening.callback(reads.close)
            looks = open_session(settings, parts)
            opening.callback(looks.close)
            self.reader = MySqlCut(reads, looks, self._sent, clock)
            opening.pop_all()
        self.refused: dict[str, str] = {}
        """Tables that cannot be compared at all: table -> why."""
        self.tables = self._tables()

    def close(self) -> None:
        """Close the sessions."""
        self.reader.close()

    def passed(self, cut: Cut, timeout_s: float) -> Offsets:
        """:attr:`cdc.verification.ports.VerificationPorts.passed`: the topics' ends, once the connector has passed the
        cut."""
        wait_until_passed(self._connector.offsets, self.reader.end, cut.place, timeout_s=timeout_s, clock=self._clock)
        admin = TopicAdmin(self._settings.log)
        facts = facts_of_made(admin, [self._topics.tables[str(table)] for table in self.tables])
        return admin.end_offsets({topic: found.partitions for topic, found in facts.items()})

    def _sent(self) -> Passed:
        found = stored_place(self._connector.offsets())
        return Passed(found.file, found.pos, found.gtids)

    def _tables(self) -> Mapping[TableName, VerifiedTable]:
        schemas = SchemaRegistry(KafkaCompactedTopic(self._settings.log, schema_topic(self._settings.name)))
        made: dict[TableName, VerifiedTable] = {}
        for text, topic in sorted(self._topics.tables.items()):
            table = TableName(*text.rsplit(".", 1))
            columns = self.reader.columns(table) if captures(self._settings, text) else []
            if not columns:
                continue
            stored = schemas.latest(table)
            found = readings_of(table, topic, columns, stored, self.reader.primary_key(table))
            if isinstance(found, Readings):
                made[table] = self._verified(found, stored)
            else:
                self.refused[text] = found
        return made

    def _verified(self, found: Readings, stored: TableSchema | None) -> VerifiedTable:
        self.reader.know(found.shape.table, found.readings)
        return VerifiedTable(
            shape=found.shape,
            stored=without(stored, found.left_out) if stored is not None else found.shape,
            rows=self.reader.estimate(found.shape.table),
            left_out=found.left_out,
        )
