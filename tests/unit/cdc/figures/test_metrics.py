"""Health answers without asking a server; figures become metrics when asked for."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from http import HTTPStatus
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.figures.capture_metrics import CaptureFigures, Flow, Health, RereadFigures, Stages
from cdc.figures.capture_server import CaptureCollector, MetricsServer, status_document
from cdc.figures.declared_figures import CAPTURE
from cdc.figures.measures import STAGES
from cdc.process.clock import ManualClock
from cdc.process.errors import ActiveError, ConfigError
from cdc.record.server_facts import SlotFacts
from tests.strangers import Answer, closed, stranger, web

SLOT = SlotFacts(
    slot="cdc_shop",
    plugin="pgoutput",
    database="shop",
    active_pid=7,
    wal_status="reserved",
    restart_lsn=1,
    confirmed_flush_lsn=2,
    retained_bytes=4096,
    safe_wal_bytes=None,
    invalidation_reason=None,
)


def test_alive_unless_the_loop_stands_still() -> None:
    clock = ManualClock()
    figures = CaptureFigures(phase="reconnecting", waiting_for="no route", ticked_s=clock.monotonic())
    health = Health(figures, clock)
    assert health.alive()[0]
    assert health.ready() == (False, "reconnecting no route")
    clock.advance(61)
    assert not health.alive()[0]


def test_ready_means_streaming_with_a_slot_and_a_broker() -> None:
    clock = ManualClock()
    figures = CaptureFigures(phase="streaming", slot=SLOT)
    health = Health(figures, clock)
    assert health.ready() == (True, "streaming")
    figures.stalled_since_s = clock.monotonic()
    clock.advance(31)
    assert not health.ready()[0]


def test_h95_a_table_that_waits_for_long_is_said_by_readiness() -> None:
    clock = ManualClock()
    figures = CaptureFigures(phase="streaming", waiting_since_s=clock.monotonic(), waiting_ready_s=60.0)
    figures.waiting = lambda: {"public.t": 3}
    health = Health(figures, clock)
    clock.advance(59)
    assert health.ready()[0]
    clock.advance(2)
    assert health.ready() == (False, "public.t has waited for 61 s: is it locked?")


def test_metrics_and_health_over_http() -> None:
    clock = ManualClock()
    figures = CaptureFigures(phase="streaming", ticked_s=clock.monotonic(), slot=SLOT, received_lsn=100, acked_lsn=60)
    figures.noted_s = figures.looked_s = clock.monotonic()
    figures.committed(3)
    figures.flow = lambda: Flow(records=5, value_bytes=900)
    figures.events = lambda: Counter({("public.t", "c"): 3})
    server = MetricsServer("127.0.0.1:0", figures, clock, "shop")
    try:
        base = f"http://{server.address}"
        text = urlopen(f"{base}/metrics").read().decode()
        assert 'cdc_up{pipeline="shop"} 1.0' in text
        assert 'cdc_events_total{op="c",pipeline="shop",table="public.t"} 3.0' in text
        assert 'cdc_source_lag_bytes{pipeline="shop",stage="acked"} 40.0' in text
        assert 'cdc_transaction_rows_bucket{le="10.0",pipeline="shop"} 1.0' in text
        assert 'cdc_slot_wal_status{pipeline="shop",status="reserved"} 1.0' in text
        assert 'cdc_record_bytes_total{pipeline="shop"} 900.0' in text
        assert urlopen(f"{base}/readyz").read() == b"streaming\n"
        assert orjson.loads(urlopen(f"{base}/status").read())["records"] == 5
        figures.phase = "waiting"
        with pytest.raises(HTTPError) as refused:
            urlopen(f"{base}/readyz")
        assert refused.value.code == 503
        refused.value.close()
        with pytest.raises(ActiveError, match="cdc run of the pipeline shop runs already"):
            MetricsServer(server.address, figures, clock, "shop")
        with pytest.raises(ConfigError, match="cdc run of the pipeline shop has it"):
            MetricsServer(server.address, figures, clock, "store")
    finally:
        server.close()


def test_x7_an_ipv6_address_is_listened_on() -> None:
    server = MetricsServer("[::1]:0", CaptureFigures(), ManualClock(), "shop")
    try:
        assert server.address.startswith("[::1]:")
        assert b"cdc_up" in urlopen(f"http://{server.address}/metrics").read()
    finally:
        server.close()


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_pages_answer_questions_and_take_nothing(method: str) -> None:
    server = MetricsServer("127.0.0.1:0", CaptureFigures(), ManualClock(), "shop")
    try:
        for page in ("metrics", "status", "livez", "readyz"):
            with pytest.raises(HTTPError) as refused:
                urlopen(Request(f"http://{server.address}/{page}", b"{}", method=method))
            assert refused.value.code == HTTPStatus.NOT_IMPLEMENTED
            refused.value.close()
    finally:
        server.close()


@pytest.mark.parametrize("address", ["127.0.0.1:", "127.0.0.1:1x", "[::1", "127.0.0.1:99999", "nowhere.invalid:1"])
def test_an_address_that_is_none(address: str) -> None:
    with pytest.raises(ConfigError, match="cannot be listened on") as refused:
        MetricsServer(address, CaptureFigures(), ManualClock(), "shop").close()
    assert address in refused.value.message


@pytest.mark.parametrize("answer", [web, closed], ids=["web", "closed"])
def test_an_address_that_another_program_has(answer: Answer) -> None:
    with stranger(answer) as port, pytest.raises(ConfigError) as refused:
        MetricsServer(f"127.0.0.1:{port}", CaptureFigures(), ManualClock(), "shop")
    assert "cannot be listened on: Address already in use" in refused.value.message


def flowing(clock: ManualClock, **members: Any) -> CaptureFigures:
    """Of a capture that streams, with a server that answers."""
    figures = CaptureFigures(phase="streaming", ticked_s=clock.monotonic(), slot=SLOT, **members)
    figures.noted_s = figures.looked_s = clock.monotonic()
    return figures


def ago_us(clock: ManualClock, seconds: float) -> int:
    return clock.now_ns() // 1000 - int(seconds * 1e6)


def test_lag_is_the_age_of_the_oldest_that_the_broker_lacks() -> None:
    clock = ManualClock()
    figures = flowing(clock)
    assert figures.lag_s(clock) == 0
    figures.unheld.handed(1, 80, [ago_us(clock, 5), ago_us(clock, 4)], waits=False)
    figures.unheld.handed(2, 160, [ago_us(clock, 3)], waits=False)
    assert figures.lag_s(clock) == 5
    figures.unheld.acked(1)
    assert figures.lag_s(clock) == 3
    figures.open_commit_us = ago_us(clock, 60)
    assert figures.lag_s(clock) == 60, "a transaction of which half has come"
    figures.unheld.acked(2)
    figures.open_commit_us = None
    assert figures.lag_s(clock) == 0


def test_a_source_ahead_that_sends_nothing_lags_since_seen() -> None:
    clock = ManualClock()
    figures = flowing(clock, received_lsn=100)
    figures.looked(clock.monotonic(), SLOT, 100)
    assert figures.lag_s(clock) == 0
    for wal_lsn in (200, 300):
        clock.advance(10)
        figures.noted_s = clock.monotonic()
        figures.looked(clock.monotonic(), SLOT, wal_lsn)
    assert figures.lag_s(clock) == 10
    figures.received_lsn = 250
    assert figures.lag_s(clock) == 0
    figures.received_lsn = 300
    assert figures.lag_s(clock) == 0


def read(figures: CaptureFigures, clock: ManualClock) -> dict[str, float]:
    """Every figure without its labels but for the first behind the pipeline."""
    found = {}
    for metric in CaptureCollector(figures, clock, "shop").collect():
        for sample in metric.samples:
            labels = [value for name, value in sample.labels.items() if name != "pipeline"]
            found[":".join((sample.name, *labels[:1]))] = sample.value
    return found


FROM_STREAM = (
    "cdc_source_lag_seconds",
    "cdc_source_lag_bytes:received",
    "cdc_source_lag_bytes:acked",
    "cdc_source_lag_bytes:flushed",
)
FROM_SERVER = ("cdc_slot_active", "cdc_slot_retained_wal_bytes", "cdc_slot_wal_status:reserved")


def test_h110_a_figure_is_absent_when_its_source_is_away() -> None:
    clock = ManualClock()
    now_s = clock.monotonic()
    figures = flowing(clock, wal_lsn=200, received_lsn=100, acked_lsn=60)
    known = read(figures, clock)
    assert [known[name] for name in ("cdc_source_lag_known", "cdc_source_lag_seconds", "cdc_slot_known")] == [1, 0, 1]
    assert (known["cdc_source_lag_bytes:acked"], known["cdc_slot_active"], known["cdc_up"]) == (140, 1, 1)
    clock.advance(31)
    figures.noted_s = clock.monotonic()
    no_server = read(figures, clock)
    assert [no_server.get(name) for name in (*FROM_SERVER, *FROM_STREAM)] == [None] * 7
    assert (no_server["cdc_source_lag_known"], no_server["cdc_slot_known"]) == (0, 0)
    assert (no_server["cdc_source_lag_age_seconds"], no_server["cdc_slot_look_age_seconds"]) == (31, 31)
    figures.looked_s, figures.noted_s = clock.monotonic(), now_s
    stalled = read(figures, clock)
    assert [stalled.get(name) for name in FROM_STREAM] == [None] * 4
    assert (stalled["cdc_slot_active"], stalled["cdc_source_lag_age_seconds"]) == (1, 31)
    assert stalled["cdc_up"] == 0, "a broker that does not answer takes no change"
    figures.phase, figures.noted_s = "reconnecting", clock.monotonic()
    assert [read(figures, clock).get(name) for name in FROM_STREAM] == [None] * 4
    assert status_document(figures, clock, "shop")["lag_seconds"] is None


def test_the_slot_says_what_keeps_its_wal_and_when_it_is_lost() -> None:
    clock = ManualClock()
    megabyte = 1024**2
    slot = replace(SLOT, restart_lsn=0, confirmed_flush_lsn=0, safe_wal_bytes=900 * megabyte, catalog_xmin_age=12)
    figures = flowing(clock, wal_lsn=500 * megabyte, received_lsn=499 * megabyte, acked_lsn=1)
    figures.slot = slot
    figures.looked(clock.monotonic(), slot, figures.wal_lsn)
    first = read(figures, clock)
    assert first["cdc_slot_held_by:broker"] == 1 == sum(first[f"cdc_slot_held_by:{stage}"] for stage in STAGES)
    assert "cdc_slot_loss_seconds" not in first, "no pace is known yet"
    assert (first["cdc_slot_catalog_xmin_age_transactions"], "cdc_slot_xmin_age_transactions" in first) == (12, False)
    clock.advance(10)
    figures.slot, figures.noted_s = replace(slot, safe_wal_bytes=800 * megabyte), clock.monotonic()
    figures.looked(clock.monotonic(), figures.slot, figures.wal_lsn)
    assert read(figures, clock)["cdc_slot_loss_seconds"] == 80
    clock.advance(10)
    figures.slot = replace(slot, safe_wal_bytes=950 * megabyte)
    figures.looked(clock.monotonic(), figures.slot, figures.wal_lsn)
    assert read(figures, clock)["cdc_slot_loss_seconds"] == math.inf
    figures.looked(clock.monotonic(), SLOT, figures.wal_lsn)
    assert figures.loss_s() is None, "without a limit it is never lost"


def test_readings_and_the_first_snapshot_say_when_they_are_done() -> None:
    clock = ManualClock()
    figures = flowing(clock)
    share = 0.2
    figures.rereads = lambda: RereadFigures(shares={"public.t": share})
    figures.looked(clock.monotonic(), SLOT, 100)
    assert "cdc_reread_remaining_seconds:public.t" not in read(figures, clock)
    clock.advance(10)
    share = 0.4
    figures.looked(clock.monotonic(), SLOT, 100)
    assert read(figures, clock)["cdc_reread_remaining_seconds:public.t"] == pytest.approx(30)
    first = Stages()
    assert (first.share, first.left_s()) == (None, None)
    first.note(0, (0, 0))
    assert (first.share, first.left_s()) == (None, None), "nothing is planned yet"
    first.note(1, (0, 8))
    first.note(11, (2, 8))
    assert (first.share, first.left_s()) == (0.25, 30)
    first.note(21, (2, 9))
    assert first.left_s() is None, "another plan has a pace of its own"
    first.over()
    assert first.share is None


def test_freshness_is_shown_for_the_last_minutes() -> None:
    clock = ManualClock()
    figures = flowing(clock)
    assert status_document(figures, clock, "shop")["freshness"] is None
    times_us = [ago_us(clock, seconds) for seconds in (4, 3, 0.2, -5)]
    figures.freshness.arrived(times_us, clock.now_ns() / 1e3, clock.monotonic())
    figures.freshness.arrived([ago_us(clock, 3.5)] * 96, clock.now_ns() / 1e3, clock.monotonic())
    shown = read(figures, clock)
    assert (shown["cdc_freshness_seconds_count:change"], shown["cdc_freshness_seconds_count:heartbeat"]) == (100, 0)
    assert shown["cdc_freshness_seconds_sum:change"] == pytest.approx(7.2 + 96 * 3.5)
    assert status_document(figures, clock, "shop")["freshness"] == {"p50_s": 3.5, "p99_s": 4.0, "changes": 100}


@given(
    phase=st.sampled_from(("starting", "streaming", "reconnecting")),
    noted_s=st.none() | st.sampled_from((0.0, 31.0)),
    looked_s=st.none() | st.sampled_from((0.0, 31.0)),
    slot=st.sampled_from((None, SLOT, replace(SLOT, safe_wal_bytes=9, retained_bytes=None, restart_lsn=None))),
    wal_lsn=st.none() | st.just(10**9),
)
def test_h110_capture_shows_no_nan_and_nothing_unknown(
    phase: str, noted_s: float | None, looked_s: float | None, slot: SlotFacts | None, wal_lsn: int | None
) -> None:
    clock = ManualClock()
    figures = CaptureFigures(phase=phase, ticked_s=clock.monotonic(), slot=slot, wal_lsn=wal_lsn)
    figures.noted_s = None if noted_s is None else clock.monotonic() - noted_s
    figures.looked_s = None if looked_s is None else clock.monotonic() - looked_s
    metrics = list(CaptureCollector(figures, clock, "shop").collect())
    values = {sample.name: sample.value for metric in metrics for sample in metric.samples}
    assert not any(math.isnan(value) for value in values.values())
    assert {sample.labels["pipeline"] for metric in metrics for sample in metric.samples} == {"shop"}
    for figure in CAPTURE.values():
        if figure.known and (values[figure.known] == 0 or not figure.absent):
            assert (figure.name in values) == (values[figure.known] == 1), figure.name


def test_h95_h96_a_source_ahead_of_a_stuck_capture_is_unready() -> None:
    clock = ManualClock()
    figures = CaptureFigures(phase="streaming", wal_lsn=9_000, flushed_lsn=1_000)
    health = Health(figures, clock)
    assert health.ready() == (True, "streaming")
    figures.stuck_since_s = clock.monotonic()
    clock.advance(45)
    assert health.ready() == (False, "no progress for 45 s, 8,000 bytes behind the source")
    figures.stuck_since_s = None
    figures.not_followed = {"public.t": "public.t is not in the publication p: it is not followed"}
    assert health.ready() == (False, "public.t is not in the publication p: it is not followed")
