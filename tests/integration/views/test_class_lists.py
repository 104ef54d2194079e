"""What the class of views keeps of everyday queries, as the manual's tables say."""

from __future__ import annotations

import re

import psycopg
import pytest

from tests.integration.views.class_lists import ROOT, TITLES, Judged, judged

MANUAL = ROOT / "cdc" / "views" / "CLASS.md"
LEAST = {"pgsync": 14, "shop": 10, "tpch": 16}
"""How many of each list are kept at least."""


def _table(name: str, found: list[Judged]) -> str:
    kept = sum(not one.refusal for one in found)
    lines = [f"{kept} of {len(found)} are kept.", "", "| view | kept | reason |", "| --- | --- | --- |"]
    for one in found:
        lines.append(f"| {one.name} | {'no' if one.refusal else 'yes'} | {one.refusal.replace('|', chr(92) + '|')} |")
    return "\n".join(lines)


@pytest.mark.slow
@pytest.mark.parametrize("name", TITLES)
def test_the_manual_says_what_is_kept(database: str, name: str, rewrite: bool) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        found = judged(conn, database, name)
    assert sum(not one.refusal for one in found) >= LEAST[name], found
    table = _table(name, found)
    pattern = re.compile(rf"(## {re.escape(TITLES[name])}\n\n)(.*?)(?=\n## |\Z)", re.DOTALL)
    if rewrite:
        MANUAL.write_text(pattern.sub(lambda m: f"{m[1]}{table}\n", MANUAL.read_text()))
    text = pattern.search(MANUAL.read_text())
    assert text is not None
    assert text[2].strip() == table, "run pytest tests/integration/views --rewrite"
