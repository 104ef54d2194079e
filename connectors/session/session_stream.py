"""The stream of a session: its replication connection, which leads to the pipeline's own server or a promoted
standby, what makes records of it, and what stands beside it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial

from confluent_kafka import murmur2

from cdc.capture.table_masks import masks_of
from cdc.capture.transaction_visibility import Gate, Visibility
from cdc.capture.windows import Windows
from cdc.figures.capture_metrics import CaptureFigures
from cdc.process.clock import Clock
from cdc.process.errors import IdentityError
from cdc.record.ports import CompactedTopic, Record
from cdc.record.position import Lsn, Position
from cdc.record.server_facts import ServerFacts, SlotFacts
from cdc.record.state import SlotState
from cdc.record.tables_aside import CannotFollow
from cdc.record.topic_names import TableName
from cdc.settings.model import Settings, SourceSettings
from connectors.kafka.schema_registry import SchemaRegistry
from connectors.kafka.stream_log import KafkaStreamLog
from connectors.postgres.assembly.assembler import Assembler, AssemblerPorts, Limits, Pipeline, Start
from connectors.postgres.protocol.oversized_fields import row_limit
from connectors.postgres.server.catalog_facts import read_server, read_slot
from connectors.postgres.server.connections import Connection, connect, describe
from connectors.postgres.server.failover import (
    find_promotion,
    keep_on_standbys,
    may_be_promoted,
    may_be_twin,
    read_history,
)
from connectors.postgres.server.reselect import PostgresReselect
from connectors.postgres.server.slot import Visible, require_same_server
from connectors.postgres.server.table_selection import note_parts
from connectors.postgres.server.walsender import ReplicationStream
from connectors.session.aside_causes import Remedies
from connectors.session.histories import seen_in_both
from connectors.session.known_tables import KnownState, LogStanding, Servers, SourceStream, Tables, Writer
from connectors.session.outbox_topics import outbox_ports
from connectors.session.relations import Relations
from connectors.session.side_queries import SideQueries


def open_stream(
    settings: Settings,
    side: Connection,
    slot: SlotState,
    position: int,
    clock: Clock,
    turn: Callable[[], None],
) -> ReplicationStream:
    """The slot's stream from the LSN ``position`` on; the caller closes it. ``side``: a session on the same server.
    ``turn``: called until it begins.

    IdentityError when the connection leads to another server than the slot's. ActiveError when another process has the
    slot. Raises psycopg.Error.
    """
    with ExitStack() as opened:
        connection = connect(settings.source, application_name="cdc capture stream", replication=True, turn=turn)
        opened.callback(connection.close)
        row = connection.execute("IDENTIFY_SYSTEM").fetchone()
        if row is None or row[0] != slot.system_identifier or row[1] != slot.timeline:
            raise IdentityError(
                f"the dsn leads to more than one server: the stream's is {row[0] if row else 'unknown'}",
                hint="name one host in [source] dsn",
            )
        if slot.history is not None and read_history(connection, slot.timeline) not in (None, slot.history):
            raise IdentityError(
                f"the dsn leads to more than one server that is on timeline {slot.timeline}",
                hint="name one host in [source] dsn",
            )
        if settings.source.failover:
            found = read_slot(side, slot.slot)
            if found is not None and not found.failover:
                keep_on_standbys(connection, slot.slot)
        stream = ReplicationStream(
            connection,
            settings.source,
            slot=slot.slot,
            publication=slot.publication,
            start_lsn=position,
            row_limit=row_limit(settings.log.max_message_bytes),
            clock=clock,
        )
        opened.pop_all()
        return stream


log = logging.getLogger(__name__)

_ANSWER_S = 20.0
"""The longest wait for the server's word on its timeline."""


def identify(side: Connection, source: SourceSettings, known: KnownState, turn: Callable[[], None]) -> KnownState:
    """``known`` as this server has it. ``turn``: called while an answer is waited for. IdentityError when it is neither
    the pipeline's nor a promoted standby of it. SourceError when it does not answer."""
    server, slot = read_server(side), read_slot(side, known.slot.slot)
    if may_be_promoted(server, known.slot, slot) or may_be_twin(server, known.slot):
        watched = partial(connect, source, turn=turn, limit_s=_ANSWER_S)
        known = _identified(server, slot, known, watched)
    require_same_server(server, known.slot, describe(source))
    return known


def _identified(
    server: ServerFacts,
    slot: SlotFacts | None,
    known: KnownState,
    watched: Callable[..., Connection],
) -> KnownState:
    if server.timeline == 1:
        return known
    with closing(watched(application_name="cdc capture", replication=True)) as walsender:
        history = read_history(walsender, server.timeline)
    promotion = find_promotion(server, history, known.slot, slot)
    if history is None:
        return known
    if promotion is not None:
        promotion.require_within("the first snapshot", known.cut_lsn)
    own = replace(known.slot, timeline=server.timeline, history=history)
    return replace(known, slot=own, promotion=promotion, noted=own == known.slot)


def require_within(known: KnownState, position: int) -> None:
    """IdentityError when the log says that it reaches beyond what a promoted standby had received."""
    if known.promotion is not None:
        known.promotion.require_within("the log", position)


def take_over(known: KnownState, newest: Mapping[tuple[str, int], Position], state: CompactedTopic) -> None:
    """The same for what stands at the topics' ends. Then note the timeline: from here on this server is the one."""
    promotion = known.promotion
    if promotion is not None:
        for (topic, _), position in newest.items():
            # A commit's LSN is where its record begins: one that begins at the switch is beyond it.
            promotion.require_within(topic, position.commit_lsn + 1)
    if not known.noted:
        state.write([(known.slot.key(), known.slot.to_json())])
    if promotion is not None:
        log.warning("promoted_server", extra={"timeline": promotion.timeline, "switch": str(Lsn(promotion.switch_lsn))})


# Records that the assembler passes on before it returns: records that are too many to return, and that a table waits.


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
class SessionAssembly:
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
            outbox=outbox_ports(settings, tables.topics, tables.lanes, self.waiting),
        )
        return Assembler(
            Pipeline(name=settings.name, database=self._slot.database, epoch=self._slot.epoch),
            ports,
            self._start(),
            Limits(spill_folder=settings.capture.spill_path, waiting_bytes=settings.capture.waiting_limit),
        )

    def looks(self) -> SideQueries:
        """The looks, which ask the servers in threads of their own while the stream runs."""
        tables = self.tables
        looks = SideQueries(
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
        seen = tables.asides.seen(self.writer.seen, position, tables.topics.named, tables.lanes.of)
        return Start(
            near_xid=self.source.near_xid,
            times=self.writer.log.times,
            after_lsn=position,
            seen=seen_in_both(self.writer.seen, seen, tables.topics.known.histories, tables.lanes.of),
        )


def oids_of(registry: SchemaRegistry) -> dict[str, int]:
    """Table -> the relation that its latest shape was registered for."""
    latest = {str(table): registry.latest(table) for table in registry.tables()}
    return {table: shape.oid for table, shape in latest.items() if shape is not None}
