"""What capture says of itself: figures, health, and the small HTTP server that shows them on loopback.

The loop writes plain attributes of :class:`CaptureFigures`. They become metrics only when somebody asks.
"""

from __future__ import annotations

import json
import logging
import math
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from http.server import ThreadingHTTPServer
from itertools import accumulate
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from cdc.answering import Page, answering, exposition
from cdc.aside import AsideState
from cdc.checks.facts import SlotFacts
from cdc.clock import Clock
from cdc.lsn import Lsn
from cdc.occupant import address_taken
from cdc.version import __version__

log = logging.getLogger(__name__)

TICK_S = 60.0
"""A loop that has not come round for so long is stuck."""
STALL_S = 30.0
"""A broker that owes an answer for so long is not there."""
_STATES = ("reserved", "extended", "unreserved", "lost")


TRANSACTION_ROWS = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
"""Upper bounds of the buckets of cdc_transaction_rows."""


class Flow(NamedTuple):
    """What the session has handed over: records, bytes of their values, records unanswered, rows re-selected."""

    records: int = 0
    value_bytes: int = 0
    queued: int = 0
    reselected: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RereadFigures:
    """Tables that are read again. ``states``: how many requests wait, run or are paused. ``windows``: parts being read.
    ``rows`` written and ``left_out`` because the stream had newer ones. ``shares``: by table, how much is done, 0 to 1.
    """

    states: Mapping[str, int] = field(default_factory=dict)
    windows: int = 0
    rows: int = 0
    left_out: int = 0
    shares: Mapping[str, float] = field(default_factory=dict)


@dataclass
class CaptureFigures:
    """Written by the loop, read by whoever asks. Times in seconds of the monotonic clock unless said otherwise.

    ``phase``: starting, waiting, streaming, reconnecting or stopping. ``waiting_for``: why, in words.
    ``commit_us``: the commit time of the newest transaction the broker holds, since 1970. ``noted_s``: when the loop
    last wrote down where stream and broker are. ``looked_s``: when the server last answered for slot and WAL.
    ``stuck_since_s``: since when the source is ahead and nothing moves. ``not_followed``: captured tables that the
    stream says nothing of, and why.
    ``waiting``: records of each table that waits. ``waiting_since_s``: since when one does. ``asides``: by table, what
    is noted of those that are set aside or wait.
    """

    phase: str = "starting"
    waiting_for: str = ""
    ticked_s: float = 0.0
    noted_s: float | None = None
    looked_s: float | None = None
    feedback_s: float | None = None
    stalled_since_s: float | None = None
    received_lsn: int = 0
    produced_lsn: int = 0
    acked_lsn: int = 0
    flushed_lsn: int = 0
    commit_us: int | None = None
    caught_up: bool = False
    transactions: int = 0
    transaction_rows: int = 0
    transaction_buckets: list[int] = field(default_factory=lambda: [0] * (len(TRANSACTION_ROWS) + 1))
    reconnects: int = 0
    flow: Callable[[], Flow] = Flow
    rereads: Callable[[], RereadFigures] = RereadFigures
    errors: Counter[str] = field(default_factory=Counter)
    events: Callable[[], Counter[tuple[str, str]]] = Counter
    lost_values: Callable[[], Counter[tuple[str, str]]] = Counter
    waiting: Callable[[], Mapping[str, int]] = dict
    asides: Callable[[], Mapping[str, AsideState]] = dict
    waiting_since_s: float | None = None
    waiting_ready_s: float = 600.0
    slot: SlotFacts | None = None
    wal_lsn: int | None = None
    stuck_since_s: float | None = None
    not_followed: Mapping[str, str] = field(default_factory=dict)

    def committed(self, rows: int) -> None:
        """Count a transaction."""
        self.transactions += 1
        self.transaction_rows += rows
        self.transaction_buckets[bisect_left(TRANSACTION_ROWS, rows)] += 1

    def flows(self, now_s: float) -> bool:
        """Whether what is written here of stream and broker is so now (hazard H110)."""
        return self.phase == "streaming" and self.noted_s is not None and now_s - self.noted_s <= STALL_S

    def looked(self, now_s: float) -> bool:
        """Whether what is written here of slot and WAL is so now."""
        return self.looked_s is not None and now_s - self.looked_s <= STALL_S

    def lag_s(self, now_ns: int) -> float:
        """How old the newest change of the source is that the log lacks. 0 when it lacks none."""
        if self.caught_up or self.commit_us is None:
            return 0.0
        return max(0.0, now_ns / 1e9 - self.commit_us / 1e6)


