"""Opening a capture session: everything that must be true before the first frame is read, in its order.

Server, topics, lock, progress, slot, tails, stream, and the slot once more. Nothing is written before the lock is
held, and nothing read from the topics before it either: another capture could still write behind our back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import psycopg
from confluent_kafka import murmur2

from cdc.capture import Session, Stop, Stopped
from cdc.checks.facts import SlotFacts
from cdc.clock import Clock
from cdc.crash import crash_point, declare
from cdc.errors import ActiveError, IdentityError, LogError, SlotError, SourceError
from cdc.metrics import CaptureFigures, Flow, Rereads
from cdc.ports import Record
from cdc.progress import PROGRESS_KEY, Offsets, Progress
from cdc.settings import Settings
from cdc.state import SlotState, TopicsState
from cdc.topic import progress_topic, schema_topic, state_topic
from cdc.visibility import Gate, Visibility, VisibilityGate
from cdc.windows import Windows
from connectors.captured import CapturedTopics, Lanes, Later, Running
from connectors.kafka.admin import TopicAdmin, made_specs, policy_problems, raise_first, state_problems
from connectors.kafka.compacted import CompactedTopic
from connectors.kafka.ends import EndsWatch
from connectors.kafka.log import KafkaStreamLog
from connectors.kafka.oversized import Oversized
from connectors.kafka.reach import require_broker
from connectors.kafka.schemas import SchemaRegistry
from connectors.kafka.tail import last_progress
from connectors.known import Known, known_of
from connectors.mending import Ends, beginning, require_nothing_lost, require_still
from connectors.patience import Patience
from connectors.postgres.abridge import row_limit
from connectors.postgres.assemble import Assembler, Limits, Pipeline
from connectors.postgres.barrier import barrier
from connectors.postgres.facts import read_publication, read_server, read_slot
from connectors.postgres.failover import keep_on_standbys
from connectors.postgres.reselect import Reselect, newest_xid
from connectors.postgres.session import Connection, connect, first_line
from connectors.postgres.slot import (
    START_OVER,
    lock_holders,
    require_not_ahead,
    require_usable,
    try_lock,
)
from connectors.postgres.stream import ReplicationStream
from connectors.promotion import identify, require_within, take_over
from connectors.relations import Relations

log = logging.getLogger(__name__)

declare("opening_locked", "opening_checked", "first_progress_written", "tails_read", "stream_started")

_ASK_S = 1.0
_LOCK_PATIENCE_S = 5.0
"""How long a capture that was just killed may still seem to be there."""
_SETTLE_S = 10.0


class Opening:
    """Opens one session after the other, each from nothing but the settings and what the servers say.

    ``handing_over``: this session belongs to a handover, which others have to wait for. ``later``: makes what carries
    out later snapshots; ``gate``: what decides which reads see enough.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        figures: CaptureFigures,
        stop: Stop,
        clock: Clock,
        handing_over: bool = False,
        later: Later | None = None,
        gate: Callable[[Visibility], Gate] = VisibilityGate,
    ) -> None:
        self._settings = settings
        self._handing_over = handing_over
        self._later = later
        self._gate = gate
        self._figures = figures
        self._stop = stop
        self._clock = clock
        self._disturbed = False

    def open(self) -> Session:
        """A session, streaming from the position that the log says. Waits for a snapshot that runs.

        Raises what stands in the way: ConfigError, SourceError, SlotError, IdentityError, ActiveError, TopicError,
        LogError.
        """
        require_broker(self._settings.log)
        side = connect(self._settings.source, application_name="cdc capture", options={"lock_timeout": "2s"})
        try:
            return self._open(side)
        except psycopg.Error as error:
            side.close()
            raise SourceError(f"Postgres broke off: {first_line(error)}") from None
        except BaseException:
            side.close()
            raise

    def _open(self, side: Connection) -> Session:
        settings = self._settings
        admin = TopicAdmin(settings.log)
        known = identify(side, settings.source, self._await_snapshot())
        self._check_topics(admin, known.topics)
        self._lock(side)
        crash_point("opening_locked")
        written = {*known.topics.tables.values(), progress_topic(settings.name)}
        partitions = {topic: known.topics.topics[topic]["partitions"] for topic in sorted(written)}
        ends = admin.end_offsets(partitions)
        progress = self._progress(known.slot, ends)
        position = progress.lsn if progress is not None else known.slot.consistent_point
        require_within(known, position)
        self._check_slot(side, known.slot, position)
        crash_point("opening_checked")
        return self._start(side, known, ends, progress, position)

    # -- the steps

    def _await_snapshot(self) -> Known:
        state = CompactedTopic(self._settings.log, state_topic(self._settings.name))
        told = ""
        while True:
            known = known_of(state.read(), handing_over=self._handing_over)
            if isinstance(known, Known):
                return known
            told = self._wait("waiting_for_snapshot", known, told)

    def _lock(self, side: Connection) -> None:
        name, told = self._settings.name, ""
        patience = self._clock.monotonic() + _LOCK_PATIENCE_S
        while not try_lock(side, name):
            holders = lock_holders(side, name)
            captures = [holder for holder in holders if holder.exclusive]
            if captures and self._clock.monotonic() > patience:
                raise ActiveError(
                    f"another capture of {name} is running: Postgres session {captures[0].pid} "
                    f"({captures[0].application}) holds its lock",
                    hint=f"stop it first; if it is dead: select pg_terminate_backend({captures[0].pid});",
                )
            reason = ", ".join(f"session {holder.pid} ({holder.application}) still writes" for holder in holders)
            told = self._wait("waiting_for_lock", reason, told, 0.2 if captures else _ASK_S)

    def _wait(self, event: str, reason: str, told: str, wait_s: float = _ASK_S) -> str:
        self._figures.phase, self._figures.waiting_for = "waiting", reason
        if reason and reason != told:
            log.info(event, extra={"why": reason})
        self._clock.sleep(wait_s)
        self.turn()
        if self._stop.wanted:
            raise Stopped
        return reason

    def turn(self) -> None:
        """Called wherever something is waited for: we are alive, and may be told to give up."""
        self._figures.ticked_s = self._clock.monotonic()
        self._stop.check()

    def _check_topics(self, admin: TopicAdmin, topics: TopicsState) -> None:
        facts = admin.describe(topics.topics)
        problems = state_problems(topics, facts, admin.cluster_id())
        raise_first(problems)
        problems += policy_problems(made_specs(self._settings.log, self._settings.name, topics), facts)
        raise_first(problems)
        for problem in problems:
            log.warning("topic_differs", extra={"topic": problem.topic, "what": problem.message})

    def _progress(self, slot: SlotState, ends: Offsets) -> Progress | None:
        topic = progress_topic(self._settings.name)
        found = last_progress(self._settings.log, topic, ends[topic][0])
        if found is not None and found.epoch > slot.epoch:
            raise IdentityError(f"the log is in epoch {found.epoch}, the slot in {slot.epoch}", hint="cdc check")
        return found if found is not None and found.epoch == slot.epoch else None

    def _check_slot(self, side: Connection, known: SlotState, position: int) -> None:
        require_published(side, known)
        require_usable(read_slot(side, known.slot), known, position)

    def _start(
        self, side: Connection, known: Known, ends: Offsets, progress: Progress | None, position: int
    ) -> Session:
        settings = self._settings
        records = KafkaStreamLog(
            settings.log,
            memory_limit=settings.capture.memory_limit,
            waiting=self.turn,
            clock=self._clock,
            oversized=Oversized.of(settings, known.topics.tables, waiting=self.turn),
        )
        try:
            bases = {topic: records.open(topic, [parts[p] for p in sorted(parts)]) for topic, parts in ends.items()}
            progress_lane = bases[progress_topic(settings.name)]
            if progress is not None:
                require_nothing_lost(ends, progress)
            behind = progress or beginning(known.epochs, known.slot, ends, position)
            found = Ends(settings, known.topics, ends, behind, suspect_chunks=self._disturbed)
            state = CompactedTopic(settings.log, state_topic(settings.name))
            take_over(known, found.newest, state)
            seen = found.take_up(records, bases, state, self._clock)
            self._disturbed = False
            if progress is None:
                # The first of all: from here on the topics' tails tell what a killed capture had written.
                self._first_progress(records, progress_lane, behind)
            crash_point("tails_read")
            patience = Patience(self.turn)
            registry = self._registry(patience)
            # Before the stream starts: what it brings from then on is told by name.
            visible = barrier(side)
            stream = self._stream(side, known.slot, position)
            crash_point("stream_started")
        except BaseException:
            records.close()
            raise
        try:
            admin = TopicAdmin(settings.log)
            require_still(records.offsets(), admin.end_offsets(_counts(ends)), progress_topic(settings.name))
            near_xid = newest_xid(side)
        except BaseException:
            # The stream's own thread would go on feeding the slot, and nobody else could have it.
            stream.abandon()
            records.close()
            raise
        batch: list[Record] = []
        topics = CapturedTopics(settings, known.topics, self._clock, waiting=patience)
        lanes = Lanes(settings, topics, records.open)
        for topic, base in bases.items():
            lanes.note(topic, base, len(ends[topic]))
        windows = Windows(
            epoch=known.slot.epoch,
            after_lsn=max([known.slot.consistent_point, *(newest.commit_lsn for newest in seen.values())]),
            gate=self._gate(visible),
            lanes=lanes.of,
            partition=murmur2,
            produce=records.produce,
        )
        reselect = Reselect(
            side,
            clock=self._clock,
            waiting=self.turn,
            failover_slot=known.slot.slot if settings.source.failover else None,
            row_limit=row_limit(settings.log.max_message_bytes),
        )
        relations = Relations(side, settings, topics, registry)
        assembler = Assembler(
            Pipeline(name=settings.name, database=known.slot.database, epoch=known.slot.epoch),
            emit=batch.append,
            drain=_handing_over(records, batch, windows),
            schemas=relations,
            lanes=lanes.of,
            partition=murmur2,
            reselect=reselect,
            near_xid=near_xid,
            after_lsn=position,
            seen=seen,
            limits=Limits(spill_folder=settings.capture.spill_path),
        )

        later = self._later(windows, topics, registry, known.slot.epoch) if self._later is not None else None
        if later is not None:
            later.start()

        self._show(assembler, later)
        self._figures.flow = lambda: Flow(records.record_count, records.byte_count, records.queued(), reselect.count)
        return Session(
            stream=stream,
            assembler=assembler,
            batch=batch,
            log=records,
            progress_topic=progress_topic(settings.name),
            progress_lane=progress_lane,
            epoch=known.slot.epoch,
            position=position,
            look=partial(self._look, side, known.slot, records, EndsWatch(admin, _counts(ends))),
            close=partial(self._close, side, records, later, patience),
            windows=windows,
        )

    def _show(self, assembler: Assembler, later: Running | None) -> None:
        figures = self._figures
        figures.events, figures.lost_values = assembler.counts, assembler.lost
        figures.rereads = (lambda: later.figures) if later is not None else Rereads

    def _close(
        self, side: Connection, records: KafkaStreamLog, later: Running | None, patience: Patience, log_works: bool
    ) -> None:
        patience.end()
        self._disturbed = self._disturbed or records.disturbed
        if later is not None:
            later.close()
        records.close(_SETTLE_S if log_works else 0)
        side.close()

    def _registry(self, patience: Patience) -> SchemaRegistry:
        return SchemaRegistry(CompactedTopic(self._settings.log, schema_topic(self._settings.name), waiting=patience))

    def _first_progress(self, records: KafkaStreamLog, lane: int, beginning: Progress) -> None:
        own = progress_topic(self._settings.name)
        offsets = {topic: parts for topic, parts in records.offsets().items() if topic != own}
        first = Progress(epoch=beginning.epoch, lsn=beginning.lsn, offsets=offsets)
        records.produce([(lane, PROGRESS_KEY, first.to_json(), [])])
        records.settle()
        crash_point("first_progress_written")

    def _stream(self, side: Connection, slot: SlotState, position: int) -> ReplicationStream:
        settings = self._settings
        connection = connect(settings.source, application_name="cdc capture stream", replication=True)
        try:
            row = connection.execute("IDENTIFY_SYSTEM").fetchone()
            if row is None or row[0] != slot.system_identifier or row[1] != slot.timeline:
                raise IdentityError(
                    f"the dsn leads to more than one server: the stream's is {row[0] if row else 'unknown'}",
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
                clock=self._clock,
            )
        except BaseException:
            connection.close()
            raise
        try:
            # Again, now that nobody else can move it: the server starts at the later of the two, silently (H4).
            found = read_slot(side, slot.slot)
            if found is not None:
                require_not_ahead(found, position)
        except BaseException:
            stream.abandon()
            raise
        return stream

    def _look(
        self, side: Connection, slot: SlotState, records: KafkaStreamLog, watch: EndsWatch
    ) -> tuple[SlotFacts | None, int | None]:
        """The slot and the server's position. SlotError when the publication is gone, LogError when somebody else
        writes to the topics: the next session mends what he wrote."""
        ends = watch.look()
        intruded = records.intruded(ends) if ends is not None else None
        if intruded is not None:
            self._disturbed = True
            raise LogError(
                f"{intruded} holds records that this capture did not write",
                hint="a capture taken for dead still wrote, or somebody else does; capture starts again and mends it",
            )
        try:
            require_published(side, slot)
            return read_slot(side, slot.slot), read_server(side).wal_lsn
        except psycopg.Error as error:
            raise SourceError(f"Postgres broke off: {first_line(error)}") from None


def require_published(side: Connection, known: SlotState) -> None:
    """SlotError when the publication is gone: changes that are written now will never be sent (H52)."""
    if read_publication(side, known.publication) is None:
        raise SlotError(
            f"the publication {known.publication} is gone, and the slot {known.slot} cannot go on without it",
            hint=f"one made anew does not serve older changes: {START_OVER}",
        )


def _counts(ends: Offsets) -> dict[str, int]:
    return {topic: len(parts) for topic, parts in ends.items()}


def _handing_over(records: KafkaStreamLog, batch: list[Record], windows: Windows) -> Callable[[], None]:
    def hand_over() -> None:
        windows.touch(batch)
        records.produce(batch)
        batch.clear()

    return hand_over
