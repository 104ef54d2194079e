"""Joining the opened parts of a session: what makes records of the stream, and what stands beside it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import murmur2

from cdc.capture.table_masks import masks_of
from cdc.capture.visibility import Gate, Visibility
from cdc.capture.windows import Windows
from cdc.figures.capture_metrics import CaptureFigures
from cdc.process.clock import Clock
from cdc.record.ports import Record
from cdc.record.state import SlotState
from cdc.record.tables_aside import CannotFollow
from cdc.record.topic_names import TableName
from cdc.settings.model import Settings
from connectors.kafka.schema_registry import SchemaRegistry
from connectors.kafka.stream_log import KafkaStreamLog
from connectors.postgres.assembly.assembler import Assembler, AssemblerPorts, Limits, Pipeline, Start
from connectors.postgres.protocol.oversized_fields import row_limit
from connectors.postgres.server.reselect import PostgresReselect
from connectors.postgres.server.slot import Visible
from connectors.postgres.server.table_selection import note_parts
from connectors.session.known_tables import LogStanding, Servers, SourceStream, Tables, Writer
from connectors.session.relations import Relations
from connectors.session.remedies import Remedies
from connectors.session.side_queries import Looks

# Records that the assembler passes on before it returns: records that are too many to return, and that a table waits.

log = logging.getLogger(__name__)


def tell_waiting(table: TableName, waits: bool) -> None:
    """Say in the log that a table begins to wait, or follows again."""
    if waits:
        log.warning(
            "table_waits",
            extra={"table": str(table), "why": "it cannot be read: is it locked, is a standby silent?"},
        )
    else:
        log.info("table_follows", extra={"table": str(table)})


def handing_over(records: KafkaStreamLog, windows: Windows) -> Callable[[list[Record]], None]:
    """Takes records before the assembler returns: to the log, past the open windows."""

    def hand_over(batch: list[Record]) -> None:
        windows.touch(batch)
        records.produce(batch)

    return hand_over


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """The parts, and the joints between them.

    ``gate``: decides which reads see enough. ``waiting``: called while an answer of the source is waited for. It raises
    Stopped to give up.
    """

    settings: Settings
    servers: Servers
    standing: LogStanding
    writer: Writer
    tables: Tables
    source: SourceStream
    figures: CaptureFigures
    clock: Clock
    gate: Callable[[Visibility], Gate]
    waiting: Callable[[], None]

    @property
    def _slot(self) -> SlotState:
        return self.servers.known.slot

    def windows(self) -> Windows:
        """The windows for rows of later snapshots, behind everything that the log has."""
        seen = (newest.commit_lsn for newest in self.writer.seen.values())
        return Windows(
            epoch=self._slot.epoch,
            after_lsn=max([self._slot.consistent_point, *seen]),
            gate=self.gate(self.source.visible),
            lanes=self.tables.lanes.of,
            partition=murmur2,
            produce=self.writer.log.produce,
        )

    def reselect(self) -> PostgresReselect:
        """The reader of values that updates did not carry, on the session beside the stream."""
        return PostgresReselect(
            self.servers.side,
            clock=self.clock,
            waiting=self.waiting,
            failover_slot=self._slot.slot if self.settings.source.failover else None,
            row_limit=row_limit(self.settings.log.max_message_bytes),
        )

    def assembler(self, reselect: PostgresReselect, windows: Windows) -> Assembler:
        """The assembler, which makes records of the stream's frames."""
        settings, tables = self.settings, self.tables
        self._take_masks()
        relations = Relations(
            self.servers.side,
            settings,
            tables.topics,
            tables.registry,
            visible=Visible(self.servers.side, clock=self.clock, waiting=self.waiting).within,
            aside=tables.asides.of,
        )
        ports = AssemblerPorts(
            schemas=relations,
            lanes=tables.lanes.of,
            partition=murmur2,
            reselect=reselect,
            overflow=handing_over(self.writer.log, windows),
            tell=tell_waiting,
            asides=tables.asides,
            topic=tables.topics.topic,
            kept=relations.kept,
            masks=masks_of(settings),
        )
        return Assembler(
            Pipeline(name=settings.name, database=self._slot.database, epoch=self._slot.epoch),
            ports,
            self._start(),
            Limits(spill_folder=settings.capture.spill_path, waiting_bytes=settings.capture.waiting_limit),
        )

    def looks(self) -> Looks:
        """The looks, which ask the servers in threads of their own while the stream runs."""
        tables = self.tables
        looks = Looks(
            self.settings,
            self._slot,
            topics=lambda: tables.topics.known,
            oids=lambda: oids_of(tables.registry),
            counts=self.standing.counts,
            figures=self.figures,
            clock=self.clock,
        )
        looks.remedies = Remedies(self.settings, tables.asides, tables.registry, tables.topics.named)
        looks.write_notes = tables.asides.write_notes
        return looks

    def _take_masks(self) -> None:
        """Set the tables aside whose masks are others than their rows were written under, and note those of now.

        ConfigError for masks of a table that is not captured, and for others of a table that is never set aside.
        """
        tables, registry = list(self.tables.topics.known.tables), self.tables.registry
        notes, shapes = registry.notes, registry.versions()
        changed = notes.changed(tables, shapes)
        for table, columns in changed.items():
            named = ", ".join(columns)
            log.warning("masks_changed", extra={"table": table, "columns": named, "then": "set aside, and read again"})
            known = registry.named(table)
            name = known.table if known is not None else TableName(*table.split(".", 1))
            why = CannotFollow(
                f"{table} has other masks for {named} than its rows were written under",
                hint="it is read again once the stream is past that; while it stays aside, cdc check says why",
                tables=[name],
            )
            self.tables.asides.set_aside(name, why, self.standing.position, 0)
        notes.note(tables, shapes, changed)
        note_parts(self.servers.side, notes)

    def _start(self) -> Start:
        position, tables = self.standing.position, self.tables
        return Start(
            near_xid=self.source.near_xid,
            after_lsn=position,
            seen=tables.asides.seen(self.writer.seen, position, tables.topics.named, tables.lanes.of),
        )


def oids_of(registry: SchemaRegistry) -> dict[str, int]:
    """Table -> the relation that its latest shape was registered for."""
    latest = {str(table): registry.latest(table) for table in registry.tables()}
    return {table: shape.oid for table, shape in latest.items() if shape is not None}
