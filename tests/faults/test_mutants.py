"""Every rule that the laboratory breaks is still there to be broken, and is written down as noticed."""

from __future__ import annotations

import pytest

from tests.faults.mutants import MUTANTS, ROOT, Mutant
from tests.faults.results import load


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_still_breaks_its_rule(mutant: Mutant) -> None:
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    broken = mutant.applied(text)
    assert broken != text
    if mutant.file.endswith(".py"):
        compile(broken, mutant.file, "exec")


def test_every_mutant_was_noticed() -> None:
    noticed = load("mutants").notes
    assert [mutant.name for mutant in MUTANTS if noticed.get(mutant.name, "SURVIVES") == "SURVIVES"] == []
    assert set(noticed) <= {mutant.name for mutant in MUTANTS}
