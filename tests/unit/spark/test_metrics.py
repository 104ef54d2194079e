"""Figures that are worked out when somebody asks: each part taken away, and every figure read."""

from __future__ import annotations

import math
from http import HTTPStatus
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from cdc.clock import ManualClock
from cdc.errors import SinkError
from sinks.port import StoreAway
from spark.failures import SparkLost
from spark.sink_metrics import ANSWER_S, SILENCE_S, Metrics, SinkFigures


class Feeding:
    """A cache that lacks nothing, beside a log that answers."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.metrics = Metrics(clock=self.clock)
        self.lacks = 0
        self.cache: SinkFigures = self.metrics.sink("cache")
        self.cache.behind = lambda: self.lacks
        self.cache.begin(self.clock.monotonic())
        self.cache.lsn = 64
        self.pass_s(0)

    def pass_s(self, seconds: float, *, log: bool = True, store: bool = True) -> None:
        self.clock.advance(seconds)
        now_s = self.clock.monotonic()
        self.metrics.tick()
        if log:
            self.metrics.log.seen_s = now_s
        if store:
            self.cache.answered(now_s)
            if not self.lacks:
                self.cache.level_s = now_s

    def __getitem__(self, name: str) -> float:
        labels = {} if name == "log_age_seconds" else {"sink": "cache"}
        value = self.metrics.registry.get_sample_value(f"cdc_sink_{name}", labels)
        assert value is not None
        return value


@pytest.fixture
def feeding() -> Feeding:
    return Feeding()


def test_h110_at_rest_a_store_does_not_lag(feeding: Feeding) -> None:
    feeding.cache.newest_ms = feeding.clock.now_ns() // 1_000_000
    feeding.pass_s(3600)
    assert (feeding["lag_seconds"], feeding["lag_records"], feeding["up"]) == (0, 0, 1)
    assert feeding.metrics.ready() == (True, "feeding cache")


def test_h110_the_lag_of_a_store_that_is_away_grows(feeding: Feeding) -> None:
    feeding.lacks, feeding.cache.away = 7, "the cache cannot be reached"
    feeding.pass_s(100, store=False)
    assert (feeding["lag_seconds"], feeding["lag_records"], feeding["up"]) == (100, 7, 0)
    assert feeding["answer_age_seconds"] == 100
    assert feeding.metrics.ready() == (False, "cache: away: the cache cannot be reached")
    feeding.lacks = 0
    feeding.pass_s(1)
    assert (feeding["lag_seconds"], feeding["up"]) == (0, 1)


def test_h110_a_store_that_applied_nothing_lags_since_it_began(feeding: Feeding) -> None:
    feeding.cache.level_s, feeding.lacks, feeding.cache.away = None, 7, "the cache cannot be reached"
    feeding.pass_s(40, store=False)
    assert (feeding["lag_seconds"], feeding["lag_records"]) == (40, 7)


def test_h110_without_the_log_the_lag_of_a_store_is_unknown(feeding: Feeding) -> None:
    feeding.pass_s(SILENCE_S + 1, log=False)
    assert math.isnan(feeding["lag_seconds"]) and math.isnan(feeding["lag_records"])
    assert (feeding["log_age_seconds"], feeding["up"]) == (SILENCE_S + 1, 1)
    assert feeding.metrics.ready() == (False, "log: Kafka has not said where it ends for 31 s")


def test_h110_a_store_that_says_nothing_is_unknown_and_then_away(feeding: Feeding) -> None:
    feeding.cache.asked_s = feeding.clock.monotonic()
    feeding.pass_s(SILENCE_S + 1, store=False)
    assert math.isnan(feeding["up"])
    feeding.pass_s(ANSWER_S, store=False)
    assert feeding["up"] == 0
    assert feeding.metrics.ready()[1] == "cache: it has not answered for 91 s"


def test_h110_before_its_begin_nothing_is_claimed_of_a_store(feeding: Feeding) -> None:
    feeding.metrics.sinks["cache"] = SinkFigures()
    for name in ("lag_seconds", "lag_records", "applied_lsn", "up", "parked_keys", "held_tables", "answer_age_seconds"):
        assert math.isnan(feeding[name]), name
    assert feeding.metrics.ready() == (False, "cache: it has not begun")


def test_a_store_that_stopped_or_holds_a_table_is_not_ready(feeding: Feeding) -> None:
    feeding.cache.held = ("public.orders",)
    assert feeding.metrics.ready() == (False, "cache: it holds public.orders")
    feeding.metrics.failed("cache", SinkError("the login is refused"))
    assert feeding.metrics.ready() == (False, "cache: stopped: the login is refused")
    assert (feeding["stopped"], feeding["up"]) == (1, 0)


def test_h110_a_failing_query_beside_a_store_is_not_ready(feeding: Feeding) -> None:
    feeding.cache.failing, feeding.lacks = SparkLost("a Python worker was killed"), 7
    feeding.pass_s(1)
    assert feeding["up"] == 1
    assert feeding.metrics.ready() == (False, "cache: its query fails: a Python worker was killed")
    feeding.cache.failing = StoreAway("the cache is full")
    assert feeding["up"] == 0
    feeding.lacks = 0
    assert (feeding["up"], feeding.metrics.ready()) == (1, (True, "feeding cache"))


def test_a_loop_that_stands_still_is_not_alive(feeding: Feeding) -> None:
    assert feeding.metrics.alive()[0]
    feeding.clock.advance(61)
    assert not feeding.metrics.alive()[0]


def test_the_server_says_whether_it_is_ready(feeding: Feeding) -> None:
    server = feeding.metrics.serve("127.0.0.1:0")
    assert server is not None
    base = f"http://127.0.0.1:{server.port}"
    assert urlopen(f"{base}/readyz").read() == b"feeding cache\n"
    assert b'cdc_sink_up{sink="cache"} 1.0' in urlopen(f"{base}/metrics").read()
    feeding.cache.away = "gone"
    with pytest.raises(HTTPError) as refused:
        urlopen(f"{base}/readyz")
    with refused.value as answer:
        assert (answer.code, answer.read()) == (HTTPStatus.SERVICE_UNAVAILABLE, b"cache: away: gone\n")
    server.close()
