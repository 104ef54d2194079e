"""What Spark has to be started with, so that it can write the stores of an application itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from sinks.kinds import SparkParts, kind_named
from sinks.registry import SinkSpec

_EXTENSIONS = "spark.sql.extensions"


def parts_of(specs: Iterable[SinkSpec]) -> list[SparkParts]:
    """The parts that Spark needs for these stores, each once."""
    found = (kind_named(spec.kind).spark(spec.options) for spec in specs)
    return list({(parts.product, parts.more_jars): parts for parts in found if parts is not None}.values())


def jar_sets(parts: Iterable[SparkParts]) -> list[str]:
    """The names of their sets of jars, each once."""
    return list(dict.fromkeys(name for part in parts for name in (part.jars, *part.more_jars)))


def with_parts(parts: Sequence[SparkParts], conf: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The user's settings over those of the parts, beside whose extensions the user may have others. ``folder``: for
    Spark's own catalog, which makes one where the process was started unless it is told another place."""
    if not parts:
        return dict(conf)
    wanted = list(dict.fromkeys(part.extension for part in parts))
    given = [name for name in conf.get(_EXTENSIONS, "").split(",") if name and name not in wanted]
    return {
        **{name: value for part in parts for name, value in part.conf.items()},
        "spark.sql.warehouse.dir": str(folder / "spark-warehouse"),
        **conf,
        _EXTENSIONS: ",".join([*wanted, *given]),
    }
