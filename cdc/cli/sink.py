"""``cdc sink``: the stores, fed from the log by one Spark application."""

from __future__ import annotations

from typing import Annotated

import typer

from cdc import logs
from cdc.cli import completion
from cdc.shares import Share
from cdc.wiring.sinks import run_sinks


def sink(
    context: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...", help="Sinks of the settings, all by default.", autocompletion=completion.sinks
        ),
    ] = None,
    until_caught_up: Annotated[
        bool, typer.Option("--until-caught-up", help="End when each store shows what the topics hold now.")
    ] = False,
    share: Annotated[
        str, typer.Option("--share", metavar="I/N", help="Feed a share of the tables alone: 1/3, 2/3 and 3/3 all.")
    ] = "",
) -> None:
    """Feed the stores from the topics, each by its own query, until SIGTERM or Ctrl-C.

    A stop ends between two batches. A store that goes away is waited for. The others go on. Also ends when the
    file spark.stop appears in the checkpoint folder.
    """
    logs.configure(context.obj.verbosity)
    mine = Share.parse(share) if share else None
    run_sinks(context.obj.settings(), names or [], until_caught_up=until_caught_up, share=mine)
