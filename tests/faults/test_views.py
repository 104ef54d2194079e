"""A sample of the experiments on views."""

from __future__ import annotations

from tests.faults.experiments.view_histories import AT_ONCE, trial


def test_v1_v9_v24_v25_histories_show_the_tables_at_each_claim() -> None:
    counted = trial(0)
    assert counted["histories"] == AT_ONCE
    assert counted["claims"] > AT_ONCE
    assert counted["kills"] > 0
