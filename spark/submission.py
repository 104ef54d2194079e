"""The session of ``spark-submit``: its settings beside ours, and whether its JVM has the jars that the stores need."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cdc.errors import ConfigError

_EXTENSIONS = "spark.sql.extensions"
_SUBMITTERS = ("spark.master", "spark.driver.memory", "spark.driver.extraJavaOptions", "spark.jars")
_DAEMON = "spark.python.daemon.module"


def settings_beside(given: Mapping[str, str], ours: Mapping[str, str], *, own_python: bool) -> dict[str, str]:
    """Those of ours that can still be set, the submitter's word going first. Extensions of Spark's SQL are had
    together. ``own_python``: whether workers on this machine run the driver's Python.

    >>> settings_beside({"spark.master": "yarn", "a": "1"}, {"a": "2", "b": "3"}, own_python=True)
    {'b': '3'}
    """
    theirs = {*given, *_SUBMITTERS, *([] if own_python else [_DAEMON])}
    if not given.get("spark.master", "").startswith("local"):
        # The settings may say nothing of the cluster.
        theirs |= {"spark.driver.host", "spark.driver.bindAddress", _DAEMON}
    kept = {name: value for name, value in ours.items() if name not in theirs}
    named = ",".join(one[_EXTENSIONS] for one in (given, ours) if _EXTENSIONS in one)
    extensions = dict.fromkeys(filter(None, named.split(",")))
    return {**kept, **({_EXTENSIONS: ",".join(extensions)} if extensions else {})}


def require_brought(needs: Mapping[str, str], has: Callable[[str], bool]) -> None:
    """ConfigError, with every jar that is missing. ``needs``: classes, each with the jar that brings it. ``has``:
    whether there is such a class."""
    missing = list(dict.fromkeys(jar for name, jar in needs.items() if not has(name)))
    if missing:
        raise ConfigError(
            f"spark-submit was not given the jars that these sinks need: {', '.join(missing)}",
            hint=f'--jars "$(cdc sink --jars)" has them all, and so has --packages {",".join(missing)}',
        )
