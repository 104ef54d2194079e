"""``cdc diff``: the settings beside what was made and what the stores follow."""

from __future__ import annotations

from typing import Annotated

import orjson
import typer
from rich.console import Console
from rich.text import Text

from cdc.cli.terminal import TerminalConsole
from cdc.operate.diff import Difference, differences, silent
from cdc.process.errors import Exit
from cdc.wiring.pipeline import open_probes
from connectors.operate.check import ask_made
from sinks.contract.attempt_limits import looking
from sinks.contract.stores import open_store, sink_settings


def diff(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per difference.")] = False,
) -> None:
    """Compare the settings with what was made by them: publication, topics, stores and views.

    Each difference stands beside the command that ends it. Changes nothing. Exit code 0 where there is none, 1 where
    there are some. The code of the first part which does not answer, when one does not: it is not compared.
    """
    settings = context.obj.settings()
    with open_probes(settings) as probes, looking():
        made = ask_made(
            settings,
            probes,
            lambda name: open_store(name, settings),
            lambda name: sink_settings(name, settings),
        )
    found = differences(settings, made)
    console: Console = context.obj.console
    if as_json:
        for one in found:
            typer.echo(orjson.dumps(one.document()).decode())
    else:
        show(found, TerminalConsole())
    unasked = silent(made)
    for name, unknown in unasked.items():
        console.print(Text(f"{name} was not compared: {unknown}"), soft_wrap=True)
    if unasked:
        raise next(iter(unasked.values())).because
    if found:
        raise typer.Exit(Exit.DIFFERENCE)
    console.print("The pipeline is as the settings say.", highlight=False)


def show(found: list[Difference], console: Console) -> None:
    """Each with the command that ends it."""
    for one in found:
        console.print(Text.assemble((f"{one.part}: ", "bold"), one.what), soft_wrap=True)
        if one.cure:
            console.print(Text(f"  {one.cure}", style="cyan"), soft_wrap=True)
