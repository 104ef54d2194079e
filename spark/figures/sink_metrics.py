"""The sinks' figures for Prometheus, and whether they are well.

Counters count as things happen. A figure that may change at any moment is worked out when somebody asks: a store or a
broker that says nothing sets no figure, and one that keeps its last value would look well for ever. A
figure that is not known is absent, and a gauge ``..._known`` is 0.
"""

from __future__ import annotations

import json
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from cdc.figures.declared_figures import SINKS
from cdc.figures.http_server import FigurePage, Page, PagesServer, Question, answering, exposition
from cdc.figures.measures import BucketCounts, FreshnessTimes, Trend, left_s
from cdc.process import __version__
from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.errors import CdcError, ConfigError
from sinks.contract.port import StoreAway
from spark.figures.query_listener import AllQueries

log = logging.getLogger(__name__)
EVERY_S = 30.0
"""A store says at most so often how far its fill is."""


class Lacking(NamedTuple):
    """The records that a store lacks of the log as it was last seen. ``known``: whether the oldest record's time is.

    ``oldest_ms``: its commit time in ms since 1970, None where it lacks none.
    """

    known: bool
    records: int
    oldest_ms: int | None


class FillStand(NamedTuple):
    """How far a fill is: records read, of how many."""

    read: int
    all: int

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return self.read / self.all if self.all else 1.0


def finite(seconds: float | None) -> float | None:
    """The same, and None for infinite: JSON has no word for it.

    >>> finite(3.0), finite(math.inf), finite(None)
    (3.0, None, None)
    """
    return seconds if seconds is not None and math.isfinite(seconds) else None


class FillLines:
    """A line for each store that is being filled: at the first look and then every :data:`EVERY_S` seconds."""

    def __init__(self) -> None:
        self._told_s: dict[str, float] = {}

    def note(self, at_s: float, sink: str, stand: FillStand, left_s: float | None) -> None:
        """A look at a fill. ``at_s``: of a clock that never goes back. ``left_s``: seconds until its end."""
        told_s = self._told_s.get(sink)
        if told_s is not None and at_s - told_s < EVERY_S:
            return
        self._told_s[sink] = at_s
        rest = finite(left_s)
        log.info(
            "store_filling",
            extra={
                "sink": sink,
                "read": stand.read,
                "all": stand.all,
                "share": round(stand.share, 3),
                "left_s": round(rest) if rest is not None else None,
            },
        )


_BUCKETS = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.8, 1.5, 3, 10, 30, 120)
ANSWER_S = 60.0
"""A call into a store that takes longer is no answer."""
SILENCE_S = 30.0
"""A figure that was heard longer ago is not known any more. At rest a store is asked every 2 s, the log every 5 s."""
TICK_S = 60.0
"""A loop that has not come round for so long is stuck."""
FILL_S = 300.0
"""A fill's pace is that of so many seconds."""


