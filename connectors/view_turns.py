"""The views that one process keeps, a turn of each after the other, by whichever engine."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cdc.clock import SYSTEM_CLOCK
from cdc.errors import CdcError, Retry
from cdc.view_metrics import ViewFigures
from cdc.views.fences import Fence
from cdc.views.keeper import Turn
from cdc.views.view_state import Reached
from connectors.view_looks import state_bytes

log = logging.getLogger(__name__)
_COUNT_EVERY_S = 5.0


class RunsView(Protocol):
    """The runner of a view, by either engine. See :class:`cdc.views.keeper.Keeper`."""

    def turn(self) -> Turn: ...

    @property
    def claimed(self) -> Fence: ...

    @property
    def level(self) -> bool: ...


class StateFigures(Protocol):
    """The part of a runner's state that is shown. See :class:`cdc.views.view_state.ViewState`."""

    @property
    def reached(self) -> Reached:
        """How far the state is."""
        ...

    def sizes(self) -> tuple[int, int]:
        """The numbers of keys that wait and of documents that are parked."""
        ...


@dataclass(slots=True)
class KeptView:
    """A view that a process keeps: its runner, the runner's state and file, and what is shown of it."""

    keeper: RunsView
    state: StateFigures
    figures: ViewFigures
    path: Path
    counted_s: float = 0.0

    def turn(self) -> bool:
        """One turn. Returns whether nothing moved."""
        turn = self.keeper.turn()
        figures, now_s = self.figures, SYSTEM_CLOCK.monotonic()
        figures.records += turn.records
        figures.published += turn.documents
        figures.deleted += turn.deletions
        figures.late += turn.late
        figures.lsn = self.keeper.claimed.lsn or None
        figures.held = bool(self.state.reached.held)
        if now_s - self.counted_s >= _COUNT_EVERY_S:
            self.counted_s = now_s
            waiting, figures.parked = self.state.sizes()
            figures.waiting, figures.state_bytes = waiting, state_bytes(self.path)
        if self.keeper.level:
            figures.level_s = now_s
        figures.turned_s = now_s
        if not turn.idle:
            said = {"records": turn.records, "documents": turn.documents, "deletions": turn.deletions}
            log.info("view_published", extra={"view": figures.name, **said})
        return turn.idle


def all_turned(kept: list[KeptView], stopped: list[CdcError]) -> bool:
    """A turn of each view. One that cannot go on leaves the list, and the others do. Returns whether nothing moved."""
    idle = True
    for one in list(kept):
        try:
            idle = one.turn() and idle
        except CdcError as failure:
            if failure.retry is Retry.NOW:
                log.warning("view_reads_again", extra={"view": one.figures.name, "reason": failure.message})
                idle = False
                continue
            # A broker that is away is away for all. An error of one view stops that view alone.
            if failure.retry is not Retry.NEVER or len(kept) == 1:
                raise
            name = one.figures.name
            said = {"view": name, "reason": failure.message, "hint": failure.hint, "exit": int(failure.exit)}
            log.error("view_stopped", extra=said)
            one.figures.stopped = failure.message
            kept.remove(one)
            stopped.append(failure)
    return idle
