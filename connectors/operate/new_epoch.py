"""A new epoch: the one way back when changes are missing from the log and cannot be had again.

The slot was lost, or another server took the first one's place. Positions begin anew above every former one, the
slot is made again, and the snapshot that follows reads every table and ends with a sweep, so that what was deleted
meanwhile goes too. Topics and stores stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping

from cdc.process.clock import Clock
from cdc.process.crash_points import crash_point, declare
from cdc.process.errors import ActiveError, ConfigError, SlotError
from cdc.process.sql_files import quote_literal
from cdc.record.documents import dumped
from cdc.record.ports import CompactedTopic
from cdc.record.progress import EpochsState
from cdc.record.server_facts import ServerFacts, SlotFacts
from cdc.record.state import ChunkState, SlotIntent, SlotState, SnapshotState, SnapshotTableState, TopicsState, what_of
from cdc.settings.model import Settings
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.doubted_topics import facts_of_made
from connectors.postgres.server.catalog_facts import read_server, read_slot
from connectors.postgres.server.connections import Connection
from connectors.postgres.server.slot import drop_slot, lock_holders, try_lock
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
