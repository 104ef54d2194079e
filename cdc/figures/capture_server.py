"""The small HTTP server that shows capture's figures and health, on loopback."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from cdc.figures.capture_metrics import TRANSACTION_ROWS, CaptureFigures, Health
from cdc.figures.declared_figures import CAPTURE
from cdc.figures.http_server import FigurePage, Page, PagesServer, answering, exposition
from cdc.figures.measures import STAGES, BucketCounts, SlotMarks, slot_stage
from cdc.process import __version__
from cdc.process.clock import Clock
from cdc.process.errors import ActiveError, CdcError, ConfigError
from cdc.record.position import Lsn
from cdc.record.server_facts import SlotFacts

_STATES = ("reserved", "extended", "unreserved", "lost")
_READINGS = ("waiting", "running", "paused")


class CaptureCollector:
    """The figures as metrics, under the names that the manual lists."""

    def __init__(self, figures: CaptureFigures, clock: Clock, pipeline: str = "") -> None:
        self._figures = figures
        self._clock = clock
        self._pipeline = pipeline

    def collect(self) -> Iterator[Metric]:
        """All metrics as they are at this moment. Times in seconds, sizes in bytes."""
        f, page, now_s = self._figures, FigurePage(self._pipeline, CAPTURE), self._clock.monotonic()
        page.set("cdc_up", float(f.flows(now_s)))
        page.set("cdc_build_info", 1, version=__version__)
        self._show_lag(page, now_s)
        self._show_work(page)
        for (table, op), count in sorted(f.events().items()):
            page.set("cdc_events_total", count, table=table, op=op)
        for what, count in sorted(f.outbox().items()):
            page.set("cdc_outbox_total", count, what=what)
        for (table, column), count in sorted(f.lost_values().items()):
            page.set("cdc_unavailable_values_total", count, table=table, column=column)
        for name, count in sorted(f.errors.items()):
            page.set("cdc_errors_total", count, **{"class": name})
        for table, count in f.waiting().items():
            page.set("cdc_waiting_records", count, table=table)
        for table, one in f.asides().items():
            page.set("cdc_table_state", 1, table=table, state=one.state.value, cause=one.cause.value)
        self._show_readings(page)
        self._show_slot(page, now_s)
        yield from page.families()

    def _show_lag(self, page: FigurePage, now_s: float) -> None:
        f = self._figures
        lag_s = f.lag_s(self._clock)
        seen = [one for one in (f.noted_s, f.looked_s) if one is not None]
        page.known("cdc_source_lag_known", lag_s is not None)
        page.set("cdc_source_lag_seconds", lag_s)
        page.set("cdc_source_lag_age_seconds", max(0.0, now_s - min(seen)) if len(seen) == 2 else now_s - f.started_s)
        end = max(f.wal_lsn or 0, f.received_lsn)
        stages = {
            "received": f.received_lsn,
            "produced": f.produced_lsn,
            "acked": f.acked_lsn,
            "flushed": f.flushed_lsn,
        }
        for stage, lsn in stages.items():
            page.set("cdc_source_lag_bytes", max(0, end - lsn) if lsn else 0, stage=stage)
        for origin, tally in f.freshness.tallies.items():
            page.tally("cdc_freshness_seconds", tally, origin=origin)
        page.set("cdc_feedback_age_seconds", now_s - (f.started_s if f.feedback_s is None else f.feedback_s))

    def _show_work(self, page: FigurePage) -> None:
        f, flow = self._figures, self._figures.flow()
        page.set("cdc_transactions_total", f.transactions)
        rows = BucketCounts(TRANSACTION_ROWS)
        rows.counts, rows.total = list(f.transaction_buckets), float(f.transaction_rows)
        page.tally("cdc_transaction_rows", rows)
        page.set("cdc_records_total", flow.records)
        page.set("cdc_record_bytes_total", flow.value_bytes)
        page.set("cdc_reselected_rows_total", flow.reselected)
        page.set("cdc_reconnects_total", f.reconnects)
        page.set("cdc_queue_records", flow.queued)

    def _show_readings(self, page: FigurePage) -> None:
        f, now = self._figures, self._figures.rereads()
        for state in _READINGS:
            page.set("cdc_reread_requests", now.states.get(state, 0), state=state)
        page.set("cdc_reread_windows", now.windows)
        page.set("cdc_reread_rows_total", now.rows)
        page.set("cdc_reread_left_out_rows_total", now.left_out)
        page.set("cdc_reread_differing_rows_total", now.differing)
        for table, share in sorted(now.shares.items()):
            page.set("cdc_reread_progress_ratio", share, table=table)
            stages = f.readings.get(table)
            page.set("cdc_reread_remaining_seconds", stages.left_s() if stages is not None else None, table=table)
        page.set("cdc_snapshot_progress_ratio", f.snapshot.share)
        page.set("cdc_snapshot_remaining_seconds", f.snapshot.left_s())

    def _show_slot(self, page: FigurePage, now_s: float) -> None:
        f = self._figures
        slot = f.slot
        page.known("cdc_slot_known", slot is not None and f.knows_server(now_s))
        page.set("cdc_slot_look_age_seconds", now_s - (f.started_s if f.looked_s is None else f.looked_s))
        if slot is None:
            return
        page.set("cdc_slot_active", float(slot.active_pid is not None))
        page.set("cdc_slot_retained_wal_bytes", slot.retained_bytes)
        page.set("cdc_slot_safe_wal_bytes", slot.safe_wal_bytes)
        page.set("cdc_slot_loss_seconds", f.loss_s())
        for name in _STATES:
            page.set("cdc_slot_wal_status", float(slot.wal_status == name), status=name)
        stage = self._stage(slot)
        for name in STAGES if stage else ():
            page.set("cdc_slot_held_by", float(stage == name), stage=name)
        page.set("cdc_slot_xmin_age_transactions", slot.xmin_age)
        page.set("cdc_slot_catalog_xmin_age_transactions", slot.catalog_xmin_age)

    def _stage(self, slot: SlotFacts) -> str:
        """The stage that keeps the slot's WAL. Empty where that is not known."""
        f = self._figures
        if slot.restart_lsn is None or slot.confirmed_flush_lsn is None or f.wal_lsn is None:
            return ""
        marks = SlotMarks(f.wal_lsn, slot.restart_lsn, slot.confirmed_flush_lsn, slot.active_pid is not None)
        waits = f.waiting_since_s is not None
        return slot_stage(marks, received_lsn=f.received_lsn, held_lsn=f.acked_lsn, waits=waits)


