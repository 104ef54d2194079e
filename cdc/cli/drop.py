"""``cdc drop``: the end of a pipeline on the source."""

from __future__ import annotations

from typing import Annotated

import typer

from cdc.process.errors import UsageError
from cdc.record.server_facts import Owner
from cdc.wiring.pipeline import open_drop


def drop(
    context: typer.Context,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for the slot's name.")] = False,
    topics: Annotated[bool, typer.Option("--topics", help="Delete the pipeline's topics, too.")] = False,
) -> None:
    """Drop the slot and the publication. The slot's name has to be typed back.

    The stores stay as they are, and so do the topics unless --topics is given. There is no way back: a later
    start needs a new snapshot. With --yes only a slot that the pipeline's state names as its own is dropped.
    """
    settings, console = context.obj.settings(), context.obj.console
    ending = open_drop(settings)
    if not yes:
        owner = ending.owner()
        if owner is not None and owner is not Owner.OURS:
            console.print(f"Beware: {owner.value}.", style="bold red", highlight=False, soft_wrap=True)
        console.print(
            f"This drops the slot {settings.slot} and the publication {settings.publication}"
            f"{' and deletes every topic of the pipeline' if topics else ''}.",
            highlight=False,
            soft_wrap=True,
        )
        typed = typer.prompt("Type the slot's name to go on", default="", show_default=False, err=True)
        if typed.strip() != settings.slot:
            raise UsageError("that is not the slot's name: nothing was dropped", hint=f"the slot is {settings.slot}")
    for line in ending.run(topics=topics, sure=not yes):
        console.print(line, highlight=False, soft_wrap=True, markup=False)
