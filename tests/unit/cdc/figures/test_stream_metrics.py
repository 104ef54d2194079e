"""What a process that keeps streams shows of them."""

from __future__ import annotations

import http.client
import json
from contextlib import closing

import pytest
from prometheus_client import CollectorRegistry

from cdc.figures.http_server import serve_health
from cdc.figures.stream_metrics import KNOWN_S, StreamFigures, StreamHealth
from cdc.process.clock import ManualClock
from cdc.process.errors import ConfigError


def shown(health: StreamHealth, name: str, **labels: str) -> float | None:
    registry = CollectorRegistry()
    registry.register(health)
    return registry.get_sample_value(name, {"pipeline": "shop", "stream": "traffic"} | labels)


def test_h110_a_stream_behind_ages_and_one_unseen_is_not_known() -> None:
    clock = ManualClock()
    health = StreamHealth(clock, 60.0, "shop")
    assert health.ready() == (False, "Spark is being started")
    one = StreamFigures("traffic", level_s=clock.monotonic())
    health.streams = [one]
    assert (shown(health, "cdc_stream_lag_known"), shown(health, "cdc_stream_lag_seconds")) == (0.0, None)
    assert health.ready() == (False, "traffic: where the log ends was not seen for 30 s")
    assert shown(health, "cdc_stream_batch") is None
    one.looked_s, one.batch, one.set_apart = clock.monotonic(), 4, {"late": 2}
    assert health.ready() == (True, "every stream is kept")
    assert (shown(health, "cdc_stream_batch"), shown(health, "cdc_stream_lag_seconds")) == (4.0, 0.0)
    assert shown(health, "cdc_stream_set_apart_events_total", reason="late") == 2.0
    clock.advance(61)
    one.looked_s = clock.monotonic()
    assert health.ready() == (False, "traffic is 61 s behind")
    # One that has stopped falls behind as well: the alert on the lag is about it, too.
    one.stopped = one.away = "its text"
    assert (shown(health, "cdc_stream_stopped"), shown(health, "cdc_stream_lag_seconds")) == (1.0, 61.0)
    assert health.ready() == (False, "traffic: stopped: its text")
    clock.advance(KNOWN_S)
    assert shown(health, "cdc_stream_lag_seconds") is None
    assert health.document()["streams"]["traffic"]["lag_seconds"] is None


def test_pages_are_served_and_a_taken_address_is_refused() -> None:
    health = StreamHealth(ManualClock(), 60.0, "shop", [StreamFigures("traffic", level_s=0.0, away="no topic")])
    with closing(serve_health(health, "127.0.0.1:0", "[stream_runner] http_address")) as server:
        with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)) as connection:
            connection.request("GET", "/status")
            assert json.loads(connection.getresponse().read())["streams"]["traffic"]["trouble"] == "away: no topic"
        with pytest.raises(ConfigError, match=r"\[stream_runner\] http_address .* cannot be listened on"):
            serve_health(health, f"127.0.0.1:{server.port}", "[stream_runner] http_address")
