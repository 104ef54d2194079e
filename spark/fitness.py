"""Whether the executors of a cluster can do a task's work: their Python, and the packages that a task imports.

Without it a batch fails there with words about pickles, or about a module, in the middle of a traceback. A probe task
asks each executor that is there for what it has, with nothing but Python's own library.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

from cdc.errors import ConfigError

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
