from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass

from rich.console import Console

from cdc.cli.snapshot import Bars, Lines, progress_on, show
from cdc.process.clock import ManualClock
from cdc.record.position import Lsn
from snapshot.first.summary import Summary, TableSummary


@dataclass(frozen=True)
class Totals:
    row_estimate: int
    size_bytes: int


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def plain() -> Console:
    return Console(file=io.StringIO(), width=80)


def summary(**more: object) -> Summary:
    orders = TableSummary(table="public.orders", rows=1_000_000, size_bytes=643_834_688, chunks=17, duration_s=4.0)
    odd = TableSummary(table="public.[bold]odd", rows=0, size_bytes=0, chunks=1, duration_s=0.0, gone=True)
    values: dict[str, object] = {
        "tables": (orders, odd),
        "rows": 1_000_000,
        "size_bytes": 643_834_688,
        "read_s": 4.0,
        "elapsed_s": 5.3,
        "consistent_point": Lsn(0x16B3D48),
        "last_cut_lsn": Lsn(0x16B3D50),
    }
    return Summary(**{**values, **more})  # type: ignore[arg-type]


def test_the_summary_is_a_line_per_table_and_fits_80_columns() -> None:
    console = plain()
    show(summary(), console)
    text = written(console)
    assert "public.orders" in text
    assert "1,000,000  614.0 MB  4.0 s  250,000" in text
    assert "public.[bold]odd (dropped meanwhile)" in text
    assert "2 tables" in text
    assert "consistent point 0/16B3D48" in text
    assert "has passed 0/16B3D50" in text
    assert "next: cdc run" in text
    assert max(len(line) for line in text.splitlines()[:4]) <= 80


def test_a_snapshot_that_was_complete_says_so() -> None:
    console = plain()
    show(summary(already_complete=True, requests=("public.orders was rewritten",)), console)
    text = written(console)
    assert "nothing was left to do" in text
    assert "public.orders was rewritten: it has to be read again" in text
    assert "cdc run" not in text


def test_a_pipe_gets_a_table_now_and_then_and_once_when_done() -> None:
    console, clock = plain(), ManualClock()
    lines = Lines(console, clock)
    lines.plan({"public.a": Totals(1000, 81920), "public.b": Totals(0, 0)})
    for share in (0.1, 0.2):
        lines.progress("public.a", int(share * 1000), share)
    clock.advance(11)
    lines.progress("public.a", 300, 0.3)
    lines.progress("public.a", 310, 0.31)
    for _ in range(2):
        lines.progress("public.a", 1000, 1.0)
    assert written(console).splitlines() == [
        "2 tables, about 1,000 rows, 80.0 kB",
        "public.a: 300 rows, 30%",
        "public.a: 1,000 rows, done",
    ]


def test_on_a_terminal_there_are_bars() -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    with progress_on(console) as reporter:
        assert isinstance(reporter, Bars)
        reporter.plan({"public.[red]a": Totals(10, 8192)})
        reporter.say("a word [bold]as it is")
        reporter.progress("public.[red]a", 10, 1.0)
        reporter.plan({})
    text = written(console)
    assert "public.[red]a" in text
    assert "a word [bold]as it is" in text


def test_of_very_many_tables_those_that_are_read_have_bars() -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    many: Mapping[str, Totals] = {f"t{n:04}": Totals(1, 1) for n in range(50)}
    with progress_on(console) as reporter:
        assert isinstance(reporter, Bars)
        reporter.plan(many)
        reporter.progress("t0042", 5, 0.5)
        reporter.progress("t0001", 5, 1.0)
    text = written(console)
    assert "t0042" in text
    assert "t0041" not in text
