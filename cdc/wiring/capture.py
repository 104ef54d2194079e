"""The capture daemon, put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cdc.capture import Stop, Stopped
from cdc.clock import Clock
from cdc.metrics import CaptureFigures
from cdc.visibility import Gate, Visibility, VisibilityGate
from cdc.wiring import open_state

if TYPE_CHECKING:
    from cdc.settings import Settings
    from cdc.windows import Windows
    from connectors.kafka.schemas import SchemaRegistry
    from connectors.session.captured import CapturedTopics
    from connectors.session.opening import Opening
    from snapshot.later.request_scheduler import RequestScheduler

__all__ = ["Stopped", "open_capture"]


def open_capture(
    settings: Settings,
    *,
    figures: CaptureFigures,
    stop: Stop,
    clock: Clock,
    gate: Callable[[Visibility], Gate] = VisibilityGate,
) -> Opening:
    """What opens capture's sessions, later snapshots included; see :class:`connectors.session.opening.Opening`."""
    from connectors.session.opening import Opening

    def later(windows: Windows, topics: CapturedTopics, shapes: SchemaRegistry, epoch: int) -> RequestScheduler:
        from connectors.snapshots import CaptureEdges, LaterSource
        from snapshot.later.request_scheduler import RequestScheduler

        state = open_state(settings, waiting=windows.require_open)
        edges = CaptureEdges(settings, LaterSource(settings), state, shapes, topics)
        return RequestScheduler(edges, windows, epoch=epoch, clock=clock)

    return Opening(settings, figures=figures, stop=stop, clock=clock, later=later, gate=gate)
