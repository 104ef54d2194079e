"""The lines of streams in ``cdc status`` and ``cdc stream list``. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from cdc.checks.findings import WATCH, Condition
from cdc.settings.model import LimitSettings
from cdc.status.view_lines import age


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFacts:
    """One stream. ``generation``: None where it has no topic yet. ``batch``: the newest one, None before the first.
    ``at_us``: up to which commits it has counted, and ``newest_us``: up to which the log holds them. 0 where nobody
    knows, as of another program's topic. ``set_apart``: reason -> how many events are. ``state_rows``: what the
    state keeps, in ``state_partitions``. ``known``: whether the log was read, which says all of this."""

    name: str
    generation: int | None = None
    topic: str | None = None
    batch: int | None = None
    at_us: int = 0
    newest_us: int = 0
    set_apart: Mapping[str, int] = field(default_factory=dict)
    state_rows: int = 0
    state_partitions: int = 0
    known: bool = True

    @property
    def shown(self) -> str:
        """``unknown`` (the log does not answer), ``absent`` (it has no topic), ``building`` (no batch yet) or
        ``published``."""
        if not self.known:
            return "unknown"
        if self.generation is None:
            return "absent"
        return "building" if self.batch is None else "published"

    @property
    def behind_s(self) -> float | None:
        """By how much the log goes on behind what is counted. At rest that is up to five seconds."""
        return max(0, self.newest_us - self.at_us) / 1e6 if self.at_us and self.newest_us else None

    def document(self) -> dict[str, Any]:
        """As ``--json`` prints it. Unknown members are null."""
        return {
            "state": self.shown,
            "generation": self.generation,
            "topic": self.topic,
            "batch": self.batch,
            "at": self._at(),
            "lag_seconds": self.behind_s,
            "late": dict(self.set_apart),
            "state_rows": self.state_rows,
            "state_partitions": self.state_partitions,
        }

    def lines(self) -> Iterator[str]:
        """For a person."""
        generation = f", generation {self.generation}" if self.generation is not None else ""
        yield f"stream {self.name}  {self.shown}{generation}"
        if self.batch is None:
            return
        late = f", {age(self.behind_s)} behind the log" if self.behind_s is not None else ""
        yield f"  batch {self.batch:,}{f' up to {at}' if (at := self._at()) else ''}{late}"
        apart = ", ".join(f"{count:,} {reason}" for reason, count in self.set_apart.items()) or "none"
        yield f"  state: {self.state_rows:,} rows in {self.state_partitions} partitions; set apart: {apart}"

    def _at(self) -> str | None:
        return datetime.fromtimestamp(self.at_us / 1e6, UTC).isoformat(timespec="milliseconds") if self.at_us else None


def stream_conditions(stream: StreamFacts, limits: LimitSettings) -> Iterator[Condition]:
    """Each thing that is wrong with a stream."""
    limit_s, name = limits.lag.total_seconds(), stream.name
    if stream.shown == "absent":
        yield Condition(
            f"the stream {name} was never published: cdc stream run {name} keeps it", f"cdc stream run {name}"
        )
    elif stream.behind_s is not None and stream.behind_s > limit_s:
        said = f"the stream {name} is {age(stream.behind_s)} behind the log; the limit is {age(limit_s)}"
        yield Condition(said, WATCH)
