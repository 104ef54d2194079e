"""``cdc snapshot``, put together: the first one, and requests for later ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from cdc.capture.table_masks import as_masked
from cdc.operate.rereads import RereadPorts, Rereads
from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.wiring import open_schemas, open_source, open_state, require_broker

if TYPE_CHECKING:
    from cdc.operate.rereads import RereadSource
    from cdc.settings.model import Settings
    from snapshot.first.first_snapshot import FirstSnapshot
    from snapshot.first.summary import Summary as SnapshotSummary
    from snapshot.source.edges import Reporter

__all__ = ["SnapshotSummary", "build_snapshot", "open_rereads"]


def build_snapshot(settings: Settings, reporter: Reporter, *, workers: int | None = None) -> FirstSnapshot:
    """One run of the first snapshot. ``workers`` over the settings'. LogError, at once, when no broker takes a
    connection."""

    from connectors.operate.snapshot import SnapshotEdges
    from snapshot.first.first_snapshot import FirstSnapshot

    require_broker(settings)
    return FirstSnapshot(SnapshotEdges(settings), reporter, workers=workers)


def open_rereads(settings: Settings, clock: Clock = SYSTEM_CLOCK) -> Rereads:
    """Requests of the pipeline that the settings describe. LogError, at once, when no broker takes a connection."""
    require_broker(settings)

    @contextmanager
    def source() -> Iterator[RereadSource]:
        from snapshot.later.request_source import RequestSource

        with closing(open_source(settings, application_name="cdc snapshot")) as session:
            yield RequestSource(session)

    shape = as_masked(settings, lambda table: open_schemas(settings).named(str(table)))
    ports = RereadPorts(state=open_state(settings), source=source, shape=shape)
    return Rereads(ports, clock)
