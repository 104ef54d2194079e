"""The first snapshot from its first check to its last record, and from wherever an earlier run was killed.

Each refusal of a check, at the beginning or whenever the snapshot goes on, names the remedy.
"""

from __future__ import annotations

from contextlib import ExitStack, closing, suppress
from dataclasses import replace

import psycopg

from cdc.capture.table_masks import masks_of
from cdc.checks.postgres import FAILOVER_VERSION
from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.crash_points import crash_point, declare
from cdc.process.errors import ActiveError, CdcError, ConfigError, SlotError, SourceError, UsageError
from cdc.process.sql_files import quote_literal
from cdc.record.position import Position
from cdc.record.progress import FIRST_EPOCH, require_begun
from cdc.record.server_facts import ServerFacts, SlotFacts
from cdc.record.state import SlotIntent, SlotState, TopicsState
from cdc.settings.model import Settings
from connectors.postgres.encoding.encoder import compile_table
from snapshot.first.chunk_scheduler import ChunkScheduler
from snapshot.first.manifest import Ledger, Manifest, Sizing
from snapshot.first.slot_creation import (
    MadeSlot,
    end_making,
    hold_export,
    keep_on_standbys,
    keep_slot,
    make_slot,
    remove_slot,
)
from snapshot.first.summary import Summary, summarise
from snapshot.first.workers import FLUSH_S, WorkerPool
from snapshot.source.ports import Edges, Reporter, RowLog, Session, Shapes
from snapshot.source.read_transaction import SQL, first_line, sweep_mark

declare("snapshot_planned", "slot_noted", "slot_recorded", "chunks_all_recorded", "snapshot_completed")

_RUN_AGAIN = "run cdc snapshot again: it goes on where it was"
_ROUNDS = 3
"""How often tables that changed after they were read are read again. What changes then is only asked for."""


