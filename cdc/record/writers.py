"""Whose turn it is to write a pipeline's topics: pure.

Two writers in one topic would undo each other, so the state topic says that the native capture writes what Debezium has
begun. ``cdc connect handover`` notes each step before the next one: killed in between, it is run again. A resnapshot
makes new topics, and takes the note away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from cdc.process.errors import ConfigError
from cdc.record.position import Lsn
from cdc.record.progress import Offsets
from cdc.record.state import Document

Writer = Literal["native", "debezium"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterState(Document):
    """That the native capture writes the topics which Debezium has filled, or is about to.

    ``step``: ``begun``, ``stopped`` (Debezium has stopped, and every change below ``lsn`` is in the topics), ``done``.
    ``ends``: topic -> partition (as text) -> where its records end. Absent until a handover."""

    WHAT: ClassVar[str] = "writer"
    step: str
    lsn: int = 0
    ends: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def settled(self) -> bool:
        """Whether the handover is complete."""
        return self.step == "done"

    @property
    def offsets(self) -> Offsets:
        """Its ``ends``, by numbers."""
        return {topic: {int(p): end for p, end in parts.items()} for topic, parts in self.ends.items()}


def require_settled(documents: Mapping[bytes, bytes]) -> None:
    """ConfigError while a handover is under way."""
    state = WriterState.find(documents)
    if state is not None and not state.settled:
        raise ConfigError(
            "a handover to the native capture was begun and not finished",
            hint="cdc connect handover goes on where it was",
        )


def require_turn(documents: Mapping[bytes, bytes], writer: Writer) -> None:
    """ConfigError when the state topic says that it is not this writer's turn."""
    require_settled(documents)
    state = WriterState.find(documents)
    if state is None or writer == "native":
        return
    raise ConfigError(
        f"the native capture writes this pipeline's topics since {Lsn(state.lsn)}, and two would undo each other",
        hint='[source] kind = "postgres" goes with what is now; back to Debezium: stop cdc run, then cdc connect '
        "resnapshot, which makes new topics",
    )
