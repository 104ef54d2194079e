"""``cdc forget``: what still shows a deleted row, and what each place keeps of it for how long."""

from __future__ import annotations

from typing import Annotated

import orjson
import typer
from rich.text import Text

from cdc.cli import completion
from cdc.cli.terminal import TerminalConsole
from cdc.process import logs
from connectors.operate.forget import forget_report


def forget(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="The table, as schema.table.", autocompletion=completion.tables)],
    key: Annotated[str, typer.Argument(help="The row's key: 42, 7:eu, or JSON of its columns.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Ask the topic and the stores for a row that was deleted, and say what each place keeps and for how long.

    The topic is read whole: the rows before the tombstone are compacted away or not yet. Each store is asked for the
    key. Exit code 0 when nothing shows values of the row, 1 while something does. Nothing is cleaned.
    """
    logs.configure(max(0, context.obj.verbosity - 1))
    report = forget_report(context.obj.settings(), table, key)
    if as_json:
        typer.echo(orjson.dumps(report.document()).decode())
    else:
        console = TerminalConsole()
        console.print(Text(f"{report.table} {report.key}", style="bold"), soft_wrap=True)
        for place, answer in report.answers.items():
            style = "bold red" if answer.shows else "green" if answer.failed is None else "yellow"
            console.print(Text.assemble(f"{place}: ", (answer.says, style)), soft_wrap=True)
        console.print(Text("kept of a deleted key:"), soft_wrap=True)
        for place, text in report.kept.items():
            console.print(Text(f"  {place}: {text}"), soft_wrap=True)
    report.conclude()
