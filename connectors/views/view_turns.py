"""The views that one process keeps, a turn of each after the other. Each is opened by itself."""

from __future__ import annotations

import logging
import sqlite3
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import NamedTuple, Protocol

from cdc.figures.view_metrics import ViewFigures
from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.errors import CdcError, Exit, Retry
from cdc.process.untrusted_text import quoted
from cdc.record.position import Lsn
from cdc.views.log_cut import Fence
from cdc.views.state_reach import Reached, StateAway, StateForbidden, StateTaken
from cdc.views.view_runner import Turn
from connectors.views.view_topics import state_bytes

log = logging.getLogger(__name__)
_COUNT_EVERY_S = 5.0
AGAIN_S = 10.0
"""Between two tries to open a view whose state is away."""
_LONGEST_S = 300.0


def again_s(failures: int) -> float:
    """How long a view rests that has failed so many times in a row: each try makes clients of Kafka anew.

    >>> again_s(1), again_s(2), again_s(100)
    (10.0, 20.0, 300.0)
    """
    return min(AGAIN_S * 2.0 ** min(failures - 1, 10), _LONGEST_S)


class RunsView(Protocol):
    """The runner of a view. See :class:`cdc.views.view_runner.ViewRunner`."""

    def turn(self) -> Turn: ...

    @property
    def claimed(self) -> Fence: ...

    @property
    def level(self) -> bool: ...

    @property
    def reached(self) -> Reached: ...

    def sizes(self) -> tuple[int, int]: ...


class OpenedView(NamedTuple):
    """A runner that has begun, and where its state lies."""

    keeper: RunsView
    path: Path


class ViewFailed(CdcError):
    """A view's turn ended in an exception that should not be. Its own words are left out: they may hold a row's
    values."""

    exit = Exit.BUG

    @classmethod
    def of(cls, view: str, failure: Exception) -> ViewFailed:
        """The error for an exception, with its kind and its place."""
        where = "".join(f" at {f.filename}:{f.lineno}" for f in traceback.extract_tb(failure.__traceback__)[-1:])
        said = f"the view {view} failed: {type(failure).__name__}{where}"
        return cls(said, hint="this is a fault of Headrace; it is tried again by itself")


OpensView = Callable[[], AbstractContextManager[OpenedView]]
"""Opens a view. The block ends what it has opened."""


