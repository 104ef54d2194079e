"""A sample of the values' experiment, on the tests' own server."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.stack.local import LocalStack
from tests.conftest import Stack
from tests.faults.experiments.values import ROWS, run
from tests.faults.lab import Lab, Limits
from tests.faults.results import Figures
from tests.faults.typed import TYPES

SEEDS = 2


@pytest.mark.slow
def test_values_agree_in_snapshot_stream_and_store(stack: Stack, tmp_path: Path) -> None:
    if not isinstance(stack, LocalStack):
        pytest.skip("one server of this machine is enough")
    limits = Limits(seconds=60, count=SEEDS)
    lab = Lab(
        name="values", limits=limits, folder=tmp_path, figures=Figures(), results=tmp_path, stack_dir=stack.folder
    )
    run(lab)
    assert lab.figures.sums == {"values": SEEDS * ROWS * len(TYPES), "rows": SEEDS * ROWS}
