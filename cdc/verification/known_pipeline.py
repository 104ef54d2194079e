"""The notes of a pipeline that are needed before its stores can be compared: pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from cdc.epochs import EpochsState
from cdc.errors import ConfigError
from cdc.state import SlotState, SnapshotState, TopicsState


class KnownPipeline(NamedTuple):
    """``kind``: of the source, ``postgres`` or ``debezium``."""

    topics: TopicsState
    epoch: int
    kind: str


def known_of(documents: Mapping[bytes, bytes], kind: str) -> KnownPipeline:
    """The memory of a pipeline, by its state topic. ConfigError while the first snapshot is not complete."""
    topics, slot, snapshot = TopicsState.find(documents), SlotState.find(documents), SnapshotState.find(documents)
    if topics is not None and kind == "debezium":
        return KnownPipeline(topics, (EpochsState.find(documents) or EpochsState()).latest, kind)
    if topics is None or slot is None or snapshot is None:
        native = "cdc init, then cdc snapshot, then cdc run and cdc sink"
        hint = "cdc connect deploy, then cdc sink" if kind == "debezium" else native
        raise ConfigError("there is nothing to compare yet", hint=hint)
    if snapshot.state != "complete":
        raise ConfigError("the first snapshot is not complete", hint="cdc snapshot goes on where it stopped")
    return KnownPipeline(topics, slot.epoch, kind)
