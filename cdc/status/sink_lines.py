"""The lines of ``cdc status`` about stores: pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cdc.lsn import Lsn
from cdc.measures import Quantiles
from cdc.rebuild.rules import RebuildState
from cdc.running import FillShare
from cdc.status.fresh import fresh_document


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkStatus:
    """One line of the table. ``state``: ``consistent``, ``bootstrapping`` (the first snapshot does not all show
    yet), ``filling`` (reading the log from its beginning), ``holding`` (all but the tables in ``held`` is as ``lsn``
    says), ``level`` or ``behind`` (of a source without LSNs: whether it shows every record of the topics), ``empty``,
    ``unreachable``, ``unjudged`` (the log that it is compared with does not answer). ``held``: table -> why, empty
    where it is being brought up to date. ``lag_at_least``: ``lag_s`` may be more. ``lag_records``: of the topics, where
    there are no LSNs. ``fresh``: from commit to store in the last minutes, None where nothing came; ``fresh_known``:
    whether a running ``cdc sink`` reported it.
    ``fill``: how far that process is with a fill, None where none runs. ``rebuild``: that is not over."""

    name: str
    kind: str
    state: str
    lsn: int | None
    lag_bytes: int | None
    lag_s: float | None
    parked: int | None
    lag_at_least: bool = False
    held: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None
    lag_records: int | None = None
    fresh: Quantiles | None = None
    fresh_known: bool = False
    fill: FillShare | None = None
    rebuild: RebuildState | None = None

    def document(self) -> dict[str, Any]:
        """As ``cdc status --json`` prints it. Unknown members are null."""
        fill = self.fill
        return {
            "kind": self.kind,
            "state": self.state,
            "lsn": str(Lsn(self.lsn)) if self.lsn is not None else None,
            "lag_bytes": self.lag_bytes,
            "lag_seconds": self.lag_s,
            "lag_at_least": self.lag_at_least,
            "lag_records": self.lag_records,
            "parked": self.parked,
            "held": dict(self.held),
            "error": self.error,
            "fill": {"share": fill.share, "remaining_seconds": fill.left_s} if fill is not None else None,
            "rebuild": self.rebuild.noted() if self.rebuild is not None else None,
            **fresh_document(self.fresh_known, self.fresh),
        }
