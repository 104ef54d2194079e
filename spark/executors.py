"""Whether a cluster has executors. One without any lets a batch wait for ever, and Spark says so in its own log alone.

With dynamic allocation there may be none while nothing is to be done.
"""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from cdc.clock import Clock

log = logging.getLogger(__name__)

MISSED_S = 8.0
"""How long no executor is there before it is reported. A look takes two seconds more at most."""
_LOOK_S = 2.0


class ClusterSight(NamedTuple):
    """A look at a cluster. ``wanted``: whether a job waits, or executors do not come and go by themselves.
    ``waiting``: tasks that wait while none runs."""

    executors: int
    wanted: bool
    waiting: int = 0


def slots_of(session: SparkSession) -> int:
    """Tasks that a job which begins now should have: as many as may run at once.

    With dynamic allocation it is the job that brings executors, so those that may come count, where there is a limit.
    """
    context: Any = session.sparkContext
    now = max(1, int(context.defaultParallelism))
    asked = context._conf.get
    if asked("spark.dynamicAllocation.enabled", "false") != "true":
        return now
    most = int(asked("spark.dynamicAllocation.maxExecutors", "0"))
    return max(now, most * int(asked("spark.executor.cores", "1")))


class ExecutorWatch:
    """Says that a cluster has no executors, once, and when it has some again. ``master``: as the settings name it."""

    def __init__(self, master: str, clock: Clock) -> None:
        self._master = master
        self._clock = clock
        self._look_s = 0.0
        self._missed_s: float | None = None
        self._told = False

    def due(self) -> bool:
        """Whether it is time for another look."""
        return self._clock.monotonic() >= self._look_s

    def note(self, seen: ClusterSight) -> str:
        """A look. Returns the sentence about it, empty while all is well."""
        now_s = self._clock.monotonic()
        self._look_s = now_s + _LOOK_S
        if not seen.waiting and (seen.executors or not seen.wanted):
            if self._told:
                log.info("executors_here", extra={"executors": seen.executors})
            self._missed_s, self._told = None, False
            return ""
        self._missed_s = now_s if self._missed_s is None else self._missed_s
        if now_s - self._missed_s < MISSED_S:
            return ""
        if not self._told:
            self._told = True
            said = {"master": self._master, "executors": seen.executors, "tasks": seen.waiting}
            log.warning("no_executors", extra=said)
        for_s = f"for {now_s - self._missed_s:.0f} s"
        if seen.executors:
            return f"{seen.waiting} tasks have waited {for_s} for an executor of {self._master} that takes them"
        return f"the cluster {self._master} has had no executor {for_s}"


def look_at(session: SparkSession) -> ClusterSight:
    """Ask the driver's JVM. Raises what py4j raises."""
    context = session.sparkContext
    java: Any = context._jsc.sc()
    tracker = context.statusTracker()
    wanted = bool(tracker.getActiveJobsIds())
    stages = [one for number in tracker.getActiveStageIds() if (one := tracker.getStageInfo(number)) is not None]
    waiting = sum(one.numTasks - one.numCompletedTasks for one in stages)
    if any(one.numActiveTasks for one in stages):
        waiting = 0
    dynamic = context.getConf().get("spark.dynamicAllocation.enabled", "false") == "true"
    return ClusterSight(int(java.getExecutorMemoryStatus().size()) - 1, wanted or not dynamic, waiting)
