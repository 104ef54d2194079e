"""The first snapshot, put together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc.wiring import require_broker

if TYPE_CHECKING:
    from cdc.settings import Settings
    from snapshot.edges import Reporter
    from snapshot.first.first_snapshot import FirstSnapshot
    from snapshot.first.summary import Summary as SnapshotSummary

__all__ = ["SnapshotSummary", "build_snapshot"]


def build_snapshot(settings: Settings, reporter: Reporter, *, workers: int | None = None) -> FirstSnapshot:
    """One run of the first snapshot; ``workers`` over the settings'. LogError, at once, when no broker takes a
    connection."""
    from connectors.snapshots import SnapshotEdges
    from snapshot.first.first_snapshot import FirstSnapshot

    require_broker(settings)
    return FirstSnapshot(SnapshotEdges(settings), reporter, workers=workers)
