"""Whose a replication slot is: pure. Ask here before a slot is dropped."""

from __future__ import annotations

from enum import Enum

from cdc.checks.facts import ServerFacts, SlotFacts
from cdc.found import Found, Unknown
from cdc.state import SlotIntent, SlotState


class Owner(Enum):
    """The maker of a slot, as far as the pipeline's state says."""

    OURS = "this pipeline made it"
    OTHER = "this pipeline did not make it: its state names another slot, server or database"
    NOBODY = "this pipeline's state names no slot"
    UNKNOWN = "whether this pipeline made it is not known, because its state was not read"


def owner_of(slot: SlotFacts, server: ServerFacts, made: Found[SlotState], intent: Found[SlotIntent] = None) -> Owner:
    """Judge a slot by what ``cdc snapshot`` has noted: of the one that it made, or was about to make."""
    if isinstance(made, Unknown) or isinstance(intent, Unknown):
        return Owner.UNKNOWN
    noted = made if made is not None else intent
    if noted is None:
        return Owner.NOBODY
    here = (slot.slot, server.system_identifier, slot.database)
    return Owner.OURS if (noted.slot, noted.system_identifier, noted.database) == here else Owner.OTHER
