"""What each run of the tests shows of the laboratory: its crash points are all visited, and one experiment, in small.

The experiments themselves are run by hand and before a release (``make faults``): ``make release`` fails while one of
them is due.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.stack.local import LocalStack
from tests.conftest import Stack
from tests.faults import points
from tests.faults.experiments import big_transaction, sequences
from tests.faults.experiments.sequences import Sequence
from tests.faults.lab import Found, Lab, Limits
from tests.faults.results import Figures
from tests.faults.row_changes import Change


@pytest.fixture
def lab(stack: Stack, tmp_path: Path) -> Lab:
    """On the session's servers; its figures are its own."""
    if not isinstance(stack, LocalStack):
        pytest.skip("the laboratory kills and pauses local processes")
    return Lab(
        name="sample", limits=Limits(seconds=0, seed=0), folder=tmp_path, figures=Figures(), stack_dir=stack.folder
    )


def test_a_test_or_an_experiment_dies_at_every_crash_point() -> None:
    assert points.visited() <= points.declared()
    assert len(points.visited()) >= 40
    tests = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parents[1].rglob("test_*.py"))
    assert [point for point in sorted(points.declared() - points.visited()) if point not in tests] == []


class Forgetful(Sequence):
    """Its dict hears of no row."""

    def _note(self, change: Change, table: str) -> None: ...


@pytest.mark.long
def test_a_dict_that_forgets_is_found(lab: Lab) -> None:
    with pytest.raises(Found, match=r"the topics give .+, and the dict has .+, after \["):
        sequences.one(lab, 1, 5, Forgetful)


def test_h12_each_row_of_a_large_transaction_is_read_back(lab: Lab) -> None:
    big_transaction.one(lab, 20_000)
    assert lab.figures.sums == {"rows_compared": 20_000, "lost": 0, "wrong": 0, "duplicates": 0}
