"""``cdc run``: the capture daemon."""

from __future__ import annotations

import gc
import os
import signal
from types import FrameType

import typer

from cdc.capture.capture_loop import CaptureStop, Stopped, keep_capturing
from cdc.figures.capture_metrics import CaptureFigures
from cdc.figures.capture_server import MetricsServer
from cdc.process.clock import SYSTEM_CLOCK
from cdc.process.logs import configure
from cdc.wiring.pipeline import open_capture


def run(context: typer.Context) -> None:
    """Capture changes until stopped.

    Waits for the first snapshot. SIGTERM or Ctrl-C lets the broker take what is on its way, acknowledges it and
    ends with 0. A second signal ends at once. Metrics and health are on [capture] http_address.
    """
    invocation = context.obj
    settings = invocation.settings()
    settings.require_native("cdc run")
    configure(invocation.verbosity)
    clock = SYSTEM_CLOCK
    figures = CaptureFigures(ticked_s=clock.monotonic())
    stop = CaptureStop(clock, settings.capture.drain_timeout.total_seconds())
    _listen_for(stop)
    address = settings.capture.http_address
    server = MetricsServer(address, figures, clock, settings.name) if address else None
    opening = open_capture(settings, figures=figures, stop=stop, clock=clock)
    _spare_the_collector()
    try:
        keep_capturing(opening.open, figures=figures, stop=stop, clock=clock)
    except Stopped:
        return
    finally:
        if server is not None:
            server.close()


def _listen_for(stop: CaptureStop) -> None:
    def wanted(number: int, _frame: FrameType | None) -> None:
        if stop.wanted:
            os._exit(128 + number)
        stop.want()

    signal.signal(signal.SIGTERM, wanted)
    signal.signal(signal.SIGINT, wanted)


def _spare_the_collector() -> None:
    """Turn the cyclic collector off for the loop's sake.

    Each batch makes thousands of tuples and lists that live for milliseconds and never form a cycle. The collector
    would walk them several times per batch. Freeze the modules that are loaded: they stay for good. The loop collects
    by hand every quarter of a minute.
    """
    gc.collect()
    gc.freeze()
    gc.disable()
