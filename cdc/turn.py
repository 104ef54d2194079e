"""Whose turn it is to write a pipeline's topics: pure.

Two writers in one topic would undo each other, so the state topic names the one that writes. It changes only by
``cdc connect handover``, which notes each step before the next one: killed in between, it is run again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from cdc.errors import ConfigError
from cdc.state import Document

Writer = Literal["native", "debezium"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterState(Document):
    """The writer of the topics, Headrace or Debezium.

    ``writer``: whose turn it is, or will be. ``step``: ``begun``, ``stopped`` (the other has stopped, and every
    change below ``lsn`` is in the topics), ``done``. Absent until the first handover."""

    WHAT: ClassVar[str] = "writer"
    writer: str
    step: str
    lsn: int = 0

    @property
    def settled(self) -> bool:
        """Whether the handover is complete, so that ``writer`` writes."""
        return self.step == "done"


def require_turn(documents: Mapping[bytes, bytes], writer: Writer) -> None:
    """ConfigError when the state topic says that it is not this writer's turn."""
    state = WriterState.find(documents)
    if state is None or (state.settled and state.writer == writer):
        return
    if not state.settled:
        raise ConfigError(
            f"a handover to {_named(state.writer)} was begun and not finished",
            hint=f"cdc connect handover --to {state.writer} goes on where it was",
        )
    raise ConfigError(
        f"{_named(state.writer)} writes this pipeline's topics since {state.lsn:X}, and two would undo each other",
        hint=f'cdc connect handover --to {writer}; [source] kind = "{_kind(state.writer)}" goes with what is now',
    )


def _named(writer: str) -> str:
    return "the native capture" if writer == "native" else "Debezium"


def _kind(writer: str) -> str:
    return "postgres" if writer == "native" else "debezium"
