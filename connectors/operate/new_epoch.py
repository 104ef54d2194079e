"""Another server or slot than the stores were built from: a new epoch, or a server that is accepted in the first
one's place.

A new epoch is the one way back when changes are missing from the log and cannot be had again. The slot was lost, or
another server took the first one's place. Positions begin anew above every former one, the slot is made again, and the
snapshot that follows reads every table and ends with a sweep, so that what was deleted meanwhile goes too. Topics and
stores stay as they are.

``cdc init --accept-promotion`` goes on without one behind a server that has the same history: a promoted standby whose
slot no server synchronized, and a cluster that ``pg_upgrade`` made with its slots. Capture goes on with a promoted
standby by itself where the server says that it synchronized the slot.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

from cdc.process.clock import Clock
from cdc.process.crash_points import crash_point, declare
from cdc.process.errors import ActiveError, ConfigError, IdentityError, SlotError
from cdc.process.sql_files import quote_literal
from cdc.record.documents import dumped
from cdc.record.ports import CompactedTopic
from cdc.record.position import Lsn
from cdc.record.progress import PROGRESS_KEY, EpochsState, Progress
from cdc.record.server_facts import ServerFacts, SlotFacts
from cdc.record.source_lineage import SourceLineage
from cdc.record.state import ChunkState, SlotIntent, SlotState, SnapshotState, SnapshotTableState, TopicsState, what_of
from cdc.record.topic_names import progress_topic, state_topic
from cdc.settings.model import Settings
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.broker_answers import facts_of_made, require_broker
from connectors.kafka.compacted_topic import KafkaCompactedTopic
from connectors.kafka.topic_ends import last_progress
from connectors.postgres.server.catalog_facts import read_server, read_slot
from connectors.postgres.server.connections import Connection, connect, describe
from connectors.postgres.server.failover import find_promotion, read_history, read_wal, segment_begin
from connectors.postgres.server.slot import (
    START_OVER,
    drop_slot,
    lock_holders,
    require_same_server,
    require_usable,
    require_written,
    try_lock,
)
from connectors.session.known_tables import KnownState, known_of
from connectors.session.late_records import Ends, beginning
from connectors.views.view_topics import known_views

declare("epoch_slot_dropped", "epoch_noted")

_LOCK_WAIT_S = 5.0
_PAUSE_S = 0.1
_OF_TABLES = (SnapshotTableState.WHAT, ChunkState.WHAT)


def begin_epoch(conn: Connection, settings: Settings, admin: TopicAdmin, state: CompactedTopic, clock: Clock) -> int:
    """End the present epoch: drop the pipeline's slot, forget its snapshot, note the next epoch. Returns its number.

    Killed in between, it is run again. ConfigError when there is nothing to begin anew, ActiveError when a capture
    or a snapshot runs, SlotError when the slot of that name is not provably the pipeline's own.
    """
    documents = state.read()
    topics = TopicsState.find(documents)
    if topics is None:
        raise ConfigError(
            f"the pipeline {settings.name} has not begun yet, so there is no epoch to end",
            hint="cdc init without --new-epoch, then cdc snapshot",
        )
    take_lock(conn, settings, clock)
    # Again, now that nobody else writes it.
    documents = state.read()
    slot = SlotState.find(documents)
    _drop_former(conn, settings, slot, SlotIntent.find(documents))
    crash_point("epoch_slot_dropped")
    epochs = EpochsState.find(documents) or EpochsState()
    if slot is None or slot.epoch == epochs.latest:
        made = {t: topics.topics[t]["partitions"] for t in topics.tables.values()}
        # Of events and histories what is there: one that somebody deleted is made anew.
        made |= {topic: found.partitions for topic, found in admin.describe(sorted(topics.never_compacted)).items()}
        # A view's documents are published anew, too: a store that was further in its topic goes back.
        views = facts_of_made(admin, [view.topic for view in known_views(settings).known.values()])
        ends = admin.end_offsets(made | {topic: found.partitions for topic, found in views.items()})
        epochs = epochs.begin(ends, str(clock.now_ns()))
    state.write([(epochs.key(), epochs.to_json())])
    crash_point("epoch_noted")
    state.write(forgotten(documents))
    return epochs.latest


def forgotten(documents: Mapping[bytes, bytes]) -> list[tuple[bytes, None]]:
    """Records that remove what was noted of the former slot and its snapshot: the slot last, because as long as it is
    there, a command that was killed here is known not to have come to its end."""
    of_tables = sorted(key for key in documents if what_of(key) in _OF_TABLES)
    heads = (_key(kind) for kind in (SnapshotState.WHAT, SlotIntent.WHAT, SlotState.WHAT))
    return [(key, None) for key in (*of_tables, *heads)]


def _key(what: str) -> bytes:
    return dumped({"what": what})


def take_lock(conn: Connection, settings: Settings, clock: Clock) -> None:
    """Hold the lock of the pipeline's writer until the session ends. ActiveError while a capture or snapshot has it."""
    name = settings.name
    deadline_s = clock.monotonic() + _LOCK_WAIT_S
    while not try_lock(conn, name):
        holders = lock_holders(conn, name)
        if holders and clock.monotonic() > deadline_s:
            who = ", ".join(f"session {holder.pid} ({holder.application})" for holder in holders)
            raise ActiveError(f"{name} is being written: {who}", hint="stop cdc run and cdc snapshot first")
        clock.sleep(_PAUSE_S)


