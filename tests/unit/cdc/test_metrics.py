"""Health answers without asking a server; figures become metrics when asked for."""

from __future__ import annotations

import math
from collections import Counter
from urllib.error import HTTPError
from urllib.request import urlopen

import orjson
import pytest

from cdc.checks.facts import SlotFacts
from cdc.clock import ManualClock
from cdc.errors import ActiveError, ConfigError
from cdc.metrics import CaptureCollector, CaptureFigures, Flow, Health, MetricsServer, status_document
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
        assert "cdc_up 1.0" in text
        assert 'cdc_events_total{op="c",table="public.t"} 3.0' in text
        assert 'cdc_lag_bytes{stage="acked"} 40.0' in text
        assert 'cdc_transaction_rows_bucket{le="10.0"} 1.0' in text
        assert 'cdc_slot_wal_status{status="reserved"} 1.0' in text
        assert "cdc_bytes_total 900.0" in text
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


def test_lag_is_zero_when_level_else_the_newest_commits_age() -> None:
    figures = CaptureFigures(commit_us=1_000_000_000_000_000)
    assert figures.lag_s(1_000_000_005 * 10**9) == 5.0
    figures.caught_up = True
    assert figures.lag_s(1_000_000_005 * 10**9) == 0.0


def read(figures: CaptureFigures, clock: ManualClock) -> dict[str, float]:
    """Every figure without its labels but for the first."""
    found = {}
    for metric in CaptureCollector(figures, clock).collect():
        for sample in metric.samples:
            found[":".join((sample.name, *list(sample.labels.values())[:1]))] = sample.value
    return found


FROM_STREAM = ("cdc_source_lag_seconds", "cdc_lag_bytes:received", "cdc_lag_bytes:acked", "cdc_lag_bytes:flushed")
FROM_SERVER = ("cdc_slot_active", "cdc_slot_retained_wal_bytes", "cdc_slot_wal_status:reserved")


def test_h110_each_figure_is_unknown_when_its_source_is_away() -> None:
    clock = ManualClock()
    now_s = clock.monotonic()
    figures = CaptureFigures(phase="streaming", caught_up=True, slot=SLOT, wal_lsn=200, received_lsn=100, acked_lsn=60)
    figures.noted_s = figures.looked_s = now_s
    known = read(figures, clock)
    assert (known["cdc_source_lag_seconds"], known["cdc_lag_bytes:acked"], known["cdc_slot_active"]) == (0, 140, 1)
    clock.advance(31)
    figures.noted_s = clock.monotonic()
    no_server = read(figures, clock)
    assert all(math.isnan(no_server[name]) for name in (*FROM_SERVER, "cdc_lag_bytes:acked"))
    assert (no_server["cdc_source_lag_seconds"], no_server["cdc_slot_age_seconds"]) == (0, 31)
    figures.looked_s, figures.noted_s = clock.monotonic(), now_s
    stalled = read(figures, clock)
    assert all(math.isnan(stalled[name]) for name in FROM_STREAM)
    assert (stalled["cdc_slot_active"], stalled["cdc_source_lag_age_seconds"]) == (1, 31)
    assert (known["cdc_up"], stalled["cdc_up"]) == (1, 0), "a broker that does not answer takes no change"
    figures.phase, figures.noted_s = "reconnecting", clock.monotonic()
    assert all(math.isnan(read(figures, clock)[name]) for name in FROM_STREAM)
    assert status_document(figures, clock, "shop")["lag_seconds"] is None


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
