"""The manual of DataFrames and the code say the same."""

from __future__ import annotations

import re
from pathlib import Path

from spark.frames.frame_columns import OWN
from spark.frames.options import NAMES

MANUAL = Path(__file__).parents[2] / "spark" / "FRAMES.md"
_OPTIONS = re.compile(r"(<!-- options -->\n)(.*?)(<!-- /options -->)", re.DOTALL)


def table() -> str:
    """Every option, a row each."""
    rows = [f"| `{name}` | {text.replace('|', '')} |" for name, text in NAMES.items()]
    return "\n".join(["| option | what it is |", "| --- | --- |", *rows, ""])


def test_the_table_of_options_is_that_of_the_code(rewrite: bool) -> None:
    text = MANUAL.read_text(encoding="utf-8")
    if rewrite:
        text = _OPTIONS.sub(lambda found: found[1] + table() + found[3], text)
        MANUAL.write_text(text, encoding="utf-8")
    found = _OPTIONS.search(text)
    assert found is not None
    assert found[2] == table(), "run pytest tests/docs --rewrite"


def test_each_column_of_ours_is_explained() -> None:
    text = MANUAL.read_text(encoding="utf-8")
    assert [name for name, _ in OWN if f"`{name}`" not in text] == []
