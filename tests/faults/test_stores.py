"""A sample of the stores' experiment."""

from __future__ import annotations

import pytest

from tests.faults.experiments.stores import AT_ONCE, trial

SEEDS = 5


@pytest.mark.slow
def test_h63_h80_h84_a_store_ends_equal_with_a_true_watermark() -> None:
    counted = [trial(seed) for seed in range(SEEDS)]
    assert sum(figures["schedules"] for figures in counted) == SEEDS * AT_ONCE
    assert all(figures["kills"] > 0 for figures in counted)
