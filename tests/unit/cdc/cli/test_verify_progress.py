"""How far a comparison is, where nobody looks at a terminal."""

from __future__ import annotations

import io

from rich.console import Console

from cdc.cli.terminal import TerminalConsole
from cdc.cli.verify import Looking, ReadLines
from cdc.process.clock import ManualClock
from cdc.record.topic_names import TableName


def test_what_is_read_is_told_every_ten_seconds() -> None:
    clock, out, table = ManualClock(), io.StringIO(), TableName("public", "[b]odd")
    with ReadLines(Console(file=out, width=40), clock) as lines:
        for _ in range(23):
            lines.reading("source", table, 50_000)
            lines.reading("cache", table, 1_000)
            clock.advance(1)
        lines.looking(1, 0)
        lines.looking(2, 1_200)
    assert out.getvalue().splitlines() == [
        "source: public.[b]odd: 550,000 rows read, cache: public.[b]odd: 10,000 rows read",
        "cache: public.[b]odd: 20,000 rows read, source: public.[b]odd: 1,050,000 rows read",
        "look 2: 1,200 keys again, behind a new fence",
    ]


def test_many_stores_are_one_line_every_ten_seconds() -> None:
    clock, out, table = ManualClock(), io.StringIO(), TableName("public", "a")
    with ReadLines(Console(file=out), clock) as lines:
        for _ in range(60):
            for store in range(8):
                lines.reading(f"cache-{store}", table, 100)
            clock.advance(1)
    said = out.getvalue().splitlines()
    assert len(said) == 5
    assert all(line.endswith("and 4 more") for line in said[1:])


def test_another_look_counts_its_rows_anew() -> None:
    clock, out, table = ManualClock(), io.StringIO(), TableName("public", "a")
    with ReadLines(Console(file=out), clock) as lines:
        lines.reading("cache", table, 1_000_000)
        lines.looking(2, 30_000)
        clock.advance(11)
        lines.reading("cache", table, 500_000)
    assert "cache: public.a: 500,000 rows read" in out.getvalue()


def test_another_look_begins_its_bars_anew() -> None:
    out, table = io.StringIO(), TableName("public", "a")
    with Looking(TerminalConsole(file=out, force_terminal=True, width=80)) as bars:
        bars.reading("cache", table, 1_000_000)
        bars.looking(2, 30_000)
        bars.reading("cache", table, 500_000)
    assert "500,000 rows" in out.getvalue()
    assert "1,500,000" not in out.getvalue()


def test_a_quick_comparison_says_nothing() -> None:
    out = io.StringIO()
    with ReadLines(Console(file=out), ManualClock()) as lines:
        lines.reading("source", TableName("public", "a"), 7)
        lines.looking(1, 0)
    assert not out.getvalue()