def _same_place(made: SlotState | SlotIntent, here: ServerFacts) -> bool:
    """Whether a slot was noted on this server, in this database."""
    return (made.system_identifier, made.database) == (here.system_identifier, here.database)


def left_by(intent: SlotIntent | None, found: SlotFacts, here: ServerFacts) -> bool:
    """Whether a snapshot that was killed before it noted its slot left this one."""
    if intent is None or not _same_place(intent, here) or found.database != here.database:
        return False
    return (intent.slot, intent.consistent_point) == (found.slot, found.confirmed_flush_lsn)


def _drop_former(conn: Connection, settings: Settings, slot: SlotState | None, intent: SlotIntent | None) -> None:
    """Drop the slot that the state names, and no other: a slot of the same name on another server is not it."""
    here = read_server(conn)
    own = slot.slot if slot is not None and _same_place(slot, here) else None
    for name in {settings.slot, own or settings.slot}:
        found = read_slot(conn, name)
        if found is None:
            continue
        if (
            found.plugin != "pgoutput"
            or found.database != here.database
            or not (name == own or left_by(intent, found, here))
        ):
            raise SlotError(
                f"a slot {name} is there already, and this pipeline did not make it on this server",
                hint=f"drop it if nobody needs it: select pg_drop_replication_slot({quote_literal(name)});"
                '   or name another one: [source] slot = "..."',
            )
        drop_slot(conn, name)


_XIDS = 2**32


@dataclass(frozen=True, slots=True, kw_only=True)
class Successor:
    """The server that capture goes on with. ``lsn``: from where on."""

    slot: SlotState
    lsn: int


def accept(settings: Settings, clock: Clock) -> Successor | None:
    """:func:`accept_server` on a session of its own, for the pipeline that the settings describe."""
    with closing(connect(settings.source, application_name="cdc init", autocommit=True)) as session:
        require_broker(settings.log)
        state = KafkaCompactedTopic(settings.log, state_topic(settings.name))
        return accept_server(session, settings, TopicAdmin(settings.log), state, clock)


def accept_server(
    conn: Connection, settings: Settings, admin: TopicAdmin, state: CompactedTopic, clock: Clock
) -> Successor | None:
    """Prove that the server has the pipeline's history, and note it as the pipeline's. None where it was that before.

    Killed in between, it is run again. IdentityError or SlotError where the proof fails, ConfigError before the first
    snapshot is complete, ActiveError while a capture runs.
    """
    take_lock(conn, settings, clock)
    known = known_of(state.read(), name=settings.name)
    if isinstance(known, str):
        raise ConfigError(f"there is no history yet to go on with: {known}", hint=START_OVER)
    server, slot = read_server(conn), read_slot(conn, known.slot.slot)
    here = replace(known.slot, system_identifier=server.system_identifier, timeline=server.timeline)
    if here == known.slot:
        return None
    # Another database, and a standby, are no successors.
    require_same_server(server, here, describe(settings.source))
    topics = {topic: known.topics.topics[topic]["partitions"] for topic in known.topics.written}
    own = progress_topic(settings.name)
    ends = admin.end_offsets(topics)
    found = last_progress(settings.log, own, admin.end_offsets({own: 1})[own][0])
    reached = found if found is not None and found.epoch == known.slot.epoch else None
    reached = reached or beginning(known.epochs, known.slot, ends, known.slot.consistent_point)
    require_written(conn, reached.lsn)
    ask = partial(connect, settings.source, application_name="cdc init", replication=True)
    if server.system_identifier != known.slot.system_identifier:
        accepted = replace(here, history=[])
        reached = replace(_behind_upgrade(ask, server, known, slot, reached), offsets=ends, ahead={})
        reached = replace(reached, lineage=SourceLineage.of_slot(accepted))
        KafkaCompactedTopic(settings.log, own).write([(PROGRESS_KEY, reached.to_json())])
    else:
        tails = Ends(settings, known.topics, ends, reached, suspect_chunks=False, written_lsn=None)
        newest = max((one.commit_lsn + 1 for one in tails.newest.values()), default=0)
        accepted = replace(here, history=_behind_promotion(ask, server, known, slot, max(reached.lsn, newest)))
        require_usable(slot, known.slot, reached.lsn)
    state.write([(accepted.key(), accepted.to_json())])
    return Successor(slot=accepted, lsn=reached.lsn)


