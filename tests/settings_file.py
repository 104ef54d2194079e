"""Settings of a test as a file that programs read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomlkit

SELDOM = {"spark.sql.streaming.pollingDelay": "250ms"}
"""Settings of Spark for tests. Ours has a query at rest ask Kafka for new records every five milliseconds, so that a
store is fresh: three of them, and the broker that they ask, keep a processor busy as long as a test looks elsewhere."""


def write_settings(folder: Path, document: Mapping[str, Any]) -> Path:
    """``cdc.toml`` in the folder with what the document says now; whole for whoever is just reading it. Sinks ask Kafka
    seldom, unless the document says how often."""
    path, new = folder / "cdc.toml", folder / "cdc.toml.new"
    if document.get("sinks"):
        document = {**document, "spark": asking_seldom(document.get("spark", {}))}
    new.write_text(tomlkit.dumps(document), encoding="utf-8")
    return new.replace(path)


def asking_seldom(spark: Mapping[str, Any]) -> dict[str, Any]:
    """The section ``[spark]`` with :data:`SELDOM` where it says nothing of that."""
    return {**spark, "conf": {**SELDOM, **spark.get("conf", {})}}
