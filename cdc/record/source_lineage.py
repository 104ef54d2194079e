"""The server whose WAL an LSN belongs to: system identifier, timeline, and the timelines before that.

LSNs of two servers, or of two timelines of one server, are numbers that cannot be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from cdc.record.state import SlotState


class LsnRelation(Enum):
    """How an LSN relates to the WAL that a lineage describes."""

    SAME = "same"
    """The LSN belongs to this WAL. LSNs can be compared."""
    LOST = "lost"
    """The LSN belongs to WAL that a promotion left behind. It never becomes part of this lineage."""
    LATER = "later"
    """The LSN belongs to a timeline above the newest one here."""
    UNKNOWN = "unknown"
    """The LSN belongs to a timeline below the oldest one that was noted."""
    STRANGE = "strange"
    """The LSN belongs to another system."""


@dataclass(frozen=True, slots=True)
class SourceLineage:
    """The WAL that a pipeline has read.

    ``system``: the system identifier in decimal digits, as ``pg_control_system()`` prints it. ``timeline``: the newest
    one. ``history``: the timelines that were left, oldest first, each with the LSN at which. None where nobody noted
    them.
    """

    system: str
    timeline: int
    history: tuple[tuple[int, int], ...] | None = None

    def __post_init__(self) -> None:
        """ValueError for members that no server has."""
        numbers = [self.timeline, *(number for number, _ in self.history or ())]
        if not self.system.isdecimal() or min(numbers) < 1 or any(end < 0 for _, end in self.history or ()):
            raise ValueError("a lineage has a system or a timeline that cannot be")

    @classmethod
    def of_slot(cls, slot: SlotState) -> SourceLineage:
        """The lineage of the server that a pipeline's slot is on."""
        history = None if slot.history is None else tuple((number, end) for number, end in slot.history)
        return cls(slot.system_identifier, slot.timeline, history)

    def kinship(self, system: str, timeline: int, lsn: int) -> LsnRelation:
        """How an LSN of this system and timeline relates to the lineage.

        >>> SourceLineage("7", 2, ((1, 100),)).kinship("7", 1, 100).value
        'same'
        >>> SourceLineage("7", 2, ((1, 100),)).kinship("7", 1, 101).value
        'lost'
        >>> SourceLineage("7", 2).kinship("7", 3, 1).value, SourceLineage("7", 2).kinship("8", 2, 1).value
        ('later', 'strange')
        """
        if system != self.system:
            return LsnRelation.STRANGE
        if timeline == self.timeline:
            return LsnRelation.SAME
        if timeline > self.timeline:
            return LsnRelation.LATER
        left = dict(self.history or ())
        if timeline in left:
            return LsnRelation.SAME if lsn <= left[timeline] else LsnRelation.LOST
        # A server that lost its oldest history files names the timelines behind them alone.
        oldest = min(left, default=self.timeline)
        return LsnRelation.UNKNOWN if timeline < oldest else LsnRelation.LOST

    def document(self) -> dict[str, Any]:
        """The members as stored documents have them. ``history`` is left out where nobody noted it."""
        found: dict[str, Any] = {"system": self.system, "timeline": self.timeline}
        return found if self.history is None else {**found, "history": _pairs(self.history)}

    def __str__(self) -> str:
        """
        >>> str(SourceLineage("7301", 2))
        '7301/2'
        """
        return f"{self.system}/{self.timeline}"


def _pairs(history: Sequence[Sequence[int]]) -> list[list[int]]:
    return [list(pair) for pair in history]
