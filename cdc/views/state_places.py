"""The engine that keeps a view, by where its state is, and the views that it cannot keep. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from cdc.errors import ConfigError
from cdc.views.view_plan import ViewPlan

SPARK = "spark:"
_PLACE = re.compile(r"spark:(?P<folder>[^?]+)(\?buckets=(?P<buckets>[0-9]+))?")
BUCKETS = 64
_MOST_BUCKETS = 4_096


@dataclass(frozen=True, slots=True)
class StatePlace:
    """``folder``: of the state. ``buckets``: of each of its tables where executors keep it, 0 where this machine does.

    >>> state_place("a", "view-state").buckets, state_place("a", "spark:/mnt/views?buckets=256").buckets
    (0, 256)
    """

    folder: Path
    buckets: int

    @property
    def on_executors(self) -> bool:
        """Whether the state is Delta tables, kept by Spark."""
        return self.buckets > 0


def state_place(view: str, state: str) -> StatePlace:
    """The place that ``[views.NAME] state`` names. ConfigError for a place of Spark's that is none."""
    if not state.startswith(SPARK):
        return StatePlace(Path(state), 0)
    found = _PLACE.fullmatch(state)
    buckets = int(found["buckets"] or BUCKETS) if found is not None else 0
    if found is None or not 1 <= buckets <= _MOST_BUCKETS or "://" in found["folder"]:
        raise ConfigError(
            f"the view {view} has no place for a state of Spark's: {state}",
            hint=f"write spark:/FOLDER?buckets={BUCKETS}, a folder that this machine and all executors share, and 1 to "
            f"{_MOST_BUCKETS} buckets",
        )
    return StatePlace(Path(found["folder"]), buckets)


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
                hint=f"leave {SPARK} out of [views.{view}] state: the engine on one machine keeps it",
            )
