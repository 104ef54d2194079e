"""A sample of the experiments on views."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from cdc.stack.local import LocalStack
from tests.conftest import Stack
from tests.faults.experiments import view_kills
from tests.faults.experiments.view_histories import AT_ONCE, trial
from tests.faults.lab import Lab, Limits
from tests.faults.results import Figures


def test_v1_v9_v24_v25_histories_show_the_tables_at_each_claim() -> None:
    counted = trial(0)
    assert counted["histories"] == AT_ONCE
    assert counted["claims"] > AT_ONCE
    assert counted["kills"] > 0


@pytest.mark.slow
def test_v4_v5_v24_views_survive_kills_at_random(stack: Stack, tmp_path: Path) -> None:
    if not isinstance(stack, LocalStack):
        pytest.skip("the laboratory kills and pauses local processes")
    lab = Lab(
        name="sample", limits=Limits(seconds=0, seed=0), folder=tmp_path, figures=Figures(), stack_dir=stack.folder
    )
    view_kills.one(lab, random.SystemRandom().randrange(1 << 30), view_kills.BETWEEN, broker=False)
    assert lab.figures.sums["kills"] >= view_kills.BETWEEN
    assert lab.figures.sums["documents_compared"] > 0
