"""The figures of ``cdc view run``: one line of the log's way, kept by the runner's thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.core import Metric

from cdc.figures.declared_figures import VIEWS
from cdc.figures.http_server import FigurePage
from cdc.process import __version__
from cdc.process.clock import Clock
from cdc.record.position import Lsn

KNOWN_S = 30.0
"""For so long after a turn its figures are known."""


@dataclass(slots=True)
class ViewFigures:
    """One view, as its runner left it. Seconds are of a monotonic clock. ``level_s``: when it last lacked nothing.

    ``turned_s``: its last turn. ``lsn``: below which everything is published, None before the first build is whole.
    ``waiting``, ``parked``: keys that are to be published, and those that cannot be. ``held``: the log lacks rows of
    its tables, and its LSN stays. ``stopped``: why it cannot go on. ``away``: why its state cannot be used now.
    ``cure``: what ends that.
    """

    name: str
    level_s: float
    turned_s: float | None = None
    lsn: int | None = None
    waiting: int = 0
    parked: int = 0
    held: bool = False
    state_bytes: int = 0
    records: int = 0
    published: int = 0
    deleted: int = 0
    stopped: str = ""
    away: str = ""
    cure: str = ""

    def known(self, now_s: float) -> bool:
        """Whether it turned lately, and goes on."""
        return not (self.stopped or self.away) and self.turned_s is not None and now_s - self.turned_s < KNOWN_S

    def lag_s(self, now_s: float) -> float:
        """Since when the view lacks something that the log holds. 0 where it lacks nothing."""
        return 0.0 if self.turned_s == self.level_s else max(0.0, now_s - self.level_s)


@dataclass(slots=True, eq=False)
class ViewHealth:
    """Every view of one process: the pages of :func:`cdc.figures.http_server.serve_health`. ``limit_s``: how far behind
    a view may be, and the process still be ready."""

    clock: Clock
    limit_s: float
    pipeline: str = ""
    views: Sequence[ViewFigures] = field(default=())

    def collect(self) -> Iterator[Metric]:
        """All metrics as they are at this moment."""
        page, now_s = FigurePage(self.pipeline, VIEWS), self.clock.monotonic()
        page.set("cdc_build_info", 1, version=__version__)
        for one in self.views:
            page.set("cdc_view_stopped", float(bool(one.stopped)), view=one.name)
            if page.known("cdc_view_lag_known", one.known(now_s), view=one.name):
                page.set("cdc_view_lag_seconds", one.lag_s(now_s), view=one.name)
                page.set("cdc_view_applied_lsn", one.lsn, view=one.name)
                page.set("cdc_view_waiting_keys", one.waiting, view=one.name)
                page.set("cdc_view_parked_keys", one.parked, view=one.name)
                page.set("cdc_view_held", float(one.held), view=one.name)
                page.set("cdc_view_state_bytes", one.state_bytes, view=one.name)
            page.set("cdc_view_records_total", one.records, view=one.name)
            page.set("cdc_view_published_rows_total", one.published, view=one.name)
            page.set("cdc_view_deleted_rows_total", one.deleted, view=one.name)
        yield from page.families()

    def alive(self) -> tuple[bool, str]:
        """The process answers."""
        return True, "alive"

    def ready(self) -> tuple[bool, str]:
        """Whether each view was built and goes on, and none is behind the limit."""
        now_s = self.clock.monotonic()
        for one in self.views:
            if one.stopped:
                return False, f"{one.name} has stopped: {one.stopped}"
            if one.away:
                return False, f"{one.name} is away: {one.away}"
            if not one.known(now_s):
                return False, f"{one.name} has not turned for {KNOWN_S:.0f} s"
            if one.lsn is None:
                return False, f"{one.name} is being built"
            if one.lag_s(now_s) > self.limit_s:
                return False, f"{one.name} is {one.lag_s(now_s):.0f} s behind"
        return True, "every view is kept"

    def document(self) -> dict[str, Any]:
        """The document that ``/status`` serves."""
        now_s = self.clock.monotonic()
        views = {
            one.name: {
                "lsn": str(Lsn(one.lsn)) if one.lsn is not None else None,
                "lag_seconds": round(one.lag_s(now_s), 3) if one.known(now_s) else None,
                "waiting": one.waiting,
                "parked": one.parked,
                "held": one.held,
                "stopped": one.stopped or None,
                "away": one.away or None,
                "trouble": f"stopped: {one.stopped}" if one.stopped else f"away: {one.away}" if one.away else "",
                "cure": one.cure,
            }
            for one in self.views
        }
        return {"pipeline": self.pipeline, "views": views}
