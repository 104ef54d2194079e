"""Where a Delta warehouse is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sinks.delta.delta_kind import EMBEDDED
from sinks.registry import SinkSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Where the warehouse is, and the engine that writes it. ``options`` may hold secrets. ``partition_by``: see
    :func:`sinks.delta.delta_partitions.partition_of`."""

    root: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    engine: str = EMBEDDED
    partition_by: str = ""

    @classmethod
    def of(cls, spec: SinkSpec) -> Storage:
        """From a spec's ``path`` and everything that begins with ``storage.``."""
        given = {**spec.options, **spec.secrets}
        options = {n.removeprefix("storage."): str(v) for n, v in given.items() if n.startswith("storage.")}
        engine = spec.optional("engine") or EMBEDDED
        by = spec.optional("partition_by") or ""
        return cls(root=spec.text("path").rstrip("/"), options=options, engine=engine, partition_by=by)

    @property
    def local(self) -> bool:
        """Whether the warehouse is a folder of this machine."""
        return "://" not in self.root
