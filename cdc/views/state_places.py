"""The engine that keeps a view, where its state is, and the views that it cannot keep. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from cdc.errors import ConfigError
from cdc.views.state_faults import ELSEWHERE, is_there
from cdc.views.view_plan import ViewPlan

SPARK = "spark:"
"""A place that begins so names its engine itself, as version 0.1 had it."""
_PLACE = re.compile(r"spark:(?P<folder>[^?]+)(\?buckets=(?P<buckets>[0-9]+))?")
BUCKETS = 64
_MOST_BUCKETS = 4_096
_ENGINES = ("embedded", "spark")


@dataclass(frozen=True, slots=True)
class StatePlace:
    """``folder``: of the state. ``buckets``: of each of its tables where executors keep it, 0 where this machine does.

    >>> state_place("a", "view-state").buckets, state_place("a", "/mnt/views", "spark", 256).buckets
    (0, 256)
    """

    folder: Path
    buckets: int

    @property
    def on_executors(self) -> bool:
        """Whether the state is Delta tables, kept by Spark."""
        return self.buckets > 0

    @property
    def engine(self) -> str:
        """The engine's name in the settings."""
        return _ENGINES[self.on_executors]

    @property
    def ending(self) -> str:
        """The end of a state's name there."""
        return ("sqlite", "buckets")[self.on_executors]

    @property
    def other(self) -> StatePlace:
        """The same folder, as the other engine would use it."""
        return StatePlace(self.folder, 0 if self.on_executors else BUCKETS)


def state_place(view: str, state: str, engine: str = "embedded", buckets: int = BUCKETS) -> StatePlace:
    """The place that ``[views.NAME] state``, ``engine`` and ``buckets`` name. ConfigError for a place that is
    none."""
    if "\0" in state:
        raise ConfigError(f"the state of the view {view} lies in no folder: its name has a NUL", hint=ELSEWHERE)
    if engine == "embedded" and not state.startswith(SPARK):
        return StatePlace(Path(state), 0)
    folder = state
    if state.startswith(SPARK):
        found = _PLACE.fullmatch(state)
        folder = found["folder"] if found is not None else ""
        buckets = int(found["buckets"] or BUCKETS) if found is not None else 0
    if not folder or not 1 <= buckets <= _MOST_BUCKETS or "://" in folder:
        raise ConfigError(
            f"the view {view} has no place for a state of Spark's: {state}",
            hint="name a folder that this machine and all executors share, and with buckets 1 to "
            f"{_MOST_BUCKETS} of them",
        )
    return StatePlace(Path(folder), buckets)


def require_its_engine(view: str, place: StatePlace, own: Path, other: Path) -> None:
    """ConfigError where a folder has a state of the view that the other engine has made, and none of this one: it
    would be built anew without a word, and the other one stay there. ``own``, ``other``: where the two would be.
    StateAway where that cannot be seen now."""
    if is_there(other) and not is_there(own):
        raise ConfigError(
            f"the state of the view {view} in {place.folder} was made by the engine {place.other.engine}, and "
            f"[views.{view}] names {place.engine}",
            hint=f'put engine = "{place.other.engine}" back. Or cdc view rebuild {view}, and the next cdc view run '
            "builds the view anew from the topics",
        )


def require_kept_on_executors(view: str, plan: ViewPlan, *, post: bool, close: bool, eager: bool) -> None:
    """ConfigError for a view that Spark does not keep: each for one reason, and with the engine that does."""
    reasons = (
        (plan.grouping is not None, "has groups, and Spark keeps documents of rows alone"),
        (close, "closes windows, and Spark keeps none"),
        (post, "has a function on its documents, and Spark runs none"),
        (eager, "is eager, and Spark keeps views of whole transactions alone"),
    )
    for refused, why in reasons:
        if refused:
            raise ConfigError(
                f"the view {view} {why}",
                hint=f'set [views.{view}] engine = "embedded": the engine on one machine keeps it',
            )
