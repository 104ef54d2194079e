"""The capture daemon, put together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc.capture import Stop, Stopped
from cdc.clock import Clock
from cdc.metrics import CaptureFigures

if TYPE_CHECKING:
    from cdc.settings import Settings
    from connectors.opening import Opening

__all__ = ["Stopped", "open_capture"]


def open_capture(
    settings: Settings, *, figures: CaptureFigures, stop: Stop, clock: Clock, handing_over: bool = False
) -> Opening:
    """What opens capture's sessions; see :class:`connectors.opening.Opening`."""
    from connectors.opening import Opening

    return Opening(settings, figures=figures, stop=stop, clock=clock, handing_over=handing_over)
