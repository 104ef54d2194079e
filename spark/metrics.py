"""What the sinks say of themselves to Prometheus; one registry per application."""

from __future__ import annotations

import logging
from threading import Thread
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from cdc.errors import ConfigError

log = logging.getLogger(__name__)
_SINK = ("sink",)
_BUCKETS = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.8, 1.5, 3, 10, 30, 120)


class Metrics:
    """``cdc_sink_*``, base units seconds and records."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        r = self.registry
        self.records = Counter("cdc_sink_records_total", "Records read from the topics.", _SINK, registry=r)
        self.applied = Counter("cdc_sink_applied_total", "Rows written to the store.", _SINK, registry=r)
        self.deleted = Counter("cdc_sink_deleted_total", "Deletes written to the store.", _SINK, registry=r)
        self.stale = Counter(
            "cdc_stale_events_total", "Events older than the store, or below a floor.", _SINK, registry=r
        )
        self.dead = Counter("cdc_deadletter_total", "Records sent to the dead letters.", ("sink", "why"), registry=r)
        self.batch = Histogram(
            "cdc_sink_batch_seconds", "One batch, read to watermark.", _SINK, registry=r, buckets=_BUCKETS
        )
        self.age = Gauge("cdc_sink_lag_seconds", "Age of the newest record that the store shows.", _SINK, registry=r)
        self.behind = Gauge("cdc_sink_lag_records", "Records of the log that the store lacks.", _SINK, registry=r)
        self.lsn = Gauge("cdc_sink_applied_lsn", "The LSN below which the store shows every change.", _SINK, registry=r)
        self.up = Gauge("cdc_sink_up", "Whether the store takes writes.", _SINK, registry=r)
        self.parked = Gauge("cdc_sink_parked_keys", "Keys that wait behind a dead letter.", _SINK, registry=r)
        self.held = Gauge("cdc_sink_held_tables", "Tables whose newest shape the store cannot take.", _SINK, registry=r)
        self.restarts = Counter("cdc_sink_restarts_total", "Starts of a query after its first.", _SINK, registry=r)

    def serve(self, address: str) -> MetricsServer | None:
        """``/metrics`` at ``host:port``; None, with a warning, when somebody else has the port."""
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise ConfigError(
                f"[spark] http_address: {address!r} is not host:port", hint='write it as "127.0.0.1:9465"'
            )
        try:
            server, thread = start_http_server(int(port), addr=host, registry=self.registry)
        except OSError as error:
            log.warning("metrics_not_served", extra={"address": address, "reason": error.strerror})
            return None
        return MetricsServer(server, thread)


class MetricsServer:
    """The thread that answers ``/metrics``."""

    def __init__(self, server: WSGIServer, thread: Thread) -> None:
        self._server = server
        self._thread = thread

    @property
    def port(self) -> int:
        return int(self._server.server_port)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