class FirstSnapshot:
    """One run of ``cdc snapshot``. ``workers``: processes, ``[snapshot] workers`` unless given.

    Killed at any moment, the next run goes on: finished chunks stay, the slot too, and what is left is read at the
    same position in a new cut.
    """

    def __init__(
        self, edges: Edges, reporter: Reporter, *, workers: int | None = None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._edges = edges
        self._reporter = reporter
        self._clock = clock
        self._workers = workers or edges.settings.snapshot.workers
        self._started_s = clock.monotonic()
        self._ledger = Ledger(edges.log.state())

    def run(self, *, rows: bool = True) -> Summary:
        """Make the slot and copy the rows. ``rows=False`` makes the slot and calls that the whole snapshot.

        Raises ConfigError, TopicError, SlotError, IdentityError, ActiveError, SourceError, LogError, PoisonError,
        or UsageError for ``rows=False`` after a snapshot with rows has begun.
        """
        with closing(self._edges.source.session("cdc snapshot")) as session, ExitStack() as exits:
            try:
                return self._run(session, exits, rows=rows)
            except psycopg.Error as error:
                raise SourceError(
                    f"the session with Postgres broke off: {first_line(error)}", hint=_RUN_AGAIN
                ) from None
            except SourceError as error:
                error.hint = error.hint or _RUN_AGAIN
                raise
            except KeyboardInterrupt:
                if self._ledger.manifest.slot is not None:
                    self._reporter.say("stopped; cdc snapshot goes on where it was")
                raise

    def _run(self, session: Session, exits: ExitStack, *, rows: bool) -> Summary:
        topics = require_topics(self._ledger.read(), self._edges.settings)
        self._edges.log.check(topics)
        require_server(self._edges, session)
        take_writers_lock(session, self._edges.lock, self._clock)
        # Read under the lock: from here on it changes by our hand only.
        manifest = self._ledger.read()
        require_epoch(manifest, rows=rows)
        require_slot(self._edges, session, manifest, rows=rows)
        if manifest.complete:
            return self._summary(already_complete=True)
        scheduler = ChunkScheduler(
            self._edges,
            session,
            self._ledger,
            topics,
            sizing=Sizing(
                workers=self._workers,
                most_bytes=self._edges.settings.snapshot.chunk_bytes,
                server_version=session.info.server_version,
            ),
            reporter=self._reporter,
            clock=self._clock,
        )
        exits.callback(scheduler.close)
        if not rows:
            self._begin(session, scheduler, rows=False)
            return self._summary()
        self._copy(session, scheduler)
        for _ in range(_ROUNDS):
            if not scheduler.replan_changed():
                break
            self._copy(session, scheduler)
        crash_point("chunks_all_recorded")
        self._sweep(topics)
        self._ledger.complete(scheduler.insert_lsn(), scheduler.inspect_at_end())
        crash_point("snapshot_completed")
        return self._summary()

    def _sweep(self, topics: TopicsState) -> None:
        slot = self._ledger.manifest.slot
        if slot is None:
            return
        edges, log = self._edges, self._edges.log
        sweep(
            log.rows(),
            log.shapes(),
            self._ledger.manifest,
            slot,
            topics,
            settings=edges.settings,
            clock=self._clock,
        )

    def _copy(self, session: Session, scheduler: ChunkScheduler) -> None:
        """Read what is left. At the very first make the slot, while the workers start."""
        manifest = self._ledger.manifest
        if manifest.slot is not None and not manifest.left():
            return
        with WorkerPool(self._edges, exact=self._workers == 1) as pool:
            for _ in range(self._workers):
                pool.start()
            if manifest.slot is None:
                self._begin(session, scheduler, rows=True)
            scheduler.work(pool)

    def _begin(self, session: Session, scheduler: ChunkScheduler, *, rows: bool) -> None:
        """Plan, then make the slot, then note it: a crash in between leaves an intent, and the slot is made again."""
        slot = self._edges.settings.slot
        if end_making(session, slot, self._clock):
            self._reporter.say(f"an earlier run left the slot {slot} half made: it is removed and made again")
        require_no_slot(self._edges, session, self._ledger.manifest, self._reporter)
        server, _, _ = self._edges.source.facts(session)
        intent = SlotIntent(
            epoch=self._ledger.manifest.epochs.latest,
            system_identifier=server.system_identifier,
            database=server.database,
            slot=slot,
        )
        inspection = scheduler.inspect()
        self._ledger.plan(intent, inspection if rows else None, scheduler.sizing)
        crash_point("snapshot_planned")
        made, walsender = self._make_slot(session, export=rows)
        with ExitStack() as release:
            release.callback(walsender.close)
            self._keep_slot(session, replace(intent, consistent_point=made.consistent_point))
            self._ledger.open(self._slot_state(server, made), inspection.tables, rows=rows)
            crash_point("slot_recorded")
            self._reporter.say(f"the slot {slot} begins at {made.consistent_point}")
            if rows:
                # One that has died between two statements is no harm: a new cut does as well.
                with suppress(psycopg.Error):
                    scheduler.holder = hold_export(self._edges.source, made, walsender)
                    release.pop_all()

    def _make_slot(self, session: Session, *, export: bool) -> tuple[MadeSlot, Session]:
        settings = self._edges.settings
        try:
            return make_slot(
                self._edges.source,
                session,
                settings.slot,
                export=export,
                lock_timeout_s=settings.snapshot.lock_timeout.total_seconds(),
                say=self._reporter.say,
            )
        except CdcError:
            self._ledger.withdraw()
            raise

    def _keep_slot(self, session: Session, begun: SlotIntent) -> None:
        """Note where the slot begins, then give it its lasting name."""
        self._ledger.began(begun)
        crash_point("slot_noted")
        keep_slot(session, begun.slot)
        if self._edges.settings.source.failover:
            keep_on_standbys(self._edges.source, begun.slot)

    def _slot_state(self, server: ServerFacts, made: MadeSlot) -> SlotState:
        settings = self._edges.settings
        return SlotState(
            epoch=self._ledger.manifest.epochs.latest,
            system_identifier=server.system_identifier,
            timeline=server.timeline,
            database=server.database,
            database_oid=server.database_oid,
            slot=settings.slot,
            publication=settings.publication,
            consistent_point=made.consistent_point,
        )

    def _summary(self, *, already_complete: bool = False) -> Summary:
        return summarise(
            self._ledger.manifest,
            elapsed_s=self._clock.monotonic() - self._started_s,
            already_complete=already_complete,
            requests=self._ledger.requests,
        )


# The mark that ends a snapshot: what it did not bring is not there.
#
# In a new epoch rows that were deleted while the slot was lost have no event. Every row that is there got the
# snapshot's position, so whatever a store holds below it is swept, once each partition has brought its mark. In the
# first epoch there is nothing below, and only a history needs it: an empty table would say nothing of itself there.

declare("sweep_marked")


def sweep(
    log: RowLog,
    shapes: Shapes,
    manifest: Manifest,
    slot: SlotState,
    topics: TopicsState,
    *,
    settings: Settings,
    clock: Clock,
) -> None:
    """Write the mark of every table that was read to each of its partitions, and to those of its history, where it
    says from where on the table is known. Brokers hold them when this returns.

    Safe to repeat. ``topics``: as ``cdc init`` noted them. Raises LogError.
    """
    masks = masks_of(settings)
    floor = Position(slot.epoch, slot.consistent_point, 0)
    for table in manifest.tables():
        state, form = manifest.table(table), manifest.form(table)
        if state is None or form is None or state.gone:
            continue
        schema = shapes.get(form.table, form.version)
        partitions = topics.topics[form.topic]["partitions"]
        encoder = compile_table(schema, name=settings.name, database=slot.database, masks=masks)
        mark = sweep_mark(encoder, floor, floor.text(), partitions, marker="true", now_ns=clock.now_ns())
        history = topics.histories.get(form.topic)
        marked = [form.topic] if slot.epoch > FIRST_EPOCH else []
        for topic in [*marked, *([history] if history is not None else [])]:
            for partition in range(partitions):
                log.produce(topic, partition, mark.key, mark.value, mark.headers)
    log.flush(FLUSH_S)
    crash_point("sweep_marked")


# The writers' lock, from the side of ``cdc snapshot``.
#
# Taken exclusively first: that proves that no capture runs and no worker of a killed run is left. Then kept shared,
# beside the workers, until the snapshot is complete. Capture needs it exclusively.

TIMEOUT_S = 5.0
"""How long the rest of a killed run may take to go."""
_PAUSE_S = 0.1


def take_writers_lock(session: Session, lock: tuple[int, int], clock: Clock, timeout_s: float = TIMEOUT_S) -> None:
    """Take the lock for this session and leave it shared. ActiveError names who holds it past ``timeout_s``."""
    arguments = {"class": lock[0], "number": lock[1]}
    deadline = clock.monotonic() + timeout_s
    while not SQL.one(session, "take_lock", **arguments)[0]:
        if clock.monotonic() >= deadline:
            holders = [f"{row.name}, pid {row.pid}" for row in SQL.rows(session, "lock_holders", **arguments)]
            raise ActiveError(
                f"the pipeline's topics are being written by another session ({'; '.join(holders) or 'now gone'})",
                hint="one cdc snapshot or cdc run at a time: stop the other one, or wait for it",
            )
        clock.sleep(_PAUSE_S)
    # The same session may hold both, so there is no moment without the lock.
    SQL.one(session, "share_lock", **arguments)
    SQL.one(session, "give_lock_back", **arguments)


MAX_LSN = (1 << 64) - 1


def require_topics(manifest: Manifest, settings: Settings) -> TopicsState:
    """The topics that ``cdc init`` made. ConfigError when it did not, or made them for another encoding."""
    found = manifest.topics
    if found is None:
        raise ConfigError(f"the topics of {settings.name} have not been made", hint="cdc init makes them")
    if found.encoding != settings.log.encoding:
        raise ConfigError(
            f'the topics were made for [log] encoding = "{found.encoding}", the settings say "{settings.log.encoding}"',
            hint=f'set it back to "{found.encoding}": one topic holds one encoding',
        )
    return found


def require_epoch(manifest: Manifest, *, rows: bool) -> None:
    """ConfigError when a new epoch's beginning was cut short. UsageError when it would begin without its rows."""
    require_begun(manifest.epochs, manifest.slot)
    if not rows and manifest.epochs.latest > FIRST_EPOCH and not manifest.complete:
        raise UsageError(
            f"epoch {manifest.epochs.latest} cannot begin without its rows: nothing else tells what changed in the gap",
            hint="cdc snapshot, without --none",
        )


def require_server(edges: Edges, session: Session) -> None:
    """Return for a primary with logical decoding and the publication: a slot made before it never works.

    Raises ConfigError for a standby, another wal_level, a missing publication, and for failover slots before version
    17.
    """
    facts, _, publication = edges.source.facts(session)
    if facts.in_recovery:
        raise ConfigError("the source is a read-only standby", hint="point [source] dsn at its primary")
    if not facts.decodes:
        raise ConfigError(
            f"wal_level is {facts.wal_level}, which keeps no logical changes",
            hint=facts.provider.logical,
        )
    if edges.settings.source.failover and facts.version < FAILOVER_VERSION:
        raise ConfigError(
            f"[source] failover = true needs PostgreSQL 17 or later, this is {facts.version_text}",
            hint="set it to false, or upgrade the server",
        )
    if publication is None:
        raise ConfigError(
            f"there is no publication {edges.settings.publication}, and it has to be there before the slot",
            hint="cdc init makes it",
        )


def require_slot(edges: Edges, session: Session, manifest: Manifest, *, rows: bool) -> None:
    """Return where the slot of an earlier run is there, unmoved, or where no run made one.

    Raises what the source raises for a slot that is lost or moved, and for another server. Raises
    UsageError when ``rows`` is false though a snapshot has begun.
    """
    if manifest.slot is None:
        return
    # Nobody reads from it before the snapshot is complete. Afterwards capture knows where it has to be.
    position = MAX_LSN if manifest.complete else manifest.slot.consistent_point
    edges.source.require(session, manifest.slot, position)
    if not rows and not manifest.complete:
        raise UsageError(
            "the snapshot has begun already, so its rows cannot be left out any more",
            hint="cdc snapshot goes on with it; to begin anew: cdc drop --topics, cdc init, cdc snapshot --none",
        )


def require_no_slot(edges: Edges, session: Session, manifest: Manifest, reporter: Reporter) -> None:
    """Return where no slot has the wanted name. One that a killed run left is removed first.

    Raises SlotError for a slot that this pipeline did not make.
    """
    here, found, _ = edges.source.facts(session)
    if found is None:
        return
    if not _ours(manifest.intent, found, here):
        raise SlotError(
            f"a slot {found.slot} is there already, and this pipeline did not make it",
            hint=f"drop it if nobody needs it: select pg_drop_replication_slot({quote_literal(found.slot)});"
            '   or name another one: [source] slot = "..."',
        )
    reporter.say(f"an earlier run left the slot {found.slot} before it was noted: it is removed and made again")
    remove_slot(session, found.slot)


def _ours(intent: SlotIntent | None, found: SlotFacts, here: ServerFacts) -> bool:
    """Whether a slot is the one that an earlier run made: it stands where that one began, in the same place."""
    if intent is None or not intent.consistent_point:
        return False
    made = (intent.slot, intent.system_identifier, intent.database, intent.consistent_point)
    stands = (found.slot, here.system_identifier, found.database, found.confirmed_flush_lsn)
    return made == stands and found.plugin == "pgoutput"
