"""The small HTTP servers that show figures and health: their pages, ``/livez`` and ``/readyz``, in Prometheus's
text."""

from __future__ import annotations

import json
import logging
import select
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET6
from threading import Thread
from typing import Any, Literal, NamedTuple, Protocol
from urllib.parse import parse_qsl

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from cdc.figures.measures import BucketCounts
from cdc.process.errors import ConfigError
from cdc.process.untrusted_text import quoted

log = logging.getLogger(__name__)

Page = Callable[[], tuple[str, bytes]]
"""A page's media type and body at this moment."""
Verdict = Callable[[], tuple[bool, str]]
"""Whether all is well, and a sentence."""


class Reply(NamedTuple):
    """The answer to a question: an HTTP status and a document, sent as JSON."""

    status: HTTPStatus
    document: Mapping[str, Any]


Question = Callable[[Mapping[str, str], Callable[[], bool]], Reply]
"""Answers the parameters of a request, each of which came once. It may take its time: each request has a thread. The
second argument says whether the client has left meanwhile."""


class RequestHandler(BaseHTTPRequestHandler):
    """Requests are logged at DEBUG alone: a probe comes every few seconds."""

    pages: Mapping[str, Page]
    verdicts: Mapping[str, Verdict]
    questions: Mapping[str, Question]

    def do_GET(self) -> None:
        """Answer a page, a verdict, a question, or 404 with the paths that exist."""
        path, _, query = self.path.partition("?")
        if path in self.questions:
            status, document = self._asked(self.questions[path], query)
            self._answer(status, "application/json", json.dumps(document).encode() + b"\n")
        elif path in self.pages:
            self._answer(HTTPStatus.OK, *self.pages[path]())
        elif path in self.verdicts:
            good, why = self.verdicts[path]()
            code = HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE
            self._answer(code, "text/plain; charset=utf-8", f"{why}\n".encode())
        else:
            paths = (*self.pages, *self.questions)
            first = [path for path in paths if path == "/metrics"]
            *others, last = *first, *self.verdicts, *(path for path in paths if path not in first)
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", f"try {', '.join(others)} or {last}\n".encode())

    def version_string(self) -> str:
        """The header ``Server``: nobody needs to know which Python answers."""
        return "cdc"

    def _asked(self, question: Question, query: str) -> Reply:
        pairs = parse_qsl(query, keep_blank_values=True)
        asked = dict(pairs)
        if len(asked) < len(pairs):
            why = {"shown": False, "reason": "a parameter came twice", "hint": "write each parameter once"}
            return Reply(HTTPStatus.BAD_REQUEST, why)
        return question(asked, self._gone)

    def _gone(self) -> bool:
        """Whether the client has closed its end. One that closed its sending side alone counts as well: none does."""
        try:
            readable, _, _ = select.select([self.connection], [], [], 0)
            return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)
        except (OSError, ValueError):
            return True

    def _answer(self, code: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log a request. ``format`` and ``args`` are those of the standard library's method."""
        log.debug("http_request", extra={"request": format % args})


def answering(
    pages: Mapping[str, Page], alive: Verdict, ready: Verdict, questions: Mapping[str, Question] | None = None
) -> type[RequestHandler]:
    """The request handler of a server with these pages and questions by path, and ``/livez`` and ``/readyz``."""
    served = {"pages": pages, "verdicts": {"/livez": alive, "/readyz": ready}, "questions": questions or {}}
    return type("PagesAndHealth", (RequestHandler,), served)


class ThreadEach(ThreadingHTTPServer):
    """A thread a request. A reader who leaves before the end of his answer is no fault."""

    daemon_threads = True
    request_queue_size = 128
    """Readers who come at once are not refused: the library's own is 5."""

    def __init__(self, address: tuple[str, int], handler: type[RequestHandler]) -> None:
        if ":" in address[0]:
            self.address_family = AF_INET6
        super().__init__(address, handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print a bug's traceback, as the standard library does. A broken connection has none."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class PagesServer:
    """The thread that answers. ``name``: the thread's. OSError and OverflowError where the address cannot be had."""

    def __init__(
        self, address: tuple[str, int], handler: type[RequestHandler], name: str, server: type[ThreadEach] = ThreadEach
    ) -> None:
        self._server = server(address, handler)
        self._thread = Thread(target=self._server.serve_forever, name=name, daemon=True)
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


def exposition(registry: CollectorRegistry) -> tuple[str, bytes]:
    """The page ``/metrics``: all figures of the registry in Prometheus' text form."""
    return CONTENT_TYPE_LATEST, generate_latest(registry)


class HealthPages(Protocol):
    """What a runner shows: its figures, its document, and its two verdicts."""

    def collect(self) -> Iterator[Metric]:
        """All metrics as they are at this moment."""

    def document(self) -> dict[str, Any]:
        """The document that ``/status`` serves."""

    def alive(self) -> tuple[bool, str]:
        """Whether a restart would not help."""

    def ready(self) -> tuple[bool, str]:
        """Whether the work is done, and a sentence."""


def serve_health(health: HealthPages, address: str, setting: str) -> PagesServer:
    """Show a runner's ``/metrics``, ``/status``, ``/livez`` and ``/readyz`` at an address, host:port, which ``setting``
    names. ConfigError where it is none, or is taken."""
    registry = CollectorRegistry()
    registry.register(health)
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    pages: dict[str, Page] = {
        "/metrics": partial(exposition, registry),
        "/status": lambda: ("application/json", json.dumps(health.document()).encode()),
    }
    host, _, port = address.rpartition(":")
    try:
        at = (host.strip("[]") or "127.0.0.1", int(port))
        return PagesServer(at, answering(pages, health.alive, health.ready), "health-http")
    except (OSError, ValueError, OverflowError) as failure:
        raise ConfigError(
            f"{setting} {address} cannot be listened on: {quoted(failure)}",
            hint='name a free one, as "127.0.0.1:9470", or "" for none',
        ) from None


# Figures as Prometheus reads them: each declared once, each with the label of its pipeline, absent where not known.
#
# A figure that can be unknown names a gauge ``..._known``. Where that is 0 the figure has no sample: a last value
# would look well for ever, and a NaN is no number.

PIPELINE = "pipeline"
"""The label that every figure of ours has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A metric. ``labels``: besides the pipeline. ``known``: the gauge that says whether it is known, empty where it
    always is. ``absent``: when there is no sample though it is known, in words."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    text: str
    labels: tuple[str, ...] = ()
    known: str = ""
    absent: str = ""

    @property
    def unit(self) -> str:
        """Its unit, which its name ends with.

        >>> Figure(name="a_bytes_total", kind="counter", text="").unit
        'bytes'
        """
        last = self.name.removesuffix("_total").rsplit("_", 1)[-1]
        return last if last in UNITS else ""


UNITS = ("seconds", "bytes", "ratio", "records", "rows", "transactions", "keys", "tables", "events", "requests", "info")


class FigurePage:
    """The figures at one moment. ``declared``: name -> figure. A figure that is not declared is a KeyError."""

    def __init__(self, pipeline: str, declared: Mapping[str, Figure]) -> None:
        self._pipeline = pipeline
        self._declared = declared
        self._families: dict[str, Metric] = {}
        self._unknown: set[tuple[str, tuple[str, ...]]] = set()

    def known(self, name: str, known: bool, **labels: str) -> bool:
        """Set a gauge that says whether others are known. To be called before these are set. Returns ``known``."""
        self.set(name, float(known), **labels)
        if not known:
            self._unknown.add((name, tuple(sorted(labels.values()))))
        return known

    def set(self, name: str, value: float | None, **labels: str) -> None:
        """A gauge's or a counter's value. None, and one that is not known, is left out."""
        figure = self._declared[name]
        if value is None or self._is_unknown(figure, labels):
            return
        family = self._family(figure)
        assert isinstance(family, GaugeMetricFamily | CounterMetricFamily)
        family.add_metric([self._pipeline, *(labels[label] for label in figure.labels)], float(value))

    def tally(self, name: str, tally: BucketCounts, **labels: str) -> None:
        """A histogram."""
        figure = self._declared[name]
        family = self._family(figure)
        assert isinstance(family, HistogramMetricFamily)
        values = [self._pipeline, *(labels[label] for label in figure.labels)]
        family.add_metric(values, tally.buckets(), sum_value=tally.total)

    def families(self) -> Iterator[Metric]:
        """In the order in which they were first set."""
        yield from self._families.values()

    def _is_unknown(self, figure: Figure, labels: Mapping[str, str]) -> bool:
        """A gauge of knowledge has some of the labels of those that it speaks of."""
        if not figure.known:
            return False
        own = self._declared[figure.known].labels
        return (figure.known, tuple(sorted(labels[label] for label in own))) in self._unknown

    def _family(self, figure: Figure) -> Metric:
        found = self._families.get(figure.name)
        if found is None:
            made = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily, "histogram": HistogramMetricFamily}
            found = made[figure.kind](figure.name, figure.text, labels=[PIPELINE, *figure.labels])
            self._families[figure.name] = found
        return found


def declared(*figures: Figure) -> dict[str, Figure]:
    """Figures by name."""
    return {figure.name: figure for figure in figures}
