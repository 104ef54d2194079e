"""What the sinks say of themselves to Prometheus, and whether they are well. One registry per application.

Counters count as things happen. What can be other at any moment is worked out when somebody asks: a store or a broker
that says nothing sets no figure, and one that keeps its last value would look well for ever (hazard H110). What is not
known is NaN, and the age of the last answer stands beside it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from http.server import ThreadingHTTPServer
from threading import Thread

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric

from cdc.answering import Page, answering, exposition
from cdc.clock import SYSTEM_CLOCK, Clock
from cdc.errors import CdcError, ConfigError
from sinks.port import StoreAway
from spark.apply import Outcome

log = logging.getLogger(__name__)
_SINK = ("sink",)
_BUCKETS = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.8, 1.5, 3, 10, 30, 120)
ANSWER_S = 60.0
"""A call into a store that takes longer is no answer."""
SILENCE_S = 30.0
"""What was last heard longer ago is not known any more. At rest a store is asked every 2 s, the log every 5 s."""
TICK_S = 60.0
"""A loop that has not come round for so long is stuck."""


@dataclass
class SinkFigures:
    """One store, written as it goes. Times in seconds of the monotonic clock, unless said otherwise.

    ``behind``: records that the store lacks, by the ends of the log as last seen. ``level_s``: when it lacked none.
    ``newest_ms``: Kafka's time of the newest record applied, ms since 1970. ``asked_s``: since when a call goes on.
    ``begun_s``: when its watermark was first read. None before. ``failing``: what ended its query, though the store may
    answer whoever asks. None again when a slice was applied, or when it lacks nothing.
    """

    behind: Callable[[], int] = lambda: 0
    begun_s: float | None = None
    failing: CdcError | None = None
    lsn: int = 0
    parked: int = 0
    held: tuple[str, ...] = ()
    newest_ms: int = 0
    level_s: float | None = None
    asked_s: float | None = None
    answered_s: float | None = None
    away: str = ""
    stopped: str = ""

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

    def up(self, now_s: float) -> float:
        """1 or 0. NaN when it was not asked lately."""
        if self.trouble(now_s) or (isinstance(self.failing, StoreAway) and self.behind()):
            return 0.0
        return 1.0 if self.answered_s is not None and now_s - self.answered_s <= SILENCE_S else math.nan


@dataclass
class LogFigures:
    """The log, as the watch beside the queries sees it: when it was last asked where it ends, and answered."""

    seen_s: float | None = None

    def known(self, now_s: float) -> bool:
        """Whether the log answered within the last 30 s. ``now_s``: of the monotonic clock."""
        return self.seen_s is not None and now_s - self.seen_s <= SILENCE_S


@dataclass(eq=False)
class Metrics:
    """``cdc_sink_*``, base units seconds and records."""

    clock: Clock = SYSTEM_CLOCK
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    sinks: dict[str, SinkFigures] = field(default_factory=dict)
    log: LogFigures = field(default_factory=LogFigures)
    ticked_s: float = 0.0

    def __post_init__(self) -> None:
        r = self.registry
        self.ticked_s = self.clock.monotonic()
        self.records = Counter("cdc_sink_records_total", "Records read from the topics.", _SINK, registry=r)
        self.applied = Counter("cdc_sink_applied_total", "Rows written to the store.", _SINK, registry=r)
        self.deleted = Counter("cdc_sink_deleted_total", "Deletes written to the store.", _SINK, registry=r)
        self.stale = Counter(
            "cdc_stale_events_total", "Events older than the store, or below a floor.", _SINK, registry=r
        )
        self.dead = Counter("cdc_deadletter_total", "Records sent to the dead letters.", ("sink", "why"), registry=r)
        self.batch = Histogram(
            "cdc_sink_batch_seconds", "One slice of a batch, read to watermark.", _SINK, registry=r, buckets=_BUCKETS
        )
        self.restarts = Counter("cdc_sink_restarts_total", "Starts of a query after its first.", _SINK, registry=r)
        self.registry.register(self)

    def sink(self, name: str) -> SinkFigures:
        """A store's figures."""
        return self.sinks.setdefault(name, SinkFigures())

    def failed(self, sink: str, failure: CdcError) -> None:
        """A store stands still until the application is started anew."""
        self.sink(sink).stopped = failure.message

    def count(self, sink: str, outcome: Outcome) -> None:
        """A slice of a batch is in the store: count its records, and what became of them."""
        self.records.labels(sink).inc(outcome.records)
        self.applied.labels(sink).inc(outcome.applied.applied)
        self.deleted.labels(sink).inc(outcome.applied.deleted)
        self.stale.labels(sink).inc(outcome.applied.stale)
        for letter in outcome.letters:
            self.dead.labels(sink, letter.why.value).inc()
        figures = self.sink(sink)
        # A record's time is its producer's word: one ahead of the clock would have the store level for as long.
        figures.newest_ms = max(figures.newest_ms, min(outcome.newest_ms, self.clock.now_ns() // 1_000_000))
        figures.failing = None

    def tick(self) -> None:
        """The application's loop came round."""
        self.ticked_s = self.clock.monotonic()

    def describe(self) -> list[Metric]:
        """Nothing is worked out for a registration."""
        return []

    def collect(self) -> Iterator[Metric]:
        """What is so at this moment."""
        now_s = self.clock.monotonic()
        for name, text, value in (
            ("cdc_sink_lag_seconds", "How far behind the log's end the store is.", self._lag_s),
            ("cdc_sink_lag_records", "Records of the log that the store lacks.", self._lag_records),
            ("cdc_sink_applied_lsn", "The LSN below which the store shows every change.", _lsn),
            ("cdc_sink_up", "Whether the store takes writes.", SinkFigures.up),
            ("cdc_sink_answer_age_seconds", "When the store last answered.", _answer_age_s),
            ("cdc_sink_parked_keys", "Keys that wait behind a dead letter.", _parked),
            ("cdc_sink_held_tables", "Tables that the store cannot take.", _held),
            ("cdc_sink_stopped", "Whether the store stands still until the next start.", _stopped),
        ):
            family = GaugeMetricFamily(name, text, labels=_SINK)
            for sink, figures in sorted(self.sinks.items()):
                family.add_metric([sink], value(figures, now_s))
            yield family
        seen_s = self.log.seen_s
        age_s = math.nan if seen_s is None else now_s - seen_s
        yield GaugeMetricFamily("cdc_sink_log_age_seconds", "When the log last said where it ends.", value=age_s)

    def alive(self) -> tuple[bool, str]:
        """Would a restart help? Not because a store or a broker is away."""
        age_s = self.clock.monotonic() - self.ticked_s
        return age_s < TICK_S, f"the loop came round {age_s:.1f} s ago"

    def ready(self) -> tuple[bool, str]:
        """Do changes reach every store?"""
        now_s = self.clock.monotonic()
        wrong = [f"{sink}: {why}" for sink, figures in sorted(self.sinks.items()) if (why := _unready(figures, now_s))]
        if not self.log.known(now_s):
            wrong.append("log: Kafka has not said where it ends" + _ago(self.log.seen_s, now_s))
        return not wrong, "\n".join(wrong) or "feeding " + ", ".join(sorted(self.sinks))

    def serve(self, address: str) -> SinkMetricsServer | None:
        """``/metrics``, ``/livez``, ``/readyz`` at ``host:port``. None, with a warning, when somebody else has it."""
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise ConfigError(
                f"[spark] http_address: {address!r} is not host:port", hint='write it as "127.0.0.1:9465"'
            )
        try:
            return SinkMetricsServer((host.strip("[]"), int(port)), self)
        except (OSError, OverflowError) as error:
            log.warning("metrics_not_served", extra={"address": address, "reason": str(error)})
            return None

    def _lag_records(self, figures: SinkFigures, now_s: float) -> float:
        return float(figures.behind()) if figures.begun and self.log.known(now_s) else math.nan

    def _lag_s(self, figures: SinkFigures, now_s: float) -> float:
        """0 for a store that lacks nothing, else since when it has, or how old its newest record is. Since it began
        where neither was seen."""
        behind = self._lag_records(figures, now_s)
        if not behind > 0:
            return behind
        ages = []
        if figures.level_s is not None:
            ages.append(now_s - figures.level_s)
        if figures.newest_ms:
            ages.append(self.clock.now_ns() / 1e9 - figures.newest_ms / 1e3)
        since_s = now_s if figures.begun_s is None else figures.begun_s
        return max(0.0, min(ages, default=now_s - since_s))


def _unready(figures: SinkFigures, now_s: float) -> str:
    trouble = figures.trouble(now_s)
    if trouble:
        return trouble
    if not figures.begun:
        return "it has not begun"
    if math.isnan(figures.up(now_s)) and figures.asked_s is None:
        return "it has not answered" + _ago(figures.answered_s, now_s)
    if figures.failing is not None and figures.behind():
        return f"its query fails: {figures.failing.message}"
    return f"it holds {', '.join(figures.held)}" if figures.held else ""


def _ago(then_s: float | None, now_s: float) -> str:
    return " yet" if then_s is None else f" for {now_s - then_s:.0f} s"


def _lsn(figures: SinkFigures, _now_s: float) -> float:
    return float(figures.lsn) if figures.begun else math.nan


def _parked(figures: SinkFigures, _now_s: float) -> float:
    return float(figures.parked) if figures.begun else math.nan


def _held(figures: SinkFigures, _now_s: float) -> float:
    return float(len(figures.held)) if figures.begun else math.nan


def _stopped(figures: SinkFigures, _now_s: float) -> float:
    return float(bool(figures.stopped))


def _answer_age_s(figures: SinkFigures, now_s: float) -> float:
    return math.nan if figures.answered_s is None else now_s - figures.answered_s


class SinkMetricsServer:
    """The thread that answers ``/metrics``, ``/livez`` and ``/readyz``. No row data anywhere."""

    def __init__(self, address: tuple[str, int], metrics: Metrics) -> None:
        pages: Mapping[str, Page] = {"/metrics": partial(exposition, metrics.registry)}
        self._server = ThreadingHTTPServer(address, answering(pages, metrics.alive, metrics.ready))
        self._server.daemon_threads = True
        self._thread = Thread(target=self._server.serve_forever, name="sink-http", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that it answers on, also where any was asked for."""
        return int(self._server.server_port)

    def close(self) -> None:
        """Answer no more requests, and end the thread."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
