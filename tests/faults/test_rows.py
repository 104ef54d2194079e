"""A sample of the experiment on compiled rows."""

from __future__ import annotations

import pytest

from tests.faults.experiments.rows import trial


@pytest.mark.slow
def test_rows_made_the_fast_way_are_those_of_the_long_way() -> None:
    counted = [trial(seed) for seed in range(20)]
    assert sum(figures["made the fast way"] for figures in counted) > 10_000
    assert all(figures["made the fast way"] < figures["inputs"] for figures in counted)
