"""``cdc rebuild``: a store anew from the log, beside the one in use, then an atomic switch."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from cdc.cli import completion
from cdc.process import logs
from cdc.wiring.sinks import open_rebuild


def rebuild(
    context: typer.Context,
    sink: Annotated[str, typer.Argument(help="The store.", autocompletion=completion.sinks)],
    rollback: Annotated[
        bool, typer.Option("--rollback", help="Go back to the generation before the last rebuild.")
    ] = False,
) -> None:
    """Build a store anew from the log beside the one in use, and switch readers to it when it is level.

    Postgres is not asked for anything, and cdc sink goes on meanwhile. It follows the switch by itself. Stopped or
    killed anywhere, the same command goes on. The old generation is kept until the next rebuild.
    """
    settings = context.obj.settings()
    console = context.obj.console
    if rollback:
        with open_rebuild(settings, sink) as back:
            done = back.roll_back()
        console.print(f"{sink} shows generation {done.previous} again", highlight=False)
        return
    logs.configure(max(0, context.obj.verbosity - 1))
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task(f"rebuild of {sink}", total=1.0)
        told: set[str] = set()

        def tell(words: str, share: float | None) -> None:
            progress.update(bar, description=words, completed=share)
            quarter = f"{int(share * 4) * 25} %" if share else ""
            line = f"{words} {quarter}".rstrip()
            if (share is None or not console.is_terminal) and line not in told:
                told.add(line)
                console.print(line, highlight=False)

        with open_rebuild(settings, sink) as rebuilding:
            done = rebuilding.run(tell)
    console.print(
        f"{sink} shows generation {done.generation}; cdc rebuild {sink} --rollback goes back to {done.previous}",
        highlight=False,
        soft_wrap=True,
    )