@dataclass
class SinkFigures:
    """One store, written as it goes. Times in seconds of the monotonic clock, unless noted otherwise.

    ``lacks``: what the store lacks, by the log as last seen. ``fill``: how far a fill is, None where none runs.
    ``behind``: records that it lacks, by the ends of the log as last seen. ``asked_s``: since when a call goes on.
    ``begun_s``: when its watermark was first read. None before. ``failing``: what ended its query, though the store may
    answer a question. None again when a slice was applied, or when it lacks nothing. ``cure``: what ends that it is
    away or stopped.
    """

    behind: Callable[[], int] = lambda: 0
    lacks: Callable[[], Lacking] = lambda: Lacking(False, 0, None)
    fill: Callable[[], FillStand | None] = lambda: None
    pace: Trend = field(default_factory=lambda: Trend(FILL_S))
    freshness: FreshnessTimes = field(default_factory=FreshnessTimes)
    batches: BucketCounts = field(default_factory=lambda: BucketCounts(_BUCKETS))
    started_s: float = 0.0
    begun_s: float | None = None
    failing: CdcError | None = None
    lsn: int = 0
    parked: int = 0
    held: tuple[str, ...] = ()
    asked_s: float | None = None
    answered_s: float | None = None
    away: str = ""
    stopped: str = ""
    cure: str = ""
    records: int = 0
    record_bytes: int = 0
    applied: int = 0
    deleted: int = 0
    stale: int = 0
    restarts: int = 0
    dead: Counter[str] = field(default_factory=Counter)

    @property
    def begun(self) -> bool:
        """Whether the store's watermark has been read."""
        return self.begun_s is not None

    def begin(self, now_s: float) -> None:
        """Its watermark was read. Again is nothing new."""
        if self.begun_s is None:
            self.begun_s = now_s

    def answered(self, now_s: float) -> None:
        """The store did what it was asked for."""
        self.answered_s, self.away = now_s, ""

    def trouble(self, now_s: float) -> str:
        """Why nothing can be written to it now, in words. Empty when nothing is known against it."""
        if self.stopped:
            return f"stopped: {self.stopped}"
        if self.away:
            return f"away: {self.away}"
        if self.asked_s is not None and now_s - self.asked_s > ANSWER_S:
            return f"it has not answered for {now_s - self.asked_s:.0f} s"
        return ""

    def up(self, now_s: float) -> bool:
        """Whether it answered lately, and takes writes."""
        if self.trouble(now_s) or (isinstance(self.failing, StoreAway) and self.behind()):
            return False
        if self.answered_s is None:
            return False
        # A call that goes on for a while is work: a large batch takes its time.
        return self.asked_s is not None or now_s - self.answered_s <= SILENCE_S

    def fill_left_s(self, stand: FillStand) -> float | None:
        """Seconds until a fill ends at its pace. Infinite where it does not go on, None where the pace is not known."""
        return left_s(stand.all - stand.read, self.pace.per_s())

    def mean_bytes(self) -> float | None:
        """Of the records that were read. None before the first."""
        return self.record_bytes / self.records if self.records else None


@dataclass
class LogFigures:
    """The log, as the watch beside the queries sees it: when it was last asked where it ends, and answered."""

    seen_s: float | None = None

    def known(self, now_s: float) -> bool:
        """Whether the log answered within the last 30 s. ``now_s``: of the monotonic clock."""
        return self.seen_s is not None and now_s - self.seen_s <= SILENCE_S


