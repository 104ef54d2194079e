"""What others named or said is shown on a terminal, and never obeyed by it."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cdc.checks.findings import Finding, Level
from cdc.cli.check import show as show_findings
from cdc.cli.diff import show as show_differences
from cdc.cli.status import view
from cdc.cli.terminal import TerminalConsole, echo, readable, report
from cdc.cli.verify import ReadLines
from cdc.cli.verify import show as show_verification
from cdc.operate.diff import Difference
from cdc.process.clock import ManualClock
from cdc.process.errors import SourceError
from cdc.record.topic_names import TableName
from cdc.status.pace import LiveLooks
from cdc.verification.result import StoreVerdict, VerificationReport
from tests.unit.cdc.status.test_live_looks import seen
from tests.unit.cdc.status.test_rules import FACTS
from tests.unit.cdc.status.test_status_faults import aside

COMMANDS = "x\x1b[2J\x1b]0;owned\x07\x9b2J\u202eabc\udcff\x7f[/]"
"""Clears the screen twice, sets the title, turns the writing around, cannot be encoded, and is no markup."""
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


_QUOTES_NOBODY = r"orjson|change\.json|view\.shown|example_text|question|f.headrace|shown\)"


def printed() -> tuple[TerminalConsole, io.StringIO]:
    out = io.StringIO()
    return TerminalConsole(file=out, width=80, force_terminal=True, color_system=None), out


@given(st.text(st.characters()))
def test_h271_no_character_that_is_obeyed_is_left(text: str) -> None:
    shown = readable(text)
    assert len(shown) == len(text)
    assert not _OBEYED.search(shown)
    assert readable(shown) == shown
    shown.encode()


def test_usual_text_stays() -> None:
    assert readable("größe 表\t[42]\n") == "größe 表\t[42]\n"


def test_h271_status_shows_a_name_and_does_not_obey_it() -> None:
    facts = replace(FACTS, tables=2, asides={COMMANDS: aside(COMMANDS)}, sinks=[replace(FACTS.sinks[0], name=COMMANDS)])
    one = seen(facts, LiveLooks(), 0)
    for page in (view(one.shown, one), view(one.shown)):
        console, out = printed()
        console.print(page)
        assert not _OBEYED.search(out.getvalue())
        assert "x␛[2J␛]0;owned" in out.getvalue()


def test_h271_check_diff_verify_and_errors_show_names() -> None:
    console, out = printed()
    show_findings([Finding(part=COMMANDS, check="x", level=Level.FAIL, message=COMMANDS, fix=COMMANDS)], console)
    show_differences([Difference(part=COMMANDS, what=COMMANDS, cure=COMMANDS)], console)
    verdict = StoreVerdict(table=TableName("public", COMMANDS), sink=COMMANDS)
    show_verification(
        VerificationReport(verdicts=[verdict], fence=1, looks=1, not_compared={COMMANDS: COMMANDS}), console
    )
    report(SourceError(COMMANDS, hint=COMMANDS), console)
    clock = ManualClock()
    with ReadLines(console, clock) as lines:
        for _ in range(2):
            lines.reading("cache", TableName("public", COMMANDS), 1)
            clock.advance(11)
    assert not _OBEYED.search(out.getvalue())
    assert out.getvalue().count("x␛[2J") >= 10


def test_h271_a_drawn_page_keeps_its_own_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """Those that move the cursor are the console's. A table's cells and their styles stay whole."""
    console, out = printed()
    table = Table(box=None)
    table.add_column("name")
    table.add_row(COMMANDS)
    table.add_row(Text.assemble(("ab\x1b", "bold"), "cd"))
    with Live(Text("first"), console=console, auto_refresh=False) as live:
        live.update(table, refresh=True)
    assert "\x1b[?25l" in out.getvalue()
    assert "\x1b[2J" not in out.getvalue()
    assert "ab␛cd" in out.getvalue()
    echo(COMMANDS)
    echo(COMMANDS, err=True)
    said = capsys.readouterr()
    assert said.out == said.err == f"{readable(COMMANDS)}\n"


def test_h271_every_command_prints_by_it() -> None:
    """Lines of JSON and a prompt's question apart, which quote nobody or escape whom they quote."""
    for path in Path("cdc/cli").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        if path.name != "terminal.py":
            assert not re.findall(r"(?<!\w)Console\((?:\)|stderr|soft)", text), path
            bare = re.findall(r"typer\.echo\(\s*(\S.*)", text)
            assert [one for one in bare if not re.match(_QUOTES_NOBODY, one)] == [], path
