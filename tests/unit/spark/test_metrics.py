"""Figures that are worked out when somebody asks: each part taken away, and every figure read."""

from __future__ import annotations

import math
from http import HTTPStatus
from urllib.error import HTTPError
from urllib.request import urlopen

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.figures.declared_figures import SINKS
from cdc.process.clock import ManualClock
from cdc.process.errors import SinkError
from sinks.contract.port import StoreAway
from spark.figures.sink_metrics import ANSWER_S, EVERY_S, SILENCE_S, FillStand, Lacking, Metrics, SinkFigures
from spark.session.failures import SparkLost

OLDEST_S = 20


class Feeding:
    """A cache that lacks nothing, beside a log that answers."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.metrics = Metrics(clock=self.clock, pipeline="shop")
        self.lacks = Lacking(True, 0, None)
        self.cache: SinkFigures = self.metrics.sink("cache")
        self.cache.lacks = lambda: self.lacks
        self.cache.behind = lambda: self.lacks.records
        self.cache.begin(self.clock.monotonic())
        self.cache.lsn = 64
        self.pass_s(0)

    def pass_s(self, seconds: float, *, log: bool = True, store: bool = True) -> None:
        self.clock.advance(seconds)
        now_s = self.clock.monotonic()
        self.metrics.tick()
        if log:
            self.metrics.looked(now_s)
        if store:
            self.cache.answered(now_s)

    def lack(self, records: int) -> None:
        """So many, the oldest committed some time ago."""
        self.lacks = Lacking(True, records, self.clock.now_ns() // 1_000_000 - OLDEST_S * 1000)

    def get(self, name: str) -> float | None:
        labels = {"pipeline": "shop"} | ({} if name == "log_age_seconds" else {"sink": "cache"})
        return self.metrics.registry.get_sample_value(f"cdc_sink_{name}", labels)

    def __getitem__(self, name: str) -> float:
        value = self.get(name)
        assert value is not None, name
        return value


@pytest.fixture
def feeding() -> Feeding:
    return Feeding()


FROM_LOG = ("lag_seconds", "backlog_records", "backlog_bytes")
FROM_STORE = ("applied_lsn", "parked_keys", "held_tables")


def test_h110_at_rest_a_store_does_not_lag(feeding: Feeding) -> None:
    feeding.pass_s(3600)
    assert (feeding["lag_seconds"], feeding["backlog_records"], feeding["up"]) == (0, 0, 1)
    assert feeding.metrics.ready() == (True, "feeding cache")


def test_a_lag_is_the_age_of_the_oldest_record_that_is_not_shown(feeding: Feeding) -> None:
    feeding.lack(7)
    assert (feeding["lag_known"], feeding["lag_seconds"], feeding["backlog_records"]) == (1, OLDEST_S, 7)
    assert feeding.get("backlog_bytes") is None, "nothing was read yet"
    feeding.cache.records, feeding.cache.record_bytes = 10, 2_500
    assert feeding["backlog_bytes"] == 1_750
    feeding.pass_s(5)
    assert feeding["lag_seconds"] == OLDEST_S + 5, "worked out when asked"


def test_h110_with_the_store_away_nobody_knows_what_it_lacks(feeding: Feeding) -> None:
    feeding.lack(7)
    feeding.cache.away = "the cache cannot be reached"
    feeding.pass_s(100, store=False)
    assert (feeding["lag_known"], feeding["state_known"], feeding["up"]) == (0, 0, 0)
    assert [feeding.get(name) for name in (*FROM_LOG, *FROM_STORE)] == [None] * 6
    assert feeding["answer_age_seconds"] == 100
    assert feeding.metrics.ready() == (False, "cache: away: the cache cannot be reached")
    feeding.pass_s(1)
    assert (feeding["lag_known"], feeding["lag_seconds"], feeding["up"]) == (1, OLDEST_S + 101, 1)


def test_h110_without_the_log_no_lag_of_a_store_is_known(feeding: Feeding) -> None:
    feeding.pass_s(SILENCE_S + 1, log=False)
    assert feeding["lag_known"] == 0
    assert [feeding.get(name) for name in FROM_LOG] == [None] * 3
    assert (feeding["log_age_seconds"], feeding["up"], feeding["applied_lsn"]) == (SILENCE_S + 1, 1, 64)
    assert feeding.metrics.ready() == (False, "log: Kafka has not said where it ends for 31 s")


def test_h110_a_first_record_not_read_leaves_the_lag_unknown(feeding: Feeding) -> None:
    feeding.lacks = Lacking(False, 7, None)
    assert (feeding["lag_known"], feeding.get("lag_seconds"), feeding.get("backlog_records")) == (0, None, None)


def test_h110_a_store_that_says_nothing_is_not_up(feeding: Feeding) -> None:
    feeding.pass_s(SILENCE_S + 1, store=False)
    assert feeding["up"] == 0
    assert feeding.metrics.ready() == (False, "cache: it has not answered for 31 s")
    feeding.cache.asked_s = feeding.clock.monotonic()
    feeding.pass_s(ANSWER_S, store=False)
    assert feeding["up"] == 1, "a large batch takes its time"
    feeding.pass_s(1, store=False)
    assert feeding["up"] == 0
    assert feeding.metrics.ready()[1] == "cache: it has not answered for 61 s"


def test_h110_before_its_begin_nothing_is_claimed_of_a_store(feeding: Feeding) -> None:
    feeding.metrics.sinks["cache"] = SinkFigures(started_s=feeding.clock.monotonic())
    feeding.pass_s(3, store=False)
    assert (feeding["lag_known"], feeding["state_known"], feeding["up"]) == (0, 0, 0)
    assert [feeding.get(name) for name in (*FROM_LOG, *FROM_STORE)] == [None] * 6
    assert feeding["answer_age_seconds"] == 3
    assert feeding.metrics.ready() == (False, "cache: it has not begun")


def test_a_fill_shows_how_far_it_is_and_when_it_will_be_done(feeding: Feeding) -> None:
    assert feeding.get("fill_progress_ratio") is None
    stand = FillStand(0, 1_000)
    feeding.cache.fill = lambda: stand
    feeding.pass_s(1)
    assert (feeding["fill_progress_ratio"], feeding.get("fill_remaining_seconds")) == (0, None), "no pace is known yet"
    stand = FillStand(250, 1_000)
    feeding.pass_s(10)
    assert (feeding["fill_progress_ratio"], feeding["fill_remaining_seconds"]) == (0.25, 30)
    feeding.cache.pace.forget()
    feeding.pass_s(1)
    feeding.pass_s(1)
    assert feeding["fill_remaining_seconds"] == math.inf, "it stands still"


def test_a_store_that_stopped_or_holds_a_table_is_not_ready(feeding: Feeding) -> None:
    feeding.cache.held = ("public.orders",)
    assert feeding.metrics.ready() == (False, "cache: it holds public.orders")
    feeding.metrics.failed("cache", SinkError("the login is refused"))
    assert feeding.metrics.ready() == (False, "cache: stopped: the login is refused")
    assert (feeding["stopped"], feeding["up"]) == (1, 0)


def test_h110_a_failing_query_beside_a_store_is_not_ready(feeding: Feeding) -> None:
    feeding.cache.failing = SparkLost("a Python worker was killed")
    feeding.lack(7)
    feeding.pass_s(1)
    assert feeding["up"] == 1
    assert feeding.metrics.ready() == (False, "cache: its query fails: a Python worker was killed")
    feeding.cache.failing = StoreAway("the cache is full")
    assert feeding["up"] == 0
    feeding.lacks = Lacking(True, 0, None)
    assert (feeding["up"], feeding.metrics.ready()) == (1, (True, "feeding cache"))


def test_a_loop_that_stands_still_is_not_alive(feeding: Feeding) -> None:
    assert feeding.metrics.alive()[0]
    feeding.clock.advance(61)
    assert not feeding.metrics.alive()[0]


def test_a_fill_is_told_now_and_then(feeding: Feeding, caplog: pytest.LogCaptureFixture) -> None:
    """Fifteen seconds apart, of 1,000 records 10 a second."""
    read = 0
    feeding.cache.fill = lambda: FillStand(read, 1_000)
    with caplog.at_level("INFO", logger="spark"):
        for _ in range(5):
            feeding.pass_s(EVERY_S / 2)
            read += 150
    told = [record for record in caplog.records if record.getMessage() == "store_filling"]
    assert [vars(one)["read"] for one in told] == [0, 300, 600]
    assert [vars(one)["left_s"] for one in told] == [None, 70, 40]
    assert vars(told[1])["share"] == 0.3
    document = feeding.metrics.document()["sinks"]["cache"]
    assert document["fill"] == {"share": 0.75, "remaining_seconds": pytest.approx(25)}


def test_the_server_says_if_it_is_ready_and_how_fresh(feeding: Feeding) -> None:
    server = feeding.metrics.serve("127.0.0.1:0")
    assert server is not None
    base = f"http://127.0.0.1:{server.port}"
    assert urlopen(f"{base}/readyz").read() == b"feeding cache\n"
    assert b'cdc_sink_up{pipeline="shop",sink="cache"} 1.0' in urlopen(f"{base}/metrics").read()
    feeding.cache.freshness.add(0.5, feeding.clock.monotonic())
    fresh = {"p50_s": 0.5, "p99_s": 0.5, "changes": 1}
    cache = {"up": True, "lag_seconds": 0.0, "freshness": fresh, "fill": None, "trouble": "", "cure": ""}
    assert orjson.loads(urlopen(f"{base}/status").read()) == {"pipeline": "shop", "sinks": {"cache": cache}}
    feeding.cache.away = "gone"
    with pytest.raises(HTTPError) as refused:
        urlopen(f"{base}/readyz")
    with refused.value as answer:
        assert (answer.code, answer.read()) == (HTTPStatus.SERVICE_UNAVAILABLE, b"cache: away: gone\n")
    server.close()


@given(
    away=st.booleans(),
    log=st.booleans(),
    known=st.booleans(),
    begun=st.booleans(),
    records=st.integers(0, 9),
    filling=st.booleans(),
    silent_s=st.sampled_from((0, 31, 100)),
)
def test_h110_a_figure_has_a_sample_where_known_never_nan(
    away: bool, log: bool, known: bool, begun: bool, records: int, filling: bool, silent_s: float
) -> None:
    feeding = Feeding()
    if not begun:
        feeding.metrics.sinks["cache"] = SinkFigures()
    figures = feeding.metrics.sinks["cache"]
    figures.lacks = lambda: Lacking(known, records, None if not records else 1)
    figures.fill = lambda: FillStand(1, 2) if filling else None
    figures.away = "gone" if away else ""
    feeding.metrics.queries.of("cache-1").progress({"numInputRows": records}, feeding.metrics.clock.monotonic())
    feeding.pass_s(silent_s, log=log, store=False)
    samples = [sample for metric in feeding.metrics.registry.collect() for sample in metric.samples]
    values = {sample.name: sample.value for sample in samples}
    assert not any(math.isnan(value) for value in values.values())
    for sample in samples:
        assert not sample.name.startswith("cdc_") or sample.labels["pipeline"] == "shop"
    for figure in SINKS.values():
        if figure.known and not figure.absent:
            assert (figure.name in values) == (values[figure.known] == 1), figure.name
        elif figure.known and values[figure.known] == 0:
            assert figure.name not in values