@dataclass(eq=False)
class Metrics:
    """The figures of one application. ``pipeline``: its name, a label of every figure."""

    clock: Clock = SYSTEM_CLOCK
    pipeline: str = ""
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    sinks: dict[str, SinkFigures] = field(default_factory=dict)
    log: LogFigures = field(default_factory=LogFigures)
    queries: AllQueries = field(default_factory=AllQueries)
    ticked_s: float = 0.0
    started_s: float = 0.0
    lacking: str = ""
    """What Spark lacks to work at all. Empty while it lacks nothing."""
    _fills: FillLines = field(default_factory=FillLines, init=False, repr=False)

    def __post_init__(self) -> None:
        self.ticked_s = self.started_s = self.clock.monotonic()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)

    def sink(self, name: str) -> SinkFigures:
        """A store's figures."""
        return self.sinks.setdefault(name, SinkFigures(started_s=self.started_s))

    def failed(self, sink: str, failure: CdcError) -> None:
        """A store stands still until the application is started anew."""
        figures = self.sink(sink)
        figures.stopped = failure.message
        figures.cure = f"{failure.hint}; then start cdc sink again" if failure.hint else "start cdc sink again"

    def tick(self) -> None:
        """The application's loop came round."""
        self.ticked_s = self.clock.monotonic()

    def looked(self, at_s: float) -> None:
        """The ends of the log are known. How far fills are is noted, for their pace."""
        self.log.seen_s = at_s
        for sink, figures in self.sinks.items():
            stand = figures.fill()
            if stand is None:
                figures.pace.forget()
            else:
                figures.pace.note(at_s, stand.read)
                self._fills.note(at_s, sink, stand, figures.fill_left_s(stand))

    def describe(self) -> list[Metric]:
        """Nothing is worked out for a registration."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The figures at this moment."""
        now_s = self.clock.monotonic()
        page = FigurePage(self.pipeline, SINKS)
        page.set("cdc_build_info", 1, version=__version__)
        page.set("cdc_sink_log_age_seconds", now_s - (self.started_s if self.log.seen_s is None else self.log.seen_s))
        for sink, figures in sorted(self.sinks.items()):
            self._show_store(page, sink, figures, now_s)
            self._show_lag(page, sink, figures)
            _show_work(page, sink, figures)
        self.queries.show(page, now_s)
        yield from page.families()

    def lag_s(self, figures: SinkFigures) -> float | None:
        """Age of the oldest record that the store lacks, in seconds. None where that is not known."""
        now_s = self.clock.monotonic()
        if not (figures.begun and figures.up(now_s) and self.log.known(now_s)):
            return None
        lacking = figures.lacks()
        if not lacking.known:
            return None
        if lacking.oldest_ms is None:
            return 0.0
        return max(0.0, self.clock.now_ns() / 1e9 - lacking.oldest_ms / 1e3)

    def document(self) -> dict[str, Any]:
        """The document that ``/status`` shows."""
        return {
            "pipeline": self.pipeline,
            "sinks": {sink: self._sink_document(figures) for sink, figures in sorted(self.sinks.items())},
        }

    def alive(self) -> tuple[bool, str]:
        """Would a restart help? Not because a store or a broker is away."""
        age_s = self.clock.monotonic() - self.ticked_s
        return age_s < TICK_S, f"the loop came round {age_s:.1f} s ago"

    def ready(self) -> tuple[bool, str]:
        """Do changes reach every store?"""
        now_s = self.clock.monotonic()
        wrong = [f"{sink}: {why}" for sink, figures in sorted(self.sinks.items()) if (why := _unready(figures, now_s))]
        if self.lacking:
            wrong.append(f"spark: {self.lacking}")
        if not self.log.known(now_s):
            wrong.append("log: Kafka has not said where it ends" + _ago(self.log.seen_s, now_s))
        return not wrong, "\n".join(wrong) or "feeding " + ", ".join(sorted(self.sinks))

    def serve(self, address: str, questions: Mapping[str, Question] | None = None) -> PagesServer | None:
        """Serve ``/metrics``, ``/livez``, ``/readyz``, ``/status`` and the questions by path at ``host:port``.

        Returns None, with a warning, when the address is in use. Raises ConfigError for an address that is not
        host:port.
        """
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise ConfigError(
                f"[spark] http_address: {address!r} is not host:port", hint='write it as "127.0.0.1:9465"'
            )
        pages: Mapping[str, Page] = {
            "/metrics": partial(exposition, self.registry),
            "/status": lambda: ("application/json", json.dumps(self.document()).encode()),
        }
        try:
            handler = answering(pages, self.alive, self.ready, questions)
            return PagesServer((host.strip("[]"), int(port)), handler, "sink-http")
        except (OSError, OverflowError) as error:
            log.warning("metrics_not_served", extra={"address": address, "reason": str(error)})
            return None

    def _trouble(self, figures: SinkFigures) -> tuple[str, str]:
        """Why changes do not reach a store, and what ends that. Empty where they do, and while it begins."""
        now_s = self.clock.monotonic()
        if not self.alive()[0]:
            return f"the loop of cdc sink has stood still for {now_s - self.ticked_s:.0f} s", "start cdc sink again"
        if trouble := figures.trouble(now_s):
            return trouble, figures.cure
        if figures.failing is not None and figures.behind():
            return f"its query fails: {figures.failing.message}", figures.failing.hint
        return (f"spark: {self.lacking}", "") if self.lacking else ("", "")

    def _show_store(self, page: FigurePage, sink: str, figures: SinkFigures, now_s: float) -> None:
        answered_s = figures.started_s if figures.answered_s is None else figures.answered_s
        page.set("cdc_sink_up", float(figures.up(now_s)), sink=sink)
        page.set("cdc_sink_stopped", float(bool(figures.stopped)), sink=sink)
        page.set("cdc_sink_answer_age_seconds", now_s - answered_s, sink=sink)
        page.known("cdc_sink_state_known", figures.begun and figures.up(now_s), sink=sink)
        page.set("cdc_sink_applied_lsn", figures.lsn, sink=sink)
        page.set("cdc_sink_parked_keys", figures.parked, sink=sink)
        page.set("cdc_sink_held_tables", len(figures.held), sink=sink)

    def _show_lag(self, page: FigurePage, sink: str, figures: SinkFigures) -> None:
        lag_s = self.lag_s(figures)
        page.known("cdc_sink_lag_known", lag_s is not None, sink=sink)
        page.set("cdc_sink_lag_seconds", lag_s, sink=sink)
        backlog, mean_bytes = figures.lacks().records, figures.mean_bytes()
        page.set("cdc_sink_backlog_records", backlog, sink=sink)
        empty = 0.0 if not backlog else None
        page.set("cdc_sink_backlog_bytes", empty if mean_bytes is None else backlog * mean_bytes, sink=sink)
        stand = figures.fill()
        if stand is not None:
            page.set("cdc_sink_fill_progress_ratio", stand.share, sink=sink)
            page.set("cdc_sink_fill_remaining_seconds", figures.fill_left_s(stand), sink=sink)

    def _sink_document(self, figures: SinkFigures) -> dict[str, Any]:
        recent = figures.freshness.recent(self.clock.monotonic())
        stand = figures.fill()
        trouble, cure = self._trouble(figures)
        return {
            "trouble": trouble,
            "cure": cure,
            "up": figures.up(self.clock.monotonic()),
            "lag_seconds": self.lag_s(figures),
            "freshness": recent._asdict() if recent is not None else None,
            "fill": _fill_document(stand, figures) if stand is not None else None,
        }


