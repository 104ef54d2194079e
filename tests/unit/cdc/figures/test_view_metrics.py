"""What a process that keeps views shows of them, second by second."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from cdc.figures.view_metrics import KNOWN_S, ViewFigures, ViewHealth
from cdc.process.clock import ManualClock


def shown(health: ViewHealth, name: str) -> float | None:
    registry = CollectorRegistry()
    registry.register(health)
    return registry.get_sample_value(name, {"pipeline": "shop", "view": "orders"})


def test_h110_a_view_behind_ages_and_one_unseen_is_not_known() -> None:
    clock = ManualClock()
    one = ViewFigures("orders", level_s=clock.monotonic())
    health = ViewHealth(clock, 60.0, "shop", [one])
    assert (shown(health, "cdc_view_lag_known"), shown(health, "cdc_view_lag_seconds")) == (0.0, None)
    assert health.ready() == (False, "orders has not turned for 30 s")
    one.turned_s = clock.monotonic()
    assert health.ready() == (False, "orders is being built")
    assert shown(health, "cdc_view_applied_lsn") is None
    one.lsn, one.level_s = 800, one.turned_s
    assert health.ready() == (True, "every view is kept")
    assert (shown(health, "cdc_view_lag_seconds"), shown(health, "cdc_view_applied_lsn")) == (0.0, 800.0)
    clock.advance(61)
    one.turned_s = clock.monotonic()
    assert shown(health, "cdc_view_lag_seconds") == 61.0
    assert health.ready() == (False, "orders is 61 s behind")
    clock.advance(KNOWN_S)
    assert (shown(health, "cdc_view_lag_known"), shown(health, "cdc_view_lag_seconds")) == (0.0, None)
    assert health.document()["views"]["orders"]["lag_seconds"] is None


def test_h110_a_view_that_stopped_alone_is_no_other_ones_fault() -> None:
    clock = ManualClock()
    now_s = clock.monotonic()
    views = [ViewFigures(name, level_s=now_s, turned_s=now_s, lsn=8) for name in ("orders", "others")]
    views[0].stopped = "its key is not unique"
    health = ViewHealth(clock, 60.0, "shop", views)
    assert health.ready() == (False, "orders has stopped: its key is not unique")
    assert (shown(health, "cdc_view_stopped"), shown(health, "cdc_view_lag_seconds")) == (1.0, None)
    registry = CollectorRegistry()
    registry.register(health)
    assert registry.get_sample_value("cdc_view_lag_seconds", {"pipeline": "shop", "view": "others"}) == 0.0
