"""The capture daemon, put together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc.capture import Stop, Stopped
from cdc.clock import Clock
from cdc.metrics import CaptureFigures
from cdc.topic import state_topic
from cdc.visibility import Gate, Visibility, VisibilityGate
from cdc.wiring import open_state
from cdc.wiring.snapshot import SnapshotSource

if TYPE_CHECKING:
    from cdc.ports import CompactedTopic
    from cdc.settings import Settings
    from cdc.windows import Windows
    from connectors.kafka.feed import CompactedFeed
    from connectors.kafka.schemas import SchemaRegistry
    from connectors.session.captured import CapturedTopics
    from connectors.session.opening import Opening
    from snapshot.later import LaterSnapshots
    from snapshot.ports import Session

__all__ = ["Stopped", "open_capture"]


def open_capture(
    settings: Settings,
    *,
    figures: CaptureFigures,
    stop: Stop,
    clock: Clock,
    handing_over: bool = False,
    gate: Callable[[Visibility], Gate] = VisibilityGate,
) -> Opening:
    """What opens capture's sessions, later snapshots included; see :class:`connectors.session.opening.Opening`."""
    from connectors.session.opening import Opening

    def later(windows: Windows, topics: CapturedTopics, shapes: SchemaRegistry, epoch: int) -> LaterSnapshots:
        from snapshot.later import LaterSnapshots

        state = open_state(settings, waiting=windows.require_open)
        edges = CaptureEdges(settings, LaterSource(settings), state, shapes, topics)
        return LaterSnapshots(edges, windows, epoch=epoch, clock=clock)

    return Opening(
        settings,
        figures=figures,
        stop=stop,
        clock=clock,
        handing_over=handing_over,
        # A handover ends within seconds; what is asked for is for the capture behind it.
        later=None if handing_over else later,
        gate=gate,
    )


@dataclass(frozen=True, slots=True)
class CaptureEdges:
    """:class:`snapshot.ports.LaterEdges` inside a capture session."""

    settings: Settings
    source: LaterSource
    state: CompactedTopic
    shapes: SchemaRegistry
    topics: CapturedTopics

    def feed(self) -> CompactedFeed:
        from connectors.kafka.feed import CompactedFeed

        return CompactedFeed(self.settings.log, state_topic(self.settings.name))


class LaterSource(SnapshotSource):
    """:class:`snapshot.ports.LaterSource` on Postgres."""

    def barrier(self, session: Session) -> Visibility:
        from connectors.postgres.barrier import barrier

        return barrier(session)