def _fill_document(stand: FillStand, figures: SinkFigures) -> dict[str, Any]:
    return {"share": stand.share, "remaining_seconds": finite(figures.fill_left_s(stand))}


def _show_work(page: FigurePage, sink: str, figures: SinkFigures) -> None:
    for origin, tally in figures.freshness.tallies.items():
        page.tally("cdc_sink_freshness_seconds", tally, sink=sink, origin=origin)
    page.tally("cdc_sink_batch_seconds", figures.batches, sink=sink)
    page.set("cdc_sink_records_total", figures.records, sink=sink)
    page.set("cdc_sink_record_bytes_total", figures.record_bytes, sink=sink)
    page.set("cdc_sink_applied_rows_total", figures.applied, sink=sink)
    page.set("cdc_sink_deleted_rows_total", figures.deleted, sink=sink)
    page.set("cdc_sink_stale_events_total", figures.stale, sink=sink)
    page.set("cdc_sink_restarts_total", figures.restarts, sink=sink)
    for why, count in sorted(figures.dead.items()):
        page.set("cdc_sink_dead_letters_total", count, sink=sink, why=why)


def _unready(figures: SinkFigures, now_s: float) -> str:
    trouble = figures.trouble(now_s)
    if trouble:
        return trouble
    if not figures.begun:
        return "it has not begun"
    if not figures.up(now_s):
        return "it has not answered" + _ago(figures.answered_s, now_s)
    if figures.failing is not None and figures.behind():
        return f"its query fails: {figures.failing.message}"
    return f"it holds {', '.join(figures.held)}" if figures.held else ""


def _ago(then_s: float | None, now_s: float) -> str:
    return " yet" if then_s is None else f" for {now_s - then_s:.0f} s"
