"""What a running process says is asked for, and believed only where it is a number."""

from __future__ import annotations

import json
import math
from contextlib import closing
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.figures.capture_metrics import CaptureFigures
from cdc.figures.capture_server import MetricsServer
from cdc.figures.http_server import serve_health
from cdc.figures.measures import Quantiles
from cdc.figures.process_status import FillShare, Trouble, ask_status, fill_of, fresh_of, trouble_of
from cdc.figures.stream_metrics import StreamFigures, StreamHealth
from cdc.process.clock import ManualClock
from cdc.process.errors import SinkError
from cdc.settings.model import Settings
from cdc.settings.stream_settings import StreamRunnerSettings, StreamSettings
from cdc.status.facts import FreshFacts
from connectors.operate.status import read_fresh
from spark.figures.sink_metrics import FillStand, Metrics
from tests.strangers import Answer, closed, stranger, web

_MEMBERS = ("trouble", "cure", "freshness", "fill", "share", "remaining_seconds")
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*_MEMBERS, *Quantiles._fields]), inner),
)


@given(anything)
def test_whatever_is_said_is_taken_for_numbers_or_nothing(document: object) -> None:
    found = fresh_of(document)
    assert found is None or all(math.isfinite(one) and one >= 0 for one in found[:2])
    fill = fill_of(document)
    assert fill is None or (0 <= fill.share <= 1 and (fill.left_s is None or math.isfinite(fill.left_s)))


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.integers(0, 2**40))
def test_what_a_process_says_is_read_back(p50_s: float, p99_s: float, changes: int) -> None:
    said = Quantiles(p50_s, p99_s, changes)
    assert fresh_of(json.loads(json.dumps({"freshness": said._asdict()}))) == said


@pytest.mark.parametrize("answer", [web, closed], ids=["web", "closed"])
def test_a_stranger_at_the_address_says_nothing(answer: Answer) -> None:
    with stranger(answer) as port:
        assert ask_status(f"127.0.0.1:{port}", "shop") is None


@pytest.mark.parametrize("address", ["", "127.0.0.1:1", "nowhere.invalid:1", "127.0.0.1:x"])
def test_an_address_without_anybody_is_not_known(address: str) -> None:
    assert ask_status(address, "shop") is None


def settings(run: str, sinks: str, name: str = "shop") -> Settings:
    document = {
        "name": name,
        "source": {"dsn": "postgresql://localhost/shop", "tables": ["public.t"]},
        "log": {"bootstrap_servers": "127.0.0.1:9092"},
        "capture": {"http_address": run},
        "spark": {"http_address": sinks},
        "sinks": {"cache": {"kind": "redis", "url": "redis://localhost"}},
    }
    return Settings.model_validate(document)


def test_status_asks_both_processes_of_its_own_pipeline() -> None:
    clock = ManualClock()
    figures, metrics = CaptureFigures(ticked_s=clock.monotonic()), Metrics(clock=clock, pipeline="shop")
    capture = MetricsServer("127.0.0.1:0", figures, clock, "shop")
    metrics.sink("cache").freshness.add(0.5, clock.monotonic())
    sinks = metrics.serve("127.0.0.1:0")
    assert sinks is not None
    run_at, sink_at = capture.address, f"127.0.0.1:{sinks.port}"

    def fresh(*told: str) -> FreshFacts:
        return replace(read_fresh(settings(*told)), processes=())

    def words(*told: str) -> dict[str, dict[str, Trouble]]:
        return {one.command: dict(one.said) for one in read_fresh(settings(*told)).processes}

    try:
        both = frozenset(("log", "cache"))
        assert fresh(run_at, sink_at) == FreshFacts(asked=both, sinks={"cache": Quantiles(0.5, 0.5, 1)})
        assert words(run_at, sink_at) == {"cdc run": {"cdc run": Trouble()}, "cdc sink": {"cache": Trouble()}}
        metrics.failed("cache", SinkError("another writes", hint="stop it"))
        figures.phase, figures.waiting_for, figures.waiting_cure = "reconnecting", "no route", "see the network"
        assert words(run_at, sink_at) == {
            "cdc run": {"cdc run": Trouble("reconnecting: no route", "see the network")},
            "cdc sink": {"cache": Trouble("stopped: another writes", "stop it; then start cdc sink again")},
        }
        metrics.sink("cache").fill = lambda: FillStand(1, 4)
        assert fresh("", sink_at).fills == {"cache": FillShare(0.25, None)}
        figures.freshness.add(2.0, clock.monotonic())
        assert fresh(run_at, "") == FreshFacts(asked=frozenset(["log"]), log=Quantiles(2.0, 2.0, 1))
        assert fresh(sink_at, run_at) == FreshFacts(), "each at the other's address"
        assert words(sink_at, run_at) == {"cdc run": {}, "cdc sink": {}}
        assert fresh(run_at, sink_at, "store") == FreshFacts(), "another pipeline's"
    finally:
        capture.close()
        sinks.close()


def test_a_streams_runner_says_why_it_stands() -> None:
    health = StreamHealth(
        ManualClock(), 60.0, "shop", [StreamFigures("traffic", level_s=0.0, away="no topic", cure="w")]
    )
    events = {"topic": "shop.outbox.A", "time": "at", "schema": "at timestamp"}
    streams = {"traffic": StreamSettings.model_validate({"sql": "s", "key": ["k"], "events": {"a": events}})}
    with closing(serve_health(health, "127.0.0.1:0", "")) as server:
        runner = StreamRunnerSettings(http_address=f"127.0.0.1:{server.port}")
        asked = settings("", "").model_copy(update={"streams": streams, "stream_runner": runner})
        (one,) = [one for one in read_fresh(asked).processes if one.command == "cdc stream run"]
    assert (one.parts, one.setting) == (("the stream traffic",), "[stream_runner] http_address")
    assert one.said == {"the stream traffic": Trouble("away: no topic", "w")}


@given(anything)
def test_y11_words_of_anybody_are_one_short_line(document: object) -> None:
    why, cure = trouble_of(document)
    assert len(why) <= 600 and len(cure) <= 600
    assert not {"\n", "\r"} & {*why, *cure}
    assert why or not cure
