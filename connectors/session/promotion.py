"""A session's start on a promoted standby: what must hold, and the note of where the pipeline runs now (H55, H192)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial

from cdc.checks.facts import ServerFacts, SlotFacts
from cdc.lsn import Lsn
from cdc.ports import CompactedTopic
from cdc.position import Position
from cdc.settings import SourceSettings
from cdc.wal_witness import WalWitness
from connectors.postgres.catalog_facts import read_server, read_slot
from connectors.postgres.connections import Connection, connect, describe
from connectors.postgres.failover import find_promotion, may_be_promoted, may_be_twin, require_same_wal
from connectors.postgres.lineage import read_lineage, read_wal
from connectors.postgres.slot import require_same_server
from connectors.postgres.witnessed import ANSWER_S
from connectors.session.known_state import KnownState

log = logging.getLogger(__name__)


def identify(side: Connection, source: SourceSettings, known: KnownState, turn: Callable[[], None]) -> KnownState:
    """``known`` as this server has it. ``turn``: called while an answer is waited for. IdentityError when it is neither
    the pipeline's nor a promoted standby of it, or has other WAL than capture has read. SourceError when it does not
    answer."""
    server, slot = read_server(side), read_slot(side, known.slot.slot)
    if may_be_promoted(server, known.slot, slot) or may_be_twin(server, known.slot):
        watched = partial(connect, source, turn=turn, limit_s=ANSWER_S)
        known = _identified(server, slot, source, known, watched)
    require_same_server(server, known.slot, describe(source))
    return known


def _identified(
    server: ServerFacts,
    slot: SlotFacts | None,
    source: SourceSettings,
    known: KnownState,
    watched: Callable[..., Connection],
) -> KnownState:
    if server.timeline == 1 and known.witness is None:
        return known
    with closing(watched(application_name="cdc capture", replication=True)) as walsender:
        lineage = read_lineage(walsender, server.timeline, known.witness)
    require_same_wal(lineage, known.witness, describe(source))
    promotion = find_promotion(server, lineage, known.slot, slot)
    if lineage.history is None:
        return known
    own = replace(known.slot, timeline=server.timeline, history=lineage.history)
    found = replace(known, slot=own, promotion=promotion, noted=own == known.slot)
    if promotion is None:
        return found
    promotion.require_within("the first snapshot", known.cut_lsn)
    with closing(watched(application_name="cdc capture", replication=True)) as walsender:
        wal = read_wal(walsender, server.timeline, lineage.begun) or ""
    return replace(found, witness=WalWitness(epoch=own.epoch, timeline=own.timeline, lsn=lineage.begun, wal=wal))


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
        if known.witness is not None and known.witness.wal:
            state.write([(known.witness.key(), known.witness.to_json())])
        log.warning("promoted_server", extra={"timeline": promotion.timeline, "switch": str(Lsn(promotion.switch_lsn))})
