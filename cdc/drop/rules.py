"""Whether a slot may be dropped unasked, and which topics go: pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cdc.checks.facts import ServerFacts, SlotFacts
from cdc.checks.ownership import Owner, owner_of
from cdc.errors import Exit, SlotError
from cdc.found import Unknown
from cdc.state import SlotIntent, SlotState, TopicsState


def owner_by(
    state: Mapping[bytes, bytes] | Unknown, slot: SlotFacts, server: ServerFacts, *, by_debezium: bool
) -> Owner:
    """Whose a slot is, by the pipeline's state. ``by_debezium``: a connector made it."""
    if isinstance(state, Unknown):
        return Owner.UNKNOWN
    if by_debezium:
        # The connector makes its slot and notes it nowhere.
        return Owner.OURS
    return owner_of(slot, server, SlotState.find(state), SlotIntent.find(state))


def require_own(slot: str, owner: Owner) -> None:
    """SlotError unless the pipeline's state names the slot as its own."""
    if owner is Owner.OURS:
        return
    raise SlotError(
        f"the slot {slot} was not dropped: {owner.value}",
        hint="cdc drop without --yes asks for the slot's name, and drops it all the same",
        exit=Exit.UNAVAILABLE if owner is Owner.UNKNOWN else Exit.SLOT,
    )


def topics_of(state: Mapping[bytes, bytes], own: str) -> tuple[list[str], list[str]]:
    """The topics to delete, in two lots. ``own``: the state topic, which is the second lot.

    It names the others, so a drop that was cut short can be run again.
    """
    known = TopicsState.find(state)
    return sorted((set(known.topics) if known is not None else set()) - {own}), [own]


def stateless(name: str, own: str, topics: Iterable[str]) -> str:
    """The sentence where the state topic does not exist, so that nothing names the others."""
    left = [topic for topic in topics if topic.startswith(f"{name}.") and topic != own]
    if left:
        return f"topics: {own} is not there, so these are left to be deleted by hand: {', '.join(left)}"
    return f"topics: the pipeline {name} has none"
