"""``cdc sink``: the stores, fed from the log by one Spark application."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from cdc.cli import completion
from cdc.cli.terminal import echo
from cdc.jvm.jars import spark_jars
from cdc.process import logs
from cdc.process.errors import UsageError
from cdc.wiring.sinks import run_sinks
from sinks.contract.stores import jar_sets, parts_of

if TYPE_CHECKING:
    from cdc.settings.model import Settings


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
    views: Annotated[
        bool, typer.Option("--views", help="Keep the views of the settings, too, as cdc view run does.")
    ] = False,
    jars: Annotated[
        bool, typer.Option("--jars", help="Print the jars that spark-submit has to be given, and feed nothing.")
    ] = False,
) -> None:
    """Feed the stores from the topics, each by its own query, until SIGTERM or Ctrl-C.

    A stop ends between two batches. A store that goes away is waited for. The others go on. Also ends when the
    file spark.stop appears in the checkpoint folder.
    """
    logs.configure(context.obj.verbosity)
    settings = context.obj.settings()
    if jars:
        echo(",".join(map(str, spark_jars(*jar_sets(parts_of(settings, names or []))))))
        return
    if views and until_caught_up:
        raise UsageError(
            "--until-caught-up ends before views have published",
            hint="cdc view run --until-caught-up first, then cdc sink --until-caught-up",
        )
    with _views_beside(settings) if views else nullcontext():
        run_sinks(settings, names or [], until_caught_up=until_caught_up)


def _views_beside(settings: Settings) -> AbstractContextManager[object]:
    from connectors.views.view_running import views_beside  # noqa: PLC0415 - it loads clients, which a completion does not need

    return views_beside(settings)