class KeptView:
    """A view that a process keeps: how it is opened, what is shown of it, and its runner while it is open.

    ``fault``: why it was closed, None while it is open or was not opened yet.
    """

    def __init__(self, name: str, opens: OpensView, clock: Clock) -> None:
        self.figures = ViewFigures(name, level_s=clock.monotonic())
        self.fault: CdcError | None = None
        self.opened: OpenedView | None = None
        self._opens = opens
        self._clock = clock
        self._stack = ExitStack()
        self._was_open = False
        self._due_s = clock.monotonic()
        self._counted_s: float | None = None
        self._failures = 0
        self._opened_s = clock.monotonic()

    @property
    def due(self) -> bool:
        """Whether it is to be opened now."""
        return self.opened is None and not self.figures.stopped and self._clock.monotonic() >= self._due_s

    @property
    def goes_on(self) -> bool:
        """Whether it is open, is opened next without a fault that was seen, or waits for who brings it on."""
        return self.fault is None or isinstance(self.fault, StateTaken)

    def open(self) -> bool:
        """Open it. Returns whether nothing moved. StateAway also where a place that was used before is forbidden."""
        try:
            self.opened = self._stack.enter_context(self._opens())
        except StateForbidden as refused:
            if not self._was_open:
                raise
            raise StateAway(refused.message, hint=refused.hint) from None
        self._was_open, self._opened_s = True, self._clock.monotonic()
        self.fault, self.figures.away = None, ""
        lsn = str(Lsn(self.opened.keeper.reached.fence.lsn))
        log.info("view_started", extra={"view": self.figures.name, "lsn": lsn})
        return False

    def turn(self) -> bool:
        """One turn. Returns whether nothing moved. StateAway where its state cannot be looked at."""
        assert self.opened is not None
        keeper, path = self.opened
        turn = keeper.turn()
        figures, now_s = self.figures, self._clock.monotonic()
        figures.records += turn.records
        figures.published += turn.documents
        figures.deleted += turn.deletions
        figures.lsn = keeper.claimed.lsn or None
        figures.held = bool(keeper.reached.held or keeper.reached.awaited)
        if self._counted_s is None or now_s - self._counted_s >= _COUNT_EVERY_S:
            self._counted_s = now_s
            self._count(keeper, path)
        if keeper.level:
            figures.level_s = now_s
        figures.turned_s = now_s
        if not turn.idle:
            said = {"records": turn.records, "documents": turn.documents, "deletions": turn.deletions}
            log.info("view_published", extra={"view": figures.name, **said})
        return turn.idle

    def _count(self, keeper: RunsView, path: Path) -> None:
        try:
            self.figures.waiting, self.figures.parked = keeper.sizes()
            self.figures.state_bytes = state_bytes(path)
        except (OSError, sqlite3.Error) as failure:
            said = f"the state of the view in {path} cannot be looked at: {quoted(failure)}"
            raise StateAway(said, hint="see that its disk is there") from None

    def away(self, failure: StateAway | ViewFailed) -> None:
        """It cannot go on now: it is closed, and opened again later."""
        rest_s = self._rest_s() if isinstance(failure, ViewFailed) else AGAIN_S
        self.close()
        self.fault, self._due_s = failure, self._clock.monotonic() + rest_s
        if self.figures.away != failure.message:
            said = {"view": self.figures.name, "reason": failure.message, "hint": failure.hint, "again_s": rest_s}
            log.warning("view_away", extra=said)
        self.figures.away, self.figures.cure = failure.message, failure.hint

    def _rest_s(self) -> float:
        """The rest before the next try. A view that was open for longer than its last rest has held."""
        open_s = self._clock.monotonic() - self._opened_s if self.opened is not None else 0.0
        if self._failures and open_s > again_s(self._failures):
            self._failures = 0
        self._failures += 1
        return again_s(self._failures)

    def stop(self, failure: CdcError) -> None:
        """It cannot go on until the next start."""
        self.close()
        self.fault, self.figures.away, self.figures.stopped = failure, "", failure.message
        self.figures.cure = failure.hint
        said = {"reason": failure.message, "hint": failure.hint, "exit": int(failure.exit)}
        log.error("view_stopped", extra={"view": self.figures.name, **said})

    def close(self) -> None:
        """End what is open of it. It may lie on a disk that is away."""
        self.opened = None
        stack, self._stack = self._stack, ExitStack()
        with suppress(OSError, sqlite3.Error, CdcError):
            stack.close()


class ViewTurns:
    """Opens each view, and has all take their turns. ``opens``: by the views' names. For one thread.

    A view that cannot go on, that fails, or whose state is away, is closed, and the others go on.
    """

    def __init__(self, opens: Mapping[str, OpensView], clock: Clock = SYSTEM_CLOCK) -> None:
        self._views = [KeptView(name, one, clock) for name, one in opens.items()]

    @property
    def figures(self) -> Sequence[ViewFigures]:
        """The figures of each."""
        return [one.figures for one in self._views]

    @property
    def paths(self) -> Mapping[str, Path]:
        """Where the state of each lies that is open, by the views' names."""
        return {one.figures.name: one.opened.path for one in self._views if one.opened is not None}

    @property
    def level(self) -> bool:
        """Whether each that is open has published all that the log holds."""
        return all(one.opened.keeper.level for one in self._views if one.opened is not None)

    def turned(self) -> bool:
        """Open those that are due, and a turn of each. Returns whether nothing moved.

        Raises what concerns all: a broker that is away. Where no view goes on, :meth:`fault`.
        """
        idle = True
        for one in self._views:
            if one.due:
                idle = self._tried(one, one.open) and idle
        for one in self._views:
            if one.opened is not None:
                idle = self._tried(one, one.turn) and idle
        fault = self.fault()
        if fault is not None and not any(one.goes_on for one in self._views):
            raise fault
        return idle

    def fault(self) -> CdcError | None:
        """Why a view is not kept. A state that is away comes first: a start of the process helps there."""
        found = [one for one in self._views if one.fault is not None]
        return next((one.fault for one in sorted(found, key=lambda one: bool(one.figures.stopped))), None)

    def close(self) -> None:
        """Close all."""
        for one in self._views:
            one.close()

    def _tried(self, one: KeptView, do: Callable[[], bool]) -> bool:
        try:
            return do()
        except StateAway as failure:
            one.away(failure)
        except CdcError as failure:
            # A broker that is away is away for all. An error of one view stops that view alone.
            if failure.retry is not Retry.NEVER:
                raise
            one.stop(failure)
        except Exception as failure:
            # A fault of ours, or a library's, over one view's rows. The others are none the worse for it.
            one.away(ViewFailed.of(one.figures.name, failure))
        return True
