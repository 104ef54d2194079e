"""Every rule that the laboratory breaks is still there to be broken, and is written down as noticed."""

from __future__ import annotations

import re

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
    named = re.findall(r"tests/[\w/]+\.py", str(mutant.tests))
    assert all((ROOT / path).is_file() for path in named), named


def test_each_mutant_stands_once() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert {name for name in names if names.count(name) > 1} == set()


def test_no_mutant_that_was_tried_survived() -> None:
    tried = load("mutants").parts
    assert [name for name, part in tried.items() if not part.code] == []
    assert set(tried) <= {mutant.name for mutant in MUTANTS}
