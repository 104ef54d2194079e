"""The manual quotes the figures that were counted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.faults.results import Figures, load, notes_table, save, table

MANUAL = Path(__file__).parent / "README.md"


@pytest.mark.parametrize("name", ["results", "mutants"])
def test_the_manual_quotes_the_results(name: str, rewrite: bool) -> None:
    quoted = table() if name == "results" else notes_table("mutants", ("rule broken", "noticed by"))
    marked = re.compile(rf"(<!-- {name} -->\n)(.*?)(<!-- /{name} -->)", re.DOTALL)
    text = MANUAL.read_text(encoding="utf-8")
    if rewrite:
        text = marked.sub(lambda found: found[1] + quoted + found[3], text)
        MANUAL.write_text(text, encoding="utf-8")
    found = marked.search(text)
    assert found is not None
    assert found[2] == quoted, "run pytest tests/faults --rewrite"


def test_figures_add_up_over_runs(tmp_path: Path) -> None:
    assert load("kills", tmp_path) == Figures()
    figures = Figures(next_seed=3, seconds=1.5)
    figures.add({"kills": 3})
    figures.peak({"memory_mb": 71.5})
    save("kills", figures, tmp_path)
    again = load("kills", tmp_path)
    again.add({"kills": 2, "lost": 0})
    again.peak({"memory_mb": 60})
    assert again.sums == {"kills": 5, "lost": 0}
    assert again.peaks == {"memory_mb": 71.5}
    save("kills", again, tmp_path)
    assert "| kills | 3 | 2 s | 5 kills; 0 lost; at most 71.5 memory_mb |" in table(tmp_path)