class Health:
    """Two questions. Alive: would a restart help? Ready: do changes flow? Neither asks a server anything."""

    def __init__(self, figures: CaptureFigures, clock: Clock) -> None:
        self._figures = figures
        self._clock = clock

    def alive(self) -> tuple[bool, str]:
        """Not while the loop stands still. A Postgres or Kafka that is down is no reason: it would restart for ever."""
        age = self._clock.monotonic() - self._figures.ticked_s
        return age < TICK_S, f"the loop came round {age:.1f} s ago"

    def ready(self) -> tuple[bool, str]:
        """Do changes of every table flow? Returns a verdict, and a sentence that says what is in the way."""
        figures = self._figures
        if figures.phase != "streaming":
            return False, f"{figures.phase} {figures.waiting_for}".strip()
        stalled = figures.stalled_since_s
        if stalled is not None and self._clock.monotonic() - stalled > STALL_S:
            return False, f"the broker has not answered for {self._clock.monotonic() - stalled:.0f} s"
        if figures.slot is not None and figures.slot.wal_status == "lost":
            return False, "the slot is lost"
        stuck = figures.stuck_since_s
        if stuck is not None and figures.waiting_since_s is None:
            behind = max(0, (figures.wal_lsn or 0) - figures.flushed_lsn)
            return False, f"no progress for {self._clock.monotonic() - stuck:.0f} s, {behind:,} bytes behind the source"
        tables = self._tables()
        return not tables, tables or "streaming"

    def _tables(self) -> str:
        """What is wrong with single tables. Empty for nothing."""
        figures, now_s = self._figures, self._clock.monotonic()
        wrong = sorted(figures.not_followed.values())
        since_s = figures.waiting_since_s
        if since_s is not None and now_s - since_s > figures.waiting_ready_s:
            wrong.append(f"{', '.join(figures.waiting())} has waited for {now_s - since_s:.0f} s: is it locked?")
        since_ms = self._clock.now_ns() // 1_000_000 - figures.waiting_ready_s * 1000
        for table, state in figures.asides().items():
            if state.due and state.since_ms <= since_ms and table not in figures.not_followed:
                wrong.append(state.sentence())
        return "; ".join(wrong)


class CaptureCollector:
    """The figures as metrics, under the names that the manual lists."""

    def __init__(self, figures: CaptureFigures, clock: Clock) -> None:
        self._figures = figures
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        """All metrics as they are at this moment. Times in seconds, sizes in bytes."""
        f, now_s = self._figures, self._clock.monotonic()
        yield _gauge("cdc_up", "Whether changes flow", float(f.flows(now_s)))
        info = GaugeMetricFamily("cdc_build_info", "Version of headrace", labels=["version"])
        info.add_metric([__version__], 1)
        yield info
        lag_s = f.lag_s(self._clock.now_ns()) if f.flows(now_s) else math.nan
        yield _gauge("cdc_source_lag_seconds", "Age of the newest transaction held", lag_s)
        yield _gauge("cdc_source_lag_age_seconds", "When the lag was last known", _age_s(f.noted_s, now_s))
        yield self._lag_bytes(now_s)
        yield _counter("cdc_transactions_total", "Transactions seen", f.transactions)
        yield self._transaction_rows()
        flow = f.flow()
        yield _counter("cdc_records_total", "Records handed to the broker, tombstones too", flow.records)
        yield _counter("cdc_bytes_total", "Bytes of their values", flow.value_bytes)
        yield _counter("cdc_reselected_rows_total", "Rows asked for unchanged values", flow.reselected)
        yield _counter("cdc_reconnects_total", "Times the stream was opened again", f.reconnects)
        yield _gauge("cdc_queue_records", "Records the broker has not answered for", flow.queued)
        if f.feedback_s is not None:
            at = self._clock.now_ns() / 1e9 - (self._clock.monotonic() - f.feedback_s)
            yield _gauge("cdc_last_feedback_timestamp_seconds", "When Postgres last heard from us", at)
        yield _labelled("cdc_events_total", "Events by table and op", ["table", "op"], f.events())
        yield _labelled("cdc_unavailable_values_total", "Values written as null", ["table", "column"], f.lost_values())
        errors = CounterMetricFamily("cdc_errors_total", "What went wrong, by class", labels=["class"])
        for name, count in f.errors.items():
            errors.add_metric([name], count)
        yield errors
        waiting = GaugeMetricFamily("cdc_waiting_records", "Records of tables that wait", labels=["table"])
        for table, count in f.waiting().items():
            waiting.add_metric([table], count)
        yield waiting
        states = GaugeMetricFamily(
            "cdc_table_state", "Tables that are not followed as the others are", labels=["table", "state", "cause"]
        )
        for table, one in f.asides().items():
            states.add_metric([table, one.state.value, one.cause.value], 1)
        yield states
        yield from self._rereads()
        yield from self._slot()

    def _rereads(self) -> Iterator[Metric]:
        now = self._figures.rereads()
        tables = GaugeMetricFamily("cdc_reread_requests", "Tables or parts to be read again", labels=["state"])
        for state in ("waiting", "running", "paused"):
            tables.add_metric([state], now.states.get(state, 0))
        yield tables
        yield _gauge("cdc_reread_windows", "Windows open in the stream", now.windows)
        yield _counter("cdc_reread_rows_total", "Rows read again and written", now.rows)
        yield _counter("cdc_reread_left_out_total", "Rows read again that the stream had newer", now.left_out)
        share = GaugeMetricFamily("cdc_reread_progress_ratio", "How much of a table is read again", labels=["table"])
        for table, done in sorted(now.shares.items()):
            share.add_metric([table], done)
        yield share

    def _lag_bytes(self, now_s: float) -> Metric:
        f = self._figures
        known = f.flows(now_s) and (f.wal_lsn is None or f.looked(now_s))
        lag = GaugeMetricFamily("cdc_lag_bytes", "WAL behind the source, by stage", labels=["stage"])
        end = max(f.wal_lsn or 0, f.received_lsn)
        stages = {
            "received": f.received_lsn,
            "produced": f.produced_lsn,
            "acked": f.acked_lsn,
            "flushed": f.flushed_lsn,
        }
        for stage, lsn in stages.items():
            lag.add_metric([stage], (max(0, end - lsn) if lsn else 0) if known else math.nan)
        return lag

    def _transaction_rows(self) -> Metric:
        f = self._figures
        bounds = [*(str(float(bound)) for bound in TRANSACTION_ROWS), "+Inf"]
        buckets = list(zip(bounds, accumulate(f.transaction_buckets), strict=True))
        family = HistogramMetricFamily("cdc_transaction_rows", "Rows of a transaction")
        family.add_metric([], buckets, sum_value=f.transaction_rows)
        return family

    def _slot(self) -> Iterator[Metric]:
        slot = self._figures.slot
        if slot is None:
            return
        now_s = self._clock.monotonic()
        known = self._figures.looked(now_s)

        def so(value: float) -> float:
            return value if known else math.nan

        yield _gauge("cdc_slot_active", "Whether the slot is in use", so(float(slot.active_pid is not None)))
        yield _gauge("cdc_slot_retained_wal_bytes", "WAL the server keeps for the slot", so(slot.retained_bytes or 0))
        if slot.safe_wal_bytes is not None:
            yield _gauge("cdc_slot_safe_wal_bytes", "WAL that may still be written safely", so(slot.safe_wal_bytes))
        status = GaugeMetricFamily("cdc_slot_wal_status", "State of the slot's WAL", labels=["status"])
        for name in _STATES:
            status.add_metric([name], so(float(slot.wal_status == name)))
        yield status
        yield _gauge("cdc_slot_age_seconds", "When the slot was last looked at", _age_s(self._figures.looked_s, now_s))


