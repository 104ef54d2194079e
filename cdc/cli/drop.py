"""``cdc drop``: the end of a pipeline on the source."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from cdc.checks.ownership import Owner
from cdc.errors import ConfigError, UsageError
from cdc.settings import Settings
from cdc.shard_plan import each_shard
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
    invocation = context.obj
    left: list[ConfigError] = []
    for settings in each_shard(invocation.settings()):
        try:
            _drop(settings, invocation.console, yes=yes, topics=topics)
        except ConfigError as of_another_role:
            left.append(of_another_role)
    if left:
        left[0].others = left[1:]
        raise left[0]


def _drop(settings: Settings, console: Console, *, yes: bool, topics: bool) -> None:
    ending = open_drop(settings)
    if not yes:
        owner = ending.owner()
        if owner is not None and owner is not Owner.OURS:
            console.print(f"Beware: {owner.value}.", style="bold red", highlight=False, soft_wrap=True)
        console.print(
            f"This drops the slot {settings.slot} and the publication {settings.publication}"
            f"{_of_topics(settings) if topics else ''}.",
            highlight=False,
            soft_wrap=True,
        )
        typed = typer.prompt("Type the slot's name to go on", default="", show_default=False, err=True)
        if typed.strip() != settings.slot:
            raise UsageError("that is not the slot's name: nothing was dropped", hint=f"the slot is {settings.slot}")
    for line in ending.run(topics=topics, sure=not yes):
        console.print(line, highlight=False, soft_wrap=True, markup=False)


def _of_topics(settings: Settings) -> str:
    return f" and deletes every topic of the {'shard' if settings.shard else 'pipeline'}"
