"""The figures of ``cdc stream run``: one line of the log's way, kept by the thread that supervises the streams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.core import Metric

from cdc.figures.declared_figures import STREAMS
from cdc.figures.http_server import FigurePage
from cdc.process import __version__
from cdc.process.clock import Clock

KNOWN_S = 30.0
"""For so long after a look at the log its lag is known."""


@dataclass(slots=True)
class StreamFigures:
    """One stream, as its supervisor left it. Seconds are of a monotonic clock. ``level_s``: when it last lacked
    nothing. ``looked_s``: the last look at where the log ends, None before the first.

    ``batch``: the newest published one, None before any. ``state_rows``: what Spark keeps behind it, in
    ``state_partitions``. ``set_apart``: reason -> how many events of the generation are. ``rows``: published since the
    process began. ``stopped``: why it cannot go on. ``away``: why it does not run now. ``cure``: what ends that.
    """

    name: str
    level_s: float
    looked_s: float | None = None
    batch: int | None = None
    state_rows: int = 0
    state_partitions: int = 0
    set_apart: Mapping[str, int] = field(default_factory=dict)
    rows: int = 0
    stopped: str = ""
    away: str = ""
    cure: str = ""

    def known(self, now_s: float) -> bool:
        """Whether the log was seen lately. Of one that has stopped, too: it lacks ever more of what comes."""
        return self.looked_s is not None and now_s - self.looked_s < KNOWN_S

    def lag_s(self, now_s: float) -> float:
        """Since when the stream lacks something that the log holds. 0 where it lacks nothing."""
        return 0.0 if self.looked_s == self.level_s else max(0.0, now_s - self.level_s)


@dataclass(slots=True, eq=False)
class StreamHealth:
    """Every stream of one process: the pages of :func:`cdc.figures.http_server.serve_health`. ``limit_s``: how far
    behind a stream may be, and the process still be ready."""

    clock: Clock
    limit_s: float
    pipeline: str = ""
    streams: Sequence[StreamFigures] = field(default=())

    def collect(self) -> Iterator[Metric]:
        """All metrics as they are at this moment."""
        page, now_s = FigurePage(self.pipeline, STREAMS), self.clock.monotonic()
        page.set("cdc_build_info", 1, version=__version__)
        for one in self.streams:
            page.set("cdc_stream_stopped", float(bool(one.stopped)), stream=one.name)
            if page.known("cdc_stream_lag_known", one.known(now_s), stream=one.name):
                page.set("cdc_stream_lag_seconds", one.lag_s(now_s), stream=one.name)
            if one.batch is not None:
                page.set("cdc_stream_batch", one.batch, stream=one.name)
                page.set("cdc_stream_state_rows", one.state_rows, stream=one.name)
                page.set("cdc_stream_state_partitions", one.state_partitions, stream=one.name)
            for reason, count in one.set_apart.items():
                page.set("cdc_stream_set_apart_events_total", count, stream=one.name, reason=reason)
            page.set("cdc_stream_published_rows_total", one.rows, stream=one.name)
        yield from page.families()

    def alive(self) -> tuple[bool, str]:
        """The process answers."""
        return True, "alive"

    def ready(self) -> tuple[bool, str]:
        """Whether each stream goes on, and none is behind the limit."""
        now_s = self.clock.monotonic()
        if not self.streams:
            return False, "Spark is being started"
        for one in self.streams:
            if said := _trouble(one):
                return False, f"{one.name}: {said}"
            if not one.known(now_s):
                return False, f"{one.name}: where the log ends was not seen for {KNOWN_S:.0f} s"
            if one.lag_s(now_s) > self.limit_s:
                return False, f"{one.name} is {one.lag_s(now_s):.0f} s behind"
        return True, "every stream is kept"

    def document(self) -> dict[str, Any]:
        """The document that ``/status`` serves."""
        now_s = self.clock.monotonic()
        streams = {
            one.name: {
                "batch": one.batch,
                "lag_seconds": round(one.lag_s(now_s), 3) if one.known(now_s) else None,
                "state_rows": one.state_rows,
                "set_apart": dict(one.set_apart),
                "trouble": _trouble(one),
                "cure": one.cure,
            }
            for one in self.streams
        }
        return {"pipeline": self.pipeline, "streams": streams}


def _trouble(one: StreamFigures) -> str:
    return f"stopped: {one.stopped}" if one.stopped else f"away: {one.away}" if one.away else ""