class MetricsServer:
    """``/metrics``, ``/livez``, ``/readyz`` and ``/status`` (JSON) on one address. No row data anywhere."""

    def __init__(self, address: str, figures: CaptureFigures, clock: Clock, pipeline: str = "") -> None:
        """Listen at ``address``, host:port. ActiveError where the capture of ``pipeline`` does already, ConfigError
        where the address is taken by something else or is none."""
        self.registry = CollectorRegistry()
        self.registry.register(CaptureCollector(figures, clock))
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        host, _, port = address.rpartition(":")
        document = partial(status_document, figures, clock, pipeline)
        pages: dict[str, Page] = {
            "/metrics": partial(exposition, self.registry),
            "/status": lambda: ("application/json", json.dumps(document()).encode()),
        }
        health = Health(figures, clock)
        handler = answering(pages, health.alive, health.ready)
        try:
            self._server = ThreadingHTTPServer((host.strip("[]") or "127.0.0.1", int(port)), handler)
        except (OSError, ValueError, OverflowError) as error:
            raise address_taken(address, pipeline, getattr(error, "strerror", None) or str(error)) from None
        self._server.daemon_threads = True
        self.address = f"{host}:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, name="cdc-http", daemon=True).start()

    def close(self) -> None:
        """Answer no more requests."""
        self._server.shutdown()
        self._server.server_close()


def status_document(figures: CaptureFigures, clock: Clock, pipeline: str) -> dict[str, Any]:
    """What ``/status`` shows."""
    flow = figures.flow()
    return {
        "pipeline": pipeline,
        "phase": figures.phase,
        "waiting_for": figures.waiting_for,
        "lag_seconds": round(figures.lag_s(clock.now_ns()), 3) if figures.flows(clock.monotonic()) else None,
        "received_lsn": str(Lsn(figures.received_lsn)),
        "position": str(Lsn(figures.flushed_lsn)),
        "transactions": figures.transactions,
        "records": flow.records,
        "queued_records": flow.queued,
        "reconnects": figures.reconnects,
    }


def _age_s(then_s: float | None, now_s: float) -> float:
    """Seconds since. NaN for never."""
    return math.nan if then_s is None else now_s - then_s


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)


def _labelled(name: str, text: str, labels: list[str], counts: Counter[tuple[str, str]]) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels)
    for (first, second), count in sorted(counts.items()):
        family.add_metric([first, second], count)
    return family
