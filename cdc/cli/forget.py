"""``cdc forget``: what still holds a deleted row, and until when."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import orjson
import typer
from rich.console import Console
from rich.text import Text

from cdc import logs
from cdc.cli import completion
from cdc.cli.terminal import TerminalConsole
from cdc.clock import SYSTEM_CLOCK
from cdc.forget.holding import OUTSIDE, ForgetReport, state_word
from cdc.forget.rules import conclude
from cdc.forget.run import ForgetWish
from cdc.found import Unknown
from cdc.wiring.dead import open_letters
from connectors.forgetting import forget_of

_STYLES = {"gone": "green", "key": "green", "holds": "bold red", "may hold": "yellow", "unknown": "yellow"}


def forget(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="The table, as schema.table.", autocompletion=completion.tables)],
    key: Annotated[str, typer.Argument(help="The row's key: 42, 7:eu, or JSON of its columns.")],
    timeout_s: Annotated[
        float, typer.Option("--timeout", help="Seconds to wait for what goes by itself.", min=0)
    ] = 30.0,
    trim_letters: Annotated[
        bool,
        typer.Option(
            "--trim-letters", help="Delete dead letters that are dealt with, up to the first that is still needed."
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Find what still holds a row that was deleted in the source: topics, letters, stores, views.

    The row has to be gone in Postgres. Each place is looked at, what its own settings let go is let go, and what goes
    by itself is waited for. Then each stands in the report as gone, or with the time or event that ends it, or as not
    known. Exit code 0 when every place was seen and none holds a value of the row, 1 while one does. No setting of a
    topic is changed, and nothing is written to a table's topic.
    """
    logs.configure(max(0, context.obj.verbosity - 1))
    console: Console = context.obj.console
    wish = ForgetWish(table=table, key=key, trim_letters=trim_letters, timeout_s=timeout_s)
    settings = context.obj.settings()
    searching = forget_of(settings, wish, partial(open_letters, settings), SYSTEM_CLOCK)
    told: list[str] = []

    def tell(report: ForgetReport) -> None:
        words = ", ".join((*report.held, *report.unknown)) or "none"
        if told[-1:] != [words]:
            told.append(words)
            console.print(f"looked; left to be gone: {words}", highlight=False, markup=False, soft_wrap=True)

    report = searching.run(tell)
    if as_json:
        typer.echo(orjson.dumps(report.document() | {"other_keys": sorted(searching.others)}).decode())
    else:
        _show(report, TerminalConsole())
    if not report.seen and report.gone:
        words = "no place knows this key, not even as deleted: is it the one that you mean?"
        console.print(words, style="yellow", highlight=False, markup=False, soft_wrap=True)
    if searching.note:
        console.print(searching.note, style="yellow", highlight=False, markup=False, soft_wrap=True)
    for other in sorted(searching.others):
        words = f"the row had, or got, the key {other} as well: it was looked for under that one, too"
        console.print(words, style="yellow", highlight=False, markup=False, soft_wrap=True)
    conclude(report)


def _show(report: ForgetReport, console: Console) -> None:
    console.print(Text(f"{report.table} {report.typed}", style="bold"), soft_wrap=True)
    for place, looked in report.places.items():
        word = state_word(looked)
        console.print(Text.assemble(f"{place}: ", (_said(word), _STYLES[word])), soft_wrap=True)
        if isinstance(looked, Unknown):
            console.print(Text(f"  {looked}"), soft_wrap=True)
            continue
        for trace in looked:
            console.print(Text(f"  {trace.kept.value}: {trace.what}, until {trace.until}"), soft_wrap=True)
            if trace.cure:
                console.print(Text(f"    {trace.cure}", style="cyan"), soft_wrap=True)
    console.print(Text("not looked at:"), soft_wrap=True)
    for place in OUTSIDE:
        console.print(Text(f"  {place}"), soft_wrap=True)


def _said(word: str) -> str:
    return {"key": "gone, but for the key", "unknown": "not known"}.get(word, word)
