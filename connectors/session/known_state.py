"""The state topic's documents that capture needs before it may stream: pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cdc.epochs import EpochsState, require_begun
from cdc.errors import ConfigError, DamagedError
from cdc.source_lineage import SourceLineage
from cdc.state import ChunkState, SlotState, SnapshotState, TopicsState, find_all
from cdc.topic import progress_topic
from cdc.turn import require_turn
from connectors.postgres.failover import Promotion


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownState:
    """``cut_lsn``: the last moment at which the first snapshot read. ``promotion``: the server is a standby of the one
    that the pipeline was on, and ``slot`` has its timeline. ``noted``: the state topic has ``slot`` as it is here."""

    topics: TopicsState
    slot: SlotState
    epochs: EpochsState
    cut_lsn: int
    promotion: Promotion | None = None
    noted: bool = True

    @property
    def lineage(self) -> SourceLineage:
        """The server whose WAL the session's progress records speak of."""
        return SourceLineage.of_slot(self.slot)


def snapshot_stand(documents: Mapping[bytes, bytes]) -> tuple[int, int] | None:
    """Of the first snapshot's chunks, how many are done and how many are planned. None while none runs."""
    head = SnapshotState.find(documents)
    if head is None or head.state == "complete":
        return None
    chunks = find_all(documents, ChunkState)
    newest: dict[str, int] = {}
    for chunk in chunks:
        newest[chunk.table] = max(chunk.generation, newest.get(chunk.table, 0))
    counted = [chunk for chunk in chunks if chunk.generation == newest[chunk.table]]
    return sum(chunk.state == "done" for chunk in counted), len(counted)


def known_of(documents: Mapping[bytes, bytes], *, name: str) -> KnownState | str:
    """The known state of the pipeline ``name``, once its first snapshot is complete. Until then the cause it waits for.

    Compaction keeps what came last, so no change may come before. ConfigError when ``cdc init`` is due, or it is
    another's turn to write. DamagedError where the noted topics are not those of the tables.
    """
    require_turn(documents, "native")
    topics, slot, snapshot = TopicsState.find(documents), SlotState.find(documents), SnapshotState.find(documents)
    epochs = EpochsState.find(documents) or EpochsState()
    require_begun(epochs, slot)
    if topics is None:
        raise ConfigError("the pipeline has no topics yet", hint="cdc init makes them")
    written = {*topics.tables.values(), progress_topic(name)}
    if not topics.topics.keys() >= written:
        [missing, *_] = sorted(written - topics.topics.keys())
        raise DamagedError(f"the topics document in the state topic says nothing of {missing}")
    if slot is not None and snapshot is not None and snapshot.state == "complete":
        return KnownState(topics=topics, slot=slot, epochs=epochs, cut_lsn=snapshot.last_cut_lsn)
    return "cdc snapshot has not been run" if snapshot is None else "the snapshot is not complete"
