"""Opening a capture session: everything that must be true before the first frame is read, in its order.

Server, topics, lock, progress, slot, tails, stream, and the slot once more. Nothing is written before the lock is
taken, and nothing read from the topics before it either: another capture could still write behind our back. Each step
returns a part of :mod:`connectors.session.known_tables`, and one that raises releases what was opened before it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import psycopg

from cdc.capture.advance import CommitTimes
from cdc.capture.capture_loop import CaptureSession, CaptureStop, StartingPoint, Stopped
from cdc.capture.topic_specs import made_specs
from cdc.capture.transaction_visibility import Gate, Visibility, VisibilityGate
from cdc.capture.windows import Windows
from cdc.figures.capture_metrics import CaptureFigures, Flow, RereadFigures
from cdc.process.clock import Clock
from cdc.process.crash_points import crash_point, declare
from cdc.process.errors import ActiveError, IdentityError, LogError, SourceError
from cdc.process.logs import LoggedCauses
from cdc.record.progress import PROGRESS_KEY, Offsets, Progress
from cdc.record.server_facts import SlotFacts
from cdc.record.state import SlotState, TopicsState
from cdc.record.topic_names import progress_topic, state_topic
from cdc.settings.model import Settings
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.broker_answers import ends_of_made, facts_of_made, require_broker
from connectors.kafka.compacted_topic import KafkaCompactedTopic
from connectors.kafka.dead_letters import Oversized
from connectors.kafka.stream_log import KafkaStreamLog
from connectors.kafka.topic_ends import last_progress
from connectors.kafka.topic_problems import policy_problems, raise_first, state_problems
from connectors.postgres.server.catalog_facts import read_publication, read_slot
from connectors.postgres.server.connections import Connection, connect, first_line
from connectors.postgres.server.slot import (
    barrier,
    lock_holders,
    newest_xid,
    require_not_ahead,
    require_usable,
    require_written,
    try_lock,
)
from connectors.session.asides import SessionAsides
from connectors.session.captured_topics import Later, PartitionNumbers, SessionWorker
from connectors.session.histories import begin_histories
from connectors.session.known_tables import (
    KnownState,
    LogStanding,
    Servers,
    SourceStream,
    StreamAssembly,
    Tables,
    Writer,
    known_of,
    known_tables,
    snapshot_stand,
)
from connectors.session.late_records import Ends, NoteRetry, beginning, require_nothing_lost, require_still
from connectors.session.session_stream import SessionAssembly, identify, open_stream, require_within, take_over
from connectors.session.side_queries import SideQueries, gone

log = logging.getLogger(__name__)

declare("opening_locked", "opening_checked", "first_progress_written", "tails_read", "stream_started")

_ASK_S = 1.0
_LOCK_WAIT_S = 5.0
"""How long a capture that was just killed may still seem to be there."""
_SETTLE_S = 10.0
_STOP_GRACE_S = 1.0


class Opening:
    """Opens one session after the other, each from nothing but the settings and what the servers say.

    ``later``: makes what carries out later snapshots. ``gate``: what decides which reads see enough.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        figures: CaptureFigures,
        stop: CaptureStop,
        clock: Clock,
        later: Later | None = None,
        gate: Callable[[Visibility], Gate] = VisibilityGate,
    ) -> None:
        self._settings = settings
        self._later = later
        self._gate = gate
        self._figures = figures
        self._stop = stop
        self._clock = clock
        self._disturbed = False
        self._topic_problems = LoggedCauses()

    def open(self) -> CaptureSession:
        """A session, streaming from the position that the log says. Waits for a snapshot that runs.

        Raises what stands in the way: ConfigError, SourceError, SlotError, IdentityError, ActiveError, TopicError,
        LogError.
        """
        require_broker(self._settings.log)
        with ExitStack() as opened:
            try:
                session = self._open(opened)
            except psycopg.Error as error:
                raise SourceError(f"Postgres broke off: {first_line(error)}") from None
            opened.pop_all()
            return session

    def _open(self, opened: ExitStack) -> CaptureSession:
        place = self._locate(opened)
        standing = self._stand(place)
        writer = self._take_up(opened, place, standing)
        tables = self._tables(opened, place, standing, writer)
        source = self._start(opened, place, standing)
        self._require_still(place, standing, writer)
        following = self._follow(opened, place, standing, writer, tables, source)
        self._show(writer, following)
        return CaptureSession(
            stream=source.stream,
            assembler=following.assembler,
            log=writer.log,
            times=writer.log.times,
            start=StartingPoint(
                epoch=place.known.slot.epoch,
                position=standing.position,
                topic=progress_topic(self._settings.name),
                lane=writer.bases[progress_topic(self._settings.name)],
                lineage=place.known.lineage,
            ),
            look=partial(self._look, writer, following.looks),
            close=partial(self._close, place.side, writer.log, following, tables.note_retry),
            windows=following.windows,
            asides=following.rounds,
        )

    def _locate(self, opened: ExitStack) -> Servers:
        """Find the pipeline's server and topics, and take its lock."""
        settings = self._settings
        limits = {"lock_timeout": "2s"}
        side = connect(settings.source, application_name="cdc capture", options=limits, turn=self.source_turn)
        opened.callback(side.close)
        admin = TopicAdmin(settings.log)
        known = identify(side, settings.source, self._await_snapshot(), self.source_turn)
        self._check_topics(admin, known.topics)
        self._lock(side)
        # Another capture may have gone on with a promoted server while this one waited for it.
        known = identify(side, settings.source, self._await_snapshot(), self.source_turn)
        crash_point("opening_locked")
        return Servers(side=side, admin=admin, known=known)

    def _stand(self, place: Servers) -> LogStanding:
        """Read how far the log is, and check that the slot can go on from there."""
        topics, slot = place.known.topics, place.known.slot
        written = {*topics.written, progress_topic(self._settings.name)}
        ends = ends_of_made(place.admin, {topic: topics.topics[topic]["partitions"] for topic in sorted(written)})
        newest = self._newest(slot, ends)
        progress = newest if newest.epoch == slot.epoch else None
        position = progress.lsn if progress is not None else slot.consistent_point
        require_within(place.known, position)
        require_published(place.side, slot)
        # Asked for behind the ends: what lies in the topics was written in the source before.
        written_lsn = require_written(place.side, max(position, place.known.cut_lsn))
        require_usable(read_slot(place.side, slot.slot), slot, position)
        crash_point("opening_checked")
        return LogStanding(ends, progress, position, written_lsn, newest.at_us)

    def _take_up(self, opened: ExitStack, place: Servers, standing: LogStanding) -> Writer:
        """Open the log behind what it holds, and repair what came too late."""
        settings, known = self._settings, place.known
        records = KafkaStreamLog(
            settings.log,
            memory_limit=settings.capture.memory_limit,
            waiting=self.turn,
            clock=self._clock,
            oversized=Oversized.of(settings, known.topics.tables, waiting=self.turn),
            times=CommitTimes(standing.at_us),
        )
        opened.callback(records.close)
        ends, progress = standing.ends, standing.progress
        bases = {topic: records.open(topic, [parts[p] for p in sorted(parts)]) for topic, parts in ends.items()}
        if progress is not None:
            require_nothing_lost(ends, progress)
        behind = progress or beginning(known.epochs, known.slot, ends, standing.position, standing.at_us)
        # Behind a promotion, a record beyond the switch says that changes were lost: see take_over.
        written_lsn = standing.written_lsn if known.promotion is None else None
        found = Ends(settings, known.topics, ends, behind, suspect_chunks=self._disturbed, written_lsn=written_lsn)
        state = KafkaCompactedTopic(settings.log, state_topic(settings.name))
        take_over(known, found.newest, state)
        seen = found.take_up(records, bases, state, self._clock)
        self._disturbed = False
        if progress is None:
            # The first of all: from here on the topics' tails show what a killed capture had written.
            self._first_progress(records, bases[progress_topic(settings.name)], behind)
        crash_point("tails_read")
        return Writer(log=records, bases=bases, seen=seen)

    def _tables(self, opened: ExitStack, place: Servers, standing: LogStanding, writer: Writer) -> Tables:
        """Read the registered shapes, and number the topics that there are."""
        settings, note_retry = self._settings, NoteRetry(self.turn)
        opened.callback(note_retry.end)
        known = known_tables(settings, place.known, self._clock, note_retry)
        lanes = PartitionNumbers(settings, known.topics, writer.log)
        for topic, base in writer.bases.items():
            lanes.note(topic, base, standing.counts[topic])
        begin_histories(known.topics, lanes, writer.log, place.known.slot.epoch, standing)
        return Tables(
            topics=known.topics, asides=known.asides, lanes=lanes, registry=known.registry, note_retry=note_retry
        )

    def _start(self, opened: ExitStack, place: Servers, standing: LogStanding) -> SourceStream:
        """Start the stream."""
        # Before it starts: what it brings from then on is reported by name.
        visible = barrier(place.side)
        at, turn = standing.position, self.source_turn
        stream = open_stream(self._settings, place.side, place.known.slot, at, self._clock, turn)
        # Its own thread would go on feeding the slot, and nobody else could have it.
        opened.callback(stream.abandon)
        found = read_slot(place.side, place.known.slot.slot)
        if found is not None:
            # Again, now that nobody else can move it: the server starts at the later of the two, silently.
            require_not_ahead(found, standing.position)
        crash_point("stream_started")
        return SourceStream(stream=stream, visible=visible, near_xid=newest_xid(place.side))

    def _require_still(self, place: Servers, standing: LogStanding, writer: Writer) -> None:
        """LogError when a topic grew since its end was read."""
        now = ends_of_made(place.admin, standing.counts)
        require_still(writer.log.offsets(), now, progress_topic(self._settings.name))

    def _follow(
        self,
        opened: ExitStack,
        place: Servers,
        standing: LogStanding,
        writer: Writer,
        tables: Tables,
        source: SourceStream,
    ) -> StreamAssembly:
        """Join what makes records with what takes them, and start what reads tables again."""
        joining = SessionAssembly(
            settings=self._settings,
            servers=place,
            standing=standing,
            writer=writer,
            tables=tables,
            source=source,
            figures=self._figures,
            clock=self._clock,
            gate=self._gate,
            waiting=self.source_turn,
        )
        windows, reselect = joining.windows(), joining.reselect()
        assembler = joining.assembler(reselect, windows)
        later = self._later_of(windows, tables, place.known.slot.epoch)
        if later is not None:
            opened.callback(later.close)
            later.start()
        looks = joining.looks()
        opened.callback(looks.close)
        return StreamAssembly(
            windows=windows,
            reselect=reselect,
            assembler=assembler,
            later=later,
            looks=looks,
            rounds=SessionAsides(tables.asides, assembler, tables.topics.named),
        )

    def _later_of(self, windows: Windows, tables: Tables, epoch: int) -> SessionWorker | None:
        return self._later(windows, tables.topics, tables.registry, epoch) if self._later is not None else None

    def _await_snapshot(self) -> KnownState:
        state = KafkaCompactedTopic(self._settings.log, state_topic(self._settings.name))
        told = ""
        while True:
            documents = state.read()
            known = known_of(documents, name=self._settings.name)
            if isinstance(known, KnownState):
                self._figures.snapshot.over()
                return known
            self._figures.snapshot.note(self._clock.monotonic(), snapshot_stand(documents))
            told = self._wait("waiting_for_snapshot", known, told)

    def _lock(self, side: Connection) -> None:
        name, told = self._settings.name, ""
        deadline_s = self._clock.monotonic() + _LOCK_WAIT_S
        while not try_lock(side, name):
            holders = lock_holders(side, name)
            captures = [holder for holder in holders if holder.exclusive]
            if captures and self._clock.monotonic() > deadline_s:
                raise ActiveError(
                    f"another capture of {name} is running: Postgres session {captures[0].pid} "
                    f"({captures[0].application}) holds its lock",
                    hint=f"stop it first; if it is dead: select pg_terminate_backend({captures[0].pid});",
                )
            reason = ", ".join(f"session {holder.pid} ({holder.application}) still writes" for holder in holders)
            told = self._wait("waiting_for_lock", reason, told, 0.2 if captures else _ASK_S)

    def _wait(self, event: str, reason: str, told: str, wait_s: float = _ASK_S) -> str:
        self._figures.phase, self._figures.waiting_for, self._figures.waiting_cure = "waiting", reason, ""
        if reason and reason != told:
            log.info(event, extra={"why": reason})
        self._clock.sleep(wait_s)
        self.turn()
        if self._stop.wanted:
            raise Stopped
        return reason

    def turn(self) -> None:
        """Called wherever something is waited for: we are alive, and may have to give up."""
        self._figures.ticked_s = self._clock.monotonic()
        self._stop.check()

    def source_turn(self) -> None:
        """Called while an answer of the source is waited for. Stopped when a stop was asked for a second ago: what
        waits is not acknowledged, and comes again."""
        self._figures.ticked_s = self._clock.monotonic()
        if self._stop.wanted_s() > _STOP_GRACE_S:
            raise Stopped

    def _check_topics(self, admin: TopicAdmin, topics: TopicsState) -> None:
        facts = facts_of_made(admin, topics.topics)
        problems = state_problems(topics, facts, admin.cluster_id())
        raise_first(problems)
        specs = made_specs(self._settings.log, self._settings.name, topics)
        problems += policy_problems(specs, facts)
        raise_first(problems)
        for problem in problems:
            if self._topic_problems.is_new(problem.topic, problem.message):
                log.warning("topic_differs", extra={"topic": problem.topic, "what": problem.message})

    def _newest(self, slot: SlotState, ends: Offsets) -> Progress:
        topic = progress_topic(self._settings.name)
        found = last_progress(self._settings.log, topic, ends[topic][0]) or Progress(epoch=0, lsn=0)
        if found.epoch > slot.epoch:
            raise IdentityError(f"the log is in epoch {found.epoch}, the slot in {slot.epoch}", hint="cdc check")
        return found

    def _first_progress(self, records: KafkaStreamLog, lane: int, beginning: Progress) -> None:
        own = progress_topic(self._settings.name)
        offsets = {topic: parts for topic, parts in records.offsets().items() if topic != own}
        records.produce([(lane, PROGRESS_KEY, beginning.at(offsets).to_json(), [])])
        records.settle()
        crash_point("first_progress_written")

    def _show(self, writer: Writer, following: StreamAssembly) -> None:
        figures, later, records, made = self._figures, following.later, writer.log, following.assembler
        figures.events, figures.lost_values, figures.outbox = made.counts, made.lost, lambda: made.outbox_counts
        figures.waiting_ready_s = self._settings.capture.waiting_ready.total_seconds()
        figures.waiting = lambda: {str(table): n for table, n in following.assembler.waiting().items()}
        figures.asides = lambda: following.rounds.documents
        figures.rereads = (lambda: later.figures) if later is not None else RereadFigures
        figures.flow = lambda: Flow(
            records.record_count, records.byte_count, records.queued(), following.reselect.count
        )

    def _close(
        self, side: Connection, records: KafkaStreamLog, stream: StreamAssembly, note_retry: NoteRetry, log_works: bool
    ) -> None:
        self._disturbed = self._disturbed or records.disturbed
        # Each is released, also when another raises. The last one that is registered comes first.
        with ExitStack() as closing:
            closing.callback(side.close)
            closing.callback(records.close, _SETTLE_S if log_works else 0)
            if stream.later is not None:
                closing.callback(stream.later.close)
            closing.callback(stream.looks.close)
            closing.callback(note_retry.end)

    def _look(self, writer: Writer, looks: SideQueries) -> tuple[SlotFacts | None, int | None]:
        """The slot and the server's position, as last known. LogError when somebody else writes to the topics: the
        next session repairs what he wrote."""
        ends = looks.ends()
        intruded = writer.log.intruded(ends) if ends is not None else None
        if intruded is not None:
            self._disturbed = True
            raise LogError(
                f"{intruded} holds records that this capture did not write",
                hint="a capture taken for dead still wrote, or somebody else does; capture starts again and mends it",
            )
        return looks.newest()


def require_published(side: Connection, known: SlotState) -> None:
    """SlotError when the publication is gone: changes that are written now will never be sent."""
    if read_publication(side, known.publication) is None:
        raise gone(known)
