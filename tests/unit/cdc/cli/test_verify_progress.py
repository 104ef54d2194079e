"""How far a comparison is, where nobody looks at a terminal."""

from __future__ import annotations

import io

from rich.console import Console

from cdc.cli.verify import ReadLines
from cdc.clock import ManualClock
from cdc.topic import TableName


def test_each_side_tells_its_rows_every_ten_seconds() -> None:
    clock, out, table = ManualClock(), io.StringIO(), TableName("public", "[b]odd")
    with ReadLines(Console(file=out, width=40), clock) as lines:
        for _ in range(23):
            lines.reading("source", table, 50_000)
            lines.reading("cache", table, 1_000)
            clock.advance(1)
        lines.looking(1, 0)
        lines.looking(2, 1_200)
    assert out.getvalue().splitlines() == [
        "source: public.[b]odd: 550,000 rows read",
        "cache: public.[b]odd: 11,000 rows read",
        "source: public.[b]odd: 1,050,000 rows read",
        "cache: public.[b]odd: 21,000 rows read",
        "look 2: 1,200 keys again, behind a new fence",
    ]


def test_a_quick_comparison_says_nothing() -> None:
    out = io.StringIO()
    with ReadLines(Console(file=out), ManualClock()) as lines:
        lines.reading("source", TableName("public", "a"), 7)
        lines.looking(1, 0)
    assert not out.getvalue()
