"""One writer after the other on the same topics, without a new snapshot: what ``cdc connect handover`` does.

The slot passes from one to the other, so no WAL is lost between them. Each step is noted in ``<name>.state`` before
the next begins.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from cdc.boundary import capture_up_to
from cdc.capture import Stop
from cdc.clock import SYSTEM_CLOCK, Clock
from cdc.crash import crash_point, declare
from cdc.epochs import EpochsState
from cdc.errors import ActiveError, ConfigError, LogError, SlotError, TopicError
from cdc.handover import key_problems, key_questions, shaping_options
from cdc.lsn import Lsn
from cdc.metrics import CaptureFigures
from cdc.progress import PROGRESS_KEY, Offsets, Progress
from cdc.settings import Settings
from cdc.state import SlotState, SnapshotState, TopicsState
from cdc.topic import state_topic
from cdc.turn import Writer, WriterState
from cdc.wiring import open_progress, open_schemas, open_source, open_state, require_broker
from cdc.wiring.debezium import open_connector
from cdc.wiring.pipeline import prepare_pipeline

if TYPE_CHECKING:
    from cdc.checks.facts import ServerFacts, SlotFacts
    from cdc.schema import TableSchema
    from connectors.connect.connector import Connector
    from connectors.postgres.session import Connection

log = logging.getLogger(__name__)
Say = Callable[[str], None]

declare("handover_begun", "handover_stopped", "handover_located", "handover_placed", "handover_resumed")

_PATIENCE_S = 60.0
_MARK = b"select pg_logical_emit_message(true, 'cdc.handover', '') - '0/0'::pg_lsn"
_POLL_S = 0.2


def hand_over(settings: Settings, to: Writer, say: Say, clock: Clock = SYSTEM_CLOCK) -> WriterState:
    """Let ``to`` write the pipeline's topics from here on; returns what was noted. Safe to repeat.

    Everything is checked before anything is stopped: ConfigError where the two would write other keys, topics or
    partitions. ActiveError while ``cdc run`` runs. Raises ConnectError, SlotError, TopicError, LogError.
    """
    return Handover(settings, say, clock).run(to)


class Handover:
    """One run of it."""

    def __init__(self, settings: Settings, say: Say, clock: Clock) -> None:
        if settings.debezium is None or settings.debezium.database != "postgres":
            raise ConfigError(
                "a handover needs a [debezium] section for Postgres",
                hint='add [debezium] with url = "http://127.0.0.1:8083"',
            )
        # Each side is opened by its own settings, whichever of the two the file speaks of now.
        self._native = _with_kind(settings, "postgres")
        self._settings = _with_kind(settings, "debezium")
        self._say = say
        self._clock = clock
        self._state = open_state(settings)
        self._connector: Connector = open_connector(self._settings)

    def run(self, to: Writer) -> WriterState:
        require_broker(self._native)
        known = self._writer()
        if known is not None and known.settled and known.writer == to:
            self._say("nothing to do: it writes already")
            return known
        if known is not None and not known.settled and known.writer != to:
            raise ConfigError(
                f"a handover to {known.writer} was begun and not finished",
                hint=f"cdc connect handover --to {known.writer} first",
            )
        return self._to_native(known) if to == "native" else self._to_debezium(known)

    # -- to the native capture

    def _to_native(self, known: WriterState | None) -> WriterState:
        if known is None or known.settled:
            self._require_debezium_complete()
            self._publish_everything()
            self._check()
            known = self._note(WriterState(writer="native", step="begun"))
            crash_point("handover_begun")
        if known.step == "begun":
            self._stop_debezium()
            lsn = self._take_place()
            crash_point("handover_located")
            known = self._note(replace(known, step="stopped", lsn=lsn))
            crash_point("handover_stopped")
        self._withdraw()
        done = self._note(replace(known, step="done"))
        self._say(f'the native capture goes on at {Lsn(done.lsn)}: set [source] kind = "postgres", then cdc run')
        return done

    def _require_debezium_complete(self) -> None:
        from connectors.debezium.progress import shown_lsn

        self._connector.require_healthy()
        changes = self._connector.diff()
        if changes:
            raise ConfigError(
                f"the running connector differs from the settings: {', '.join(changes)}",
                hint="cdc connect deploy brings it to them; then hand over",
            )
        stored = self._connector.offsets()
        if any(name.startswith("incremental_snapshot") for entry in stored for name in entry.get("offset") or ()):
            raise ConfigError(
                "Debezium reads an incremental snapshot just now, and nobody would read the rest of it",
                hint="wait for its end, or cdc connect signal stop",
            )
        if shown_lsn(stored) is None:
            raise ConfigError(
                "Debezium's snapshot is not complete, or it has not stored an offset yet",
                hint="cdc connect status shows its offsets; they are stored every offset.flush.interval.ms",
            )

    def _publish_everything(self) -> None:
        """Debezium makes a publication without TRUNCATE; with it, it passes them over as before."""
        from connectors.postgres.publication import publish_everything

        with closing(open_source(self._native, application_name="cdc handover")) as session:
            if publish_everything(session, self._native.publication):
                self._say(f"the publication {self._native.publication} sends TRUNCATE too, from now on")

    def _stop_debezium(self) -> None:
        from connectors.debezium.client import MissingConnector

        try:
            self._connector.stop()
        except MissingConnector:
            return
        self._say(f"stopped the connector {self._connector.name}")

    def _take_place(self) -> int:
        """Note slot, snapshot and progress as the native capture would have; the LSN it goes on from."""
        from connectors.connect.locate import locate
        from connectors.connect.places import newest_places

        slot, server = self._free_slot()
        held = self._state.read()
        topics = TopicsState.find(held)
        assert topics is not None
        assert slot.confirmed_flush_lsn is not None
        start, epoch = slot.confirmed_flush_lsn, (EpochsState.find(held) or EpochsState()).latest
        former = SlotState.find(held)
        begun = SlotState(
            epoch=epoch,
            system_identifier=server.system_identifier,
            timeline=server.timeline,
            database=server.database,
            database_oid=server.database_oid,
            slot=slot.slot,
            publication=self._native.publication,
            consistent_point=start if former is None else former.consistent_point,
        )
        ends = self._still(topics)
        places = newest_places(self._native.log, ends)
        self._say(f"reading the log from {Lsn(start)} on, to see what Debezium wrote last")
        ahead = locate(self._native, begun, topics, start, places, self._clock)
        progress = Progress(epoch=epoch, lsn=start, offsets=ends, ahead=ahead)
        open_progress(self._native).write([(PROGRESS_KEY, progress.to_json())])
        snapshot = SnapshotState.find(held)
        if snapshot is None or snapshot.state != "complete" or snapshot.epoch != epoch:
            snapshot = SnapshotState(
                epoch=epoch,
                state="complete",
                consistent_point=begun.consistent_point,
                last_cut_lsn=start,
                tables=sorted(topics.tables),
            )
        self._state.write([(begun.key(), begun.to_json()), (snapshot.key(), snapshot.to_json())])
        return start

    def _withdraw(self) -> None:
        from connectors.debezium.client import MissingConnector

        try:
            self._connector.withdraw()
        except MissingConnector:
            return
        self._say(f"removed the connector {self._connector.name} with its offsets")

    # -- to Debezium

    def _to_debezium(self, known: WriterState | None) -> WriterState:
        if known is None or known.settled:
            self._require_native_known()
            self._check()
            self._require_no_capture()
            known = self._note(WriterState(writer="debezium", step="begun"))
            crash_point("handover_begun")
        if known.step == "begun":
            lsn = self._capture_to_boundary()
            self._note_epoch()
            known = self._note(replace(known, step="stopped", lsn=lsn))
            crash_point("handover_stopped")
        if known.step == "stopped":
            self._connector.place_stopped(known.lsn)
            crash_point("handover_placed")
            known = self._note(replace(known, step="placed"))
        self._connector.resume(handing_over=True)
        crash_point("handover_resumed")
        done = self._note(replace(known, step="done"))
        self._say(f'Debezium goes on at {Lsn(done.lsn)}: set [source] kind = "debezium", and start the sinks again')
        return done

    def _require_native_known(self) -> None:
        held = self._state.read()
        snapshot = SnapshotState.find(held)
        if SlotState.find(held) is None or snapshot is None or snapshot.state != "complete":
            raise ConfigError(
                "the native capture has no complete snapshot, so there is nothing to hand over",
                hint="cdc snapshot finishes it; with Debezium from the start: cdc connect deploy",
            )

    def _require_no_capture(self) -> None:
        from connectors.postgres.slot import lock_holders

        with closing(open_source(self._native, application_name="cdc handover")) as session:
            holders = lock_holders(session, self._native.name)
        if holders:
            raise ActiveError(
                f"Postgres session {holders[0].pid} ({holders[0].application}) still writes",
                hint="stop cdc run (and cdc snapshot) first, and keep it stopped; then hand over",
            )

    def _capture_to_boundary(self) -> int:
        from cdc.wiring.capture import open_capture

        with closing(open_source(self._native, application_name="cdc handover")) as session:
            row = session.execute(_MARK).fetchone()
        assert row is not None
        self._say("writing what is left, up to the end of a transaction")
        figures = CaptureFigures(ticked_s=self._clock.monotonic())
        stop = Stop(self._clock, self._native.capture.drain_timeout.total_seconds())
        opening = open_capture(self._native, figures=figures, stop=stop, clock=self._clock, handing_over=True)
        lsn = capture_up_to(opening.open(), int(row[0]), self._clock)
        slot, _ = self._free_slot()
        if slot.confirmed_flush_lsn is None or slot.confirmed_flush_lsn > lsn:
            raise SlotError(f"the slot {slot.slot} stands beyond {Lsn(lsn)}", hint="somebody else advanced it")
        return lsn

    def _note_epoch(self) -> None:
        """Debezium's records carry no epoch: theirs begins where the topics end now."""
        held = self._state.read()
        slot, topics = SlotState.find(held), TopicsState.find(held)
        assert slot is not None
        assert topics is not None
        known = EpochsState.find(held) or EpochsState()
        grown = known.reaching(slot.epoch, self._still(topics))
        if grown != known:
            self._state.write([(grown.key(), grown.to_json())])

    # -- both

    def _check(self) -> None:
        """Refuse while both still stand as they are."""
        from connectors.connect.tables import read_tables

        assert self._settings.debezium is not None
        shaping = shaping_options(self._settings.debezium.options)
        if shaping:
            raise ConfigError(
                f"[debezium.options] {', '.join(shaping)}: these change keys, topics or the slot",
                hint="both must write the same; take them out, cdc connect deploy, then hand over",
            )
        prepare_pipeline(self._native, handing_over=True)
        held = self._state.read()
        topics = TopicsState.find(held)
        assert topics is not None
        self._require_partitions(topics)
        registry = open_schemas(self._native)
        latest = [s for t in registry.tables() if (s := registry.latest(t)) and str(t) in topics.tables]
        with closing(open_source(self._native, application_name="cdc handover")) as session:
            primary = {f"{table.schema}.{table.name}": table.primary_key for table in read_tables(session)}
            problems = [*key_problems(latest, primary), *_asked(session, latest)]
        if problems:
            raise ConfigError(
                f"the two would write other keys: {problems[0]}"
                + (f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""),
                hint="rows of both would stay in the topic beside each other: leave the table out ([source] exclude), "
                "or begin a new pipeline with a snapshot of its own",
            )

    def _require_partitions(self, topics: TopicsState) -> None:
        from connectors.kafka.admin import TopicAdmin

        tables = sorted(topics.tables.values())
        for topic, found in TopicAdmin(self._native.log).describe(tables).items():
            if found.partitions != topics.topics[topic]["partitions"]:
                made = topics.topics[topic]["partitions"]
                raise TopicError(
                    f"{topic} has {found.partitions} partitions, and {made} when it was made",
                    hint="Debezium writes to as many as there are, the native capture to as many as there were",
                )

    def _free_slot(self) -> tuple[SlotFacts, ServerFacts]:
        """The slot, once nobody reads it any more."""
        from connectors.postgres.facts import read_server, read_slot

        deadline_s = self._clock.monotonic() + _PATIENCE_S
        with closing(open_source(self._native, application_name="cdc handover")) as session:
            server = read_server(session)
            while True:
                slot = read_slot(session, self._native.slot)
                if slot is None or slot.confirmed_flush_lsn is None or slot.wal_status == "lost":
                    raise SlotError(
                        f"the slot {self._native.slot} is not there, or was given up by the server",
                        hint="see connectors/postgres/README.md, slot lost",
                    )
                if slot.plugin != "pgoutput":
                    raise SlotError(
                        f"the slot {slot.slot} is made for {slot.plugin}, and pgoutput is wanted",
                        hint="the native capture reads pgoutput alone: a new pipeline has a snapshot of its own",
                    )
                if slot.active_pid is None:
                    return slot, server
                if self._clock.monotonic() > deadline_s:
                    raise ActiveError(
                        f"the slot {slot.slot} is still read by Postgres session {slot.active_pid}",
                        hint="stop its reader; the handover goes on when it is run again",
                    )
                self._clock.sleep(_POLL_S)

    def _still(self, topics: TopicsState) -> Offsets:
        """The table topics' ends, seen twice alike: what a dead writer's client still had has arrived."""
        from connectors.kafka.admin import TopicAdmin

        admin = TopicAdmin(self._native.log)
        counts = {topic: topics.topics[topic]["partitions"] for topic in sorted(set(topics.tables.values()))}
        deadline_s = self._clock.monotonic() + _PATIENCE_S
        ends = admin.end_offsets(counts)
        while self._clock.monotonic() < deadline_s:
            self._clock.sleep(1.0)
            now = admin.end_offsets(counts)
            if now == ends:
                return ends
            ends = now
        raise LogError("the table topics still grow, though nobody should write to them", hint="find the other writer")

    def _writer(self) -> WriterState | None:
        from connectors.kafka.admin import TopicAdmin

        if not TopicAdmin(self._native.log).describe([state_topic(self._native.name)]):
            return None
        return WriterState.find(self._state.read())

    def _note(self, state: WriterState) -> WriterState:
        self._state.write([(state.key(), state.to_json())])
        log.info("handover", extra={"writer": state.writer, "step": state.step, "lsn": str(Lsn(state.lsn))})
        return state


def _asked(session: Connection, schemas: Iterable[TableSchema]) -> list[str]:
    from psycopg import sql

    found = []
    for question in key_questions(schemas):
        condition = sql.SQL(question.condition).format(sql.Identifier(question.column))
        query = sql.SQL("select exists (select from {} where {})").format(
            sql.Identifier(*question.table.table), condition
        )
        row = session.execute(query).fetchone()
        if row is not None and row[0]:
            where = f"{question.table.table}: the key {question.column}"
            found.append(f"{where} holds a value that is written otherwise ({question.rule})")
    return found


def _with_kind(settings: Settings, kind: str) -> Settings:
    return settings.model_copy(update={"source": settings.source.model_copy(update={"kind": kind})})
