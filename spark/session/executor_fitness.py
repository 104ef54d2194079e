"""Whether a cluster has executors, and whether they can do a task's work: their Python, and the packages they have."""

from __future__ import annotations

import logging
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from cdc.process.clock import Clock
from cdc.process.errors import ConfigError

LIBRARIES = {
    "pyarrow": "pyarrow", "numpy": "numpy", "orjson": "orjson", "tenacity": "tenacity",
    "confluent_kafka": "confluent-kafka",
}  # fmt: skip
"""Modules that each task imports, and the packages that bring them."""


class Fitness(NamedTuple):
    """A Python, as a worker finds it. ``host``: whose it is. ``python``: its version. ``lacks``: modules that it does
    not import. ``versions``: package -> version, of those that say it."""

    host: str
    python: str
    lacks: tuple[str, ...]
    versions: Mapping[str, str]


def look(modules: Sequence[str]) -> Fitness:
    """Look at this Python. Never raises for what is missing."""
    lacks = tuple(missing for name in modules if (missing := _missing(name)))
    versions = {package: found for package in LIBRARIES.values() if (found := _version(package))}
    return Fitness(platform.node(), platform.python_version(), lacks, versions)


def look_in_task(modules: Sequence[str], numbers: Iterable[int]) -> Iterator[Fitness]:
    """The same, as a task."""
    for _ in numbers:
        yield look(modules)


def require_fit(here: Fitness, found: Iterable[Fitness]) -> list[str]:
    """ConfigError for the first executor that cannot work for a driver like ``here``. Returns a sentence for each
    package of which executors have another version: those work, as far as anybody knows."""
    others: dict[str, None] = {}
    for one in found:
        if _minor(one.python) != _minor(here.python):
            raise another_python(one.python, here.python, one.host)
        if one.lacks:
            raise missing_module(one.lacks[0], one.host)
        for package, there in one.versions.items():
            own = here.versions.get(package, there)
            if own != there:
                others[f"the executors on {one.host} have {package} {there}, the driver has {own}"] = None
    return list(others)


def another_python(there: str, here: str, host: str = "") -> ConfigError:
    """The error for executors with another Python than the driver's."""
    return ConfigError(
        f"the executors{_on(host)} have Python {there}, and the driver has {here}",
        hint="name a Python of the driver's version in PYSPARK_PYTHON, at the same path on each worker",
    )


def missing_module(module: str, host: str = "") -> ConfigError:
    """The error for executors that lack a module."""
    root = module.partition(".")[0]
    return ConfigError(
        f"the Python of the executors{_on(host)} lacks the module {root}",
        hint=f"install {LIBRARIES.get(root, root)} there, or name a Python that has it in PYSPARK_PYTHON",
    )


def missing_python(program: str) -> ConfigError:
    """The error for executors that do not find the Python that they are told to start."""
    return ConfigError(
        f"the executors have no Python {program}",
        hint="name in PYSPARK_PYTHON one that each worker has, or one of an archive in spark.archives",
    )


def _on(host: str) -> str:
    return f" on {host}" if host else ""


def _minor(python: str) -> str:
    return ".".join(python.split(".")[:2])


def _missing(name: str) -> str:
    """The module that keeps this one from being imported: itself, or one that it imports. Empty where none does."""
    try:
        import_module(name)
    except ImportError as failure:
        return failure.name or name
    return ""


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


# Whether a cluster has executors. One without any lets a batch wait for ever, and Spark says so in its own log alone.
#
# With dynamic allocation there may be none while nothing is to be done.

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