class MetricsServer:
    """``/metrics``, ``/livez``, ``/readyz`` and ``/status`` (JSON) on one address. No row data anywhere."""

    def __init__(self, address: str, figures: CaptureFigures, clock: Clock, pipeline: str = "") -> None:
        """Listen at ``address``, host:port. ActiveError where the capture of ``pipeline`` does already, ConfigError
        where the address is taken by something else or is none."""
        self.registry = CollectorRegistry()
        self.registry.register(CaptureCollector(figures, clock, pipeline))
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
            self._server = PagesServer((host.strip("[]") or "127.0.0.1", int(port)), handler, "cdc-http")
        except (OSError, ValueError, OverflowError) as error:
            raise address_taken(address, pipeline, getattr(error, "strerror", None) or str(error)) from None
        self.address = f"{host}:{self._server.port}"

    def close(self) -> None:
        """Answer no more requests."""
        self._server.close()


def status_document(figures: CaptureFigures, clock: Clock, pipeline: str) -> dict[str, Any]:
    """The document that ``/status`` shows."""
    flow, lag_s = figures.flow(), figures.lag_s(clock)
    fresh = figures.freshness.recent(clock.monotonic())
    trouble, cure = Health(figures, clock).trouble()
    return {
        "pipeline": pipeline,
        "phase": figures.phase,
        "waiting_for": figures.waiting_for,
        "trouble": trouble,
        "cure": cure,
        "lag_seconds": round(lag_s, 3) if lag_s is not None else None,
        "freshness": fresh._asdict() if fresh is not None else None,
        "received_lsn": str(Lsn(figures.received_lsn)),
        "position": str(Lsn(figures.flushed_lsn)),
        "transactions": figures.transactions,
        "records": flow.records,
        "queued_records": flow.queued,
        "reconnects": figures.reconnects,
    }


_TIMEOUT_S = 2.0
_LONGEST_BYTES = 65_536


def address_taken(address: str, pipeline: str, why: str) -> CdcError:
    """The error for an ``[capture] http_address`` that cannot be listened on.

    ``why``: the system's words. ActiveError when the ``cdc run`` of ``pipeline`` answers there, else ConfigError.
    """
    there = _pipeline_at(address)
    if there is not None and there == pipeline:
        return ActiveError(
            f"cdc run of the pipeline {pipeline} runs already: it answers at [capture] http_address {address}",
            hint="one capture feeds a pipeline; stop the other one first",
        )
    whose = f": cdc run of the pipeline {there} has it" if there else f": {why}"
    return ConfigError(
        f"[capture] http_address {address} cannot be listened on{whose}",
        hint='name a free one, as "127.0.0.1:9470", or "" for none',
    )


def _pipeline_at(address: str) -> str | None:
    """The pipeline whose capture answers there. None where something else does, or nothing."""
    try:
        with closing(http.client.HTTPConnection(address, timeout=_TIMEOUT_S)) as connection:
            connection.request("GET", "/status")
            document = json.loads(connection.getresponse().read(_LONGEST_BYTES))
    except (OSError, ValueError, http.client.HTTPException):
        return None
    # The sinks' page names the pipeline as well.
    found = document.get("pipeline") if isinstance(document, dict) and "phase" in document else None
    return found if isinstance(found, str) else None
