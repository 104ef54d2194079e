"""Another server that took the place of the pipeline's and has the same history: ``cdc init --accept-promotion``.

A promoted standby whose slot no server synchronized, and a cluster that ``pg_upgrade`` made with its slots. Capture
goes on with a promoted standby by itself where the server says that it synchronized the slot.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

from cdc.checks.facts import ServerFacts, SlotFacts
from cdc.clock import Clock
from cdc.errors import ConfigError, IdentityError
from cdc.lsn import Lsn
from cdc.ports import CompactedTopic
from cdc.progress import PROGRESS_KEY, Progress
from cdc.settings import Settings
from cdc.source_lineage import SourceLineage
from cdc.state import SlotState
from cdc.topic import progress_topic, state_topic
from connectors.epoch import take_lock
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted import KafkaCompactedTopic
from connectors.kafka.reach import require_broker
from connectors.kafka.tail import last_progress
from connectors.postgres.catalog_facts import read_server, read_slot
from connectors.postgres.connections import Connection, connect, describe
from connectors.postgres.failover import find_promotion
from connectors.postgres.lineage import read_history, read_wal, segment_begin
from connectors.postgres.slot import START_OVER, require_same_server, require_usable, require_written
from connectors.postgres.wal_beginning import is_untouched
from connectors.session.known_state import KnownState, known_of
from connectors.session.mending import Ends, beginning

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
    topics = {topic: known.topics.topics[topic]["partitions"] for topic in known.topics.tables.values()}
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
