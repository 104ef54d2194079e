"""``cdc connect handover``, put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cdc.clock import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from cdc.handover.run import Handover
    from cdc.settings import Settings


def open_handover(settings: Settings, say: Callable[[str], None], clock: Clock = SYSTEM_CLOCK) -> Handover:
    """See :func:`connectors.connect.handover.handover_of`."""
    from connectors.connect.handover import handover_of

    return handover_of(settings, say, clock)
