"""A session's start on a promoted standby: what must hold, and the note of where the pipeline runs now."""

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
from connectors.postgres.catalog_facts import read_server, read_slot
from connectors.postgres.connections import Connection, connect, describe
from connectors.postgres.failover import find_promotion, may_be_promoted, may_be_twin
from connectors.postgres.lineage import read_history
from connectors.postgres.slot import require_same_server
from connectors.session.known_state import KnownState

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
