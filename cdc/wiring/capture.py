"""The capture daemon, put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cdc.capture.capture_loop import CaptureStop, Stopped
from cdc.capture.visibility import Gate, Visibility, VisibilityGate
from cdc.figures.capture_metrics import CaptureFigures
from cdc.process.clock import Clock

if TYPE_CHECKING:
    from cdc.settings.model import Settings
    from connectors.session.opening import Opening

__all__ = ["Stopped", "open_capture"]


def open_capture(
    settings: Settings,
    *,
    figures: CaptureFigures,
    stop: CaptureStop,
    clock: Clock,
    gate: Callable[[Visibility], Gate] = VisibilityGate,
) -> Opening:
    """The opener of capture's sessions, later snapshots included. See :class:`connectors.session.opening.Opening`."""
    from connectors.operate.session_rereads import later_of
    from connectors.session.opening import Opening

    return Opening(settings, figures=figures, stop=stop, clock=clock, later=later_of(settings, clock), gate=gate)
