"""``cdc check``: what would stop this from working, and the SQL or command that fixes it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Annotated

import orjson
import typer
from rich.console import Console
from rich.text import Text

from cdc.checks.findings import Finding, Level, exit_code
from cdc.checks.preflight import preflight
from cdc.cli.terminal import TerminalConsole
from cdc.process.errors import CdcError, Exit
from cdc.wiring.debezium import check_connect
from cdc.wiring.pipeline import open_probes

_STYLES = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "bold red"}


def check(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Look at every precondition on every part, and print what fixes each.

    Changes nothing. Exit code 0 when all of it can work (warnings allowed), else that of the first failure.
    """
    settings = context.obj.settings()
    with open_probes(settings) as probes:
        findings = list(preflight(settings, probes))
    if settings.debezium is not None:
        findings += check_connect(settings)
    if as_json:
        typer.echo(orjson.dumps([f.document() for f in findings], option=orjson.OPT_INDENT_2).decode())
    else:
        show(findings, TerminalConsole())
    conclude(findings)


def show(findings: Iterable[Finding], console: Console) -> None:
    """The findings by part, each with its fix below it."""
    for part, found in groupby(findings, key=lambda f: f.part):
        console.print(Text(part, style="bold"))
        for finding in found:
            label = Text(f"  {finding.level.value:<5}", style=_STYLES[finding.level])
            console.print(Text.assemble(label, finding.message), soft_wrap=True)
            if finding.fix and finding.level is not Level.OK:
                console.print(Text.assemble("       fix: ", (finding.fix, "cyan")), soft_wrap=True)


def conclude(findings: list[Finding]) -> None:
    """Return where no check failed. Raises CdcError with the first failure's words and exit code."""
    failed = [f for f in findings if f.level is Level.FAIL]
    if exit_code(findings) is Exit.OK:
        return
    first = failed[0]
    more = f", and {len(failed) - 1} more above" if len(failed) > 1 else ""
    raise CdcError(f"{first.part}: {first.message}{more}", hint=first.fix, exit=first.exit)
