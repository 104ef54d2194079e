"""The replication connection of a session, checked to lead to the pipeline's own server or a promoted standby."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial

from cdc.process.clock import Clock
from cdc.process.errors import IdentityError
from cdc.record.ports import CompactedTopic
from cdc.record.position import Lsn, Position
from cdc.record.server_facts import ServerFacts, SlotFacts
from cdc.record.state import SlotState
from cdc.settings.model import Settings, SourceSettings
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
from connectors.postgres.server.slot import require_same_server
from connectors.postgres.server.walsender import ReplicationStream
from connectors.session.known_tables import KnownState


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
