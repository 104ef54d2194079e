"""A sample of several readings of one table at once."""

from __future__ import annotations

import pytest

from tests.faults.experiments.readings import AT_ONCE, trial

SEEDS = 3


@pytest.mark.slow
def test_h99_compaction_leaves_the_source_whoever_reads() -> None:
    counted = [trial(seed) for seed in range(SEEDS)]
    assert sum(figures["schedules"] for figures in counted) == SEEDS * AT_ONCE
    assert all(figures["left_out"] > 0 and figures["rows_compared"] > AT_ONCE for figures in counted)