def _behind_promotion(
    ask: Callable[[], Connection], server: ServerFacts, known: KnownState, slot: SlotFacts | None, reached: int
) -> list[list[int]] | None:
    """The history of a standby's timeline. IdentityError where the log reaches beyond what it had received."""
    with closing(ask()) as walsender:
        history = read_history(walsender, server.timeline)
    kept = replace(slot, failover=True, synced=True) if slot is not None else None
    promotion = find_promotion(server, history, known.slot, kept)
    if promotion is not None:
        promotion.require_within("the first snapshot", known.cut_lsn)
        promotion.require_within("the log", reached)
    return history


def _behind_upgrade(
    ask: Callable[[], Connection], server: ServerFacts, known: KnownState, slot: SlotFacts | None, reached: Progress
) -> Progress:
    """The progress with which a cluster of ``pg_upgrade`` begins: at its slot. IdentityError where it is none.

    The slot has nothing to send of the former cluster, or ``pg_upgrade`` had not taken it over.
    """
    at = (slot.confirmed_flush_lsn if slot is not None else None) or 0
    require_usable(slot, known.slot, at)
    with closing(ask()) as walsender:
        begin = segment_begin(walsender, at)
    with closing(ask()) as walsender:
        wal = read_wal(walsender, server.timeline, begin, at - begin)
    above = reached.lsn <= begin or reached.lsn == at
    # In an older copy of the cluster that was upgraded, the slot is older than the log's newest transaction.
    xmin = (slot.catalog_xmin if slot is not None else None) or 0
    above = above and (not reached.xid or 0 < (xmin - reached.xid) % _XIDS < _XIDS // 2)
    if not above or not is_untouched(wal, begin, server.system_identifier):
        raise IdentityError(
            f"the server is another one ({server.system_identifier}, not {known.slot.system_identifier}), and its slot "
            f"{known.slot.slot} at {Lsn(at)} is not one that pg_upgrade took over from the pipeline's server: changes "
            "may be missing before it",
            hint=f"point [source] dsn at the first server; if this one took its place: {START_OVER}",
        )
    return replace(reached, lsn=at)


# Where a cluster's WAL begins, and what came behind that: how a slot of ``pg_upgrade`` is known.
#
# ``pg_upgrade`` takes a slot over when nothing is left that it has to send. It begins the new cluster's WAL with
# ``pg_resetwal`` in a segment behind the former WAL, and makes the slot there before anybody can write, and before the
# server is stopped for the first time.

_PAGE_BYTES, _ALIGNED = 8192, 8
_LONG_HEADER = struct.Struct("=HHIQI4xQII")
"""``XLogLongPageHeaderData``: magic, flags, timeline, address, remaining bytes, system identifier, two sizes."""
_RECORD = struct.Struct("=IIQBB2xI")
"""``XLogRecord``: length, transaction, address of the record before, kind, its manager, checksum."""
_OF_CHECKPOINT, _SHUTDOWN = (0, 0x00)
_KIND_BITS = 0xF0


def is_untouched(wal: bytes, begin: int, system: str) -> bool:
    """Whether a cluster's WAL begins with ``wal``, at ``begin``, and no transaction wrote in it and no stop is there.

    A segment begins at ``begin``, and ``wal`` is at most its first page. ``system``: the cluster's identifier. False
    too where the bytes cannot be understood.
    """
    if not _LONG_HEADER.size < len(wal) <= _PAGE_BYTES:
        return False
    _, _, _, address, remaining, identifier, _, _ = _LONG_HEADER.unpack_from(wal)
    if (address, remaining, str(identifier)) != (begin, 0, system):
        return False
    at, previous = _LONG_HEADER.size, 0
    while at + _RECORD.size <= len(wal):
        length, transaction, before, kind, manager, _ = _RECORD.unpack_from(wal, at)
        # A record that no other one comes before: pg_resetwal writes it, and initdb.
        stopped = (manager, kind & _KIND_BITS) == (_OF_CHECKPOINT, _SHUTDOWN)
        first = stopped and previous == before == 0
        # pg_upgrade stops the server after it has made the slots: one that was made behind that is somebody else's.
        next_one = not stopped and previous and before == begin + previous
        if length < _RECORD.size or transaction or not (first or next_one):
            return False
        previous, at = at, (at + length + _ALIGNED - 1) // _ALIGNED * _ALIGNED
    return previous > 0 and at >= len(wal)
