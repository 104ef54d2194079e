"""``cdc share``: how many applications feed a store."""

from __future__ import annotations

from typing import Annotated

import typer

from cdc.cli import completion
from cdc.lsn import Lsn
from cdc.wiring.shares import change_shares


def share(
    context: typer.Context,
    sink: Annotated[str, typer.Argument(help="The store.", autocompletion=completion.sinks)],
    count: Annotated[int, typer.Argument(help="How many applications feed it. 1: one, of all tables.")],
) -> None:
    """Have a store fed by so many applications, each started as cdc sink --share 1/3, 2/3 and 3/3.

    Stop those that feed it before. One that still runs ends with exit 83. Each table is read on from where it was.
    Killed anywhere, the same command goes on.
    """
    mark = change_shares(context.obj.settings(), sink, count)
    each = f"cdc sink {sink}" if count == 1 else f"cdc sink {sink} --share 1/{count} to --share {count}/{count}"
    shown = f"; it shows {Lsn(mark.lsn)}" if mark is not None else ""
    context.obj.console.print(f"{sink} is fed by {each}{shown}", highlight=False, soft_wrap=True)
