"""A session's start on a promoted standby: what must hold, and the note that the pipeline runs there now (H55)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace

from cdc.lsn import Lsn
from cdc.ports import CompactedTopic
from cdc.position import Position
from cdc.settings import SourceSettings
from connectors.postgres.catalog_facts import read_server, read_slot
from connectors.postgres.connections import Connection, connect, describe
from connectors.postgres.failover import may_be_promoted, read_promotion
from connectors.postgres.slot import require_same_server
from connectors.session.known_state import KnownState

log = logging.getLogger(__name__)


def identify(side: Connection, source: SourceSettings, known: KnownState) -> KnownState:
    """``known`` as this server has it. IdentityError when it is neither the pipeline's nor a promoted standby of it."""
    server = read_server(side)
    if may_be_promoted(server, known.slot, read_slot(side, known.slot.slot)):
        with closing(connect(source, application_name="cdc capture", replication=True)) as walsender:
            promotion = read_promotion(walsender, server, known.slot)
        promotion.require_within("the first snapshot", known.cut_lsn)
        known = replace(known, slot=replace(known.slot, timeline=promotion.timeline), promotion=promotion)
    require_same_server(server, known.slot, describe(source))
    return known


def require_within(known: KnownState, position: int) -> None:
    """IdentityError when the log says that it reaches beyond what a promoted standby had received."""
    if known.promotion is not None:
        known.promotion.require_within("the log", position)


def take_over(known: KnownState, newest: Mapping[tuple[str, int], Position], state: CompactedTopic) -> None:
    """The same for what stands at the topics' ends. Then note the timeline: from here on this server is the one."""
    promotion = known.promotion
    if promotion is None:
        return
    for (topic, _), position in newest.items():
        # A commit's LSN is where its record begins: one that begins at the switch is beyond it.
        promotion.require_within(topic, position.commit_lsn + 1)
    state.write([(known.slot.key(), known.slot.to_json())])
    log.warning("promoted_server", extra={"timeline": promotion.timeline, "switch": str(Lsn(promotion.switch_lsn))})
