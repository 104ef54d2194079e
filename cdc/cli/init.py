"""``cdc init``: the publication and the topics, and a new epoch where changes were lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from cdc.process.clock import SYSTEM_CLOCK
from cdc.process.errors import UsageError
from cdc.record.position import Lsn
from cdc.settings.model import Settings
from cdc.wiring.pipeline import accept_server, begin_epoch, prepare_pipeline

if TYPE_CHECKING:
    from connectors.operate.init import Prepared as PreparedPipeline
    from connectors.operate.new_epoch import Successor


def init(
    context: typer.Context,
    new_epoch: Annotated[
        bool, typer.Option("--new-epoch", help="Begin anew after a lost slot or on another server. Stores stay.")
    ] = False,
    accept_promotion: Annotated[
        bool,
        typer.Option(
            "--accept-promotion", help="Go on with another server of the same history: promoted, or from pg_upgrade."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --new-epoch: do not ask for the slot's name.")] = False,
) -> None:
    """Make the publication (or check the one that exists) and the topics.

    Safe to run again: what is there is checked, what is missing is made. --new-epoch drops the slot, if it is still
    there, and lets cdc snapshot read every table again, above all that was written before. Topics and stores stay.

    --accept-promotion proves that another server took the place of the first one with the same history, and has cdc run
    go on there without a snapshot.
    """
    invocation = context.obj
    settings = invocation.settings()
    if settings.debezium is not None and settings.debezium.database != "postgres":
        settings.require_native("cdc init")
    console = invocation.console
    if new_epoch and accept_promotion:
        raise UsageError("--new-epoch and --accept-promotion exclude each other", hint="choose one of them")
    if accept_promotion:
        settings.require_native("cdc init --accept-promotion")
        show_accepted(accept_server(settings, SYSTEM_CLOCK), console)
    if new_epoch:
        settings.require_native("cdc init --new-epoch")
        if not yes:
            confirm(settings, console)
        epoch, prepared = begin_epoch(settings, SYSTEM_CLOCK)
        console.print(f"epoch {epoch} begins", highlight=False)
        show(settings, prepared, console)
        return
    show(settings, prepare_pipeline(settings), console)


def show_accepted(server: Successor | None, console: Console) -> None:
    """Show the server that capture goes on with."""
    if server is None:
        console.print("the server is the pipeline's already", highlight=False)
        return
    slot = server.slot
    where = f"system {slot.system_identifier}, timeline {slot.timeline}: cdc run goes on from {Lsn(server.lsn)}"
    console.print(where, highlight=False, soft_wrap=True)


def confirm(settings: Settings, console: Console) -> None:
    """UsageError unless the slot's name is typed back."""
    console.print(
        f"This drops the slot {settings.slot} if it is still there; every table has to be read again.",
        highlight=False,
        soft_wrap=True,
    )
    typed = typer.prompt("Type the slot's name to go on", default="", show_default=False, err=True)
    if typed.strip() != settings.slot:
        raise UsageError("that is not the slot's name: nothing was changed", hint=f"the slot is {settings.slot}")


def show(settings: Settings, prepared: PreparedPipeline, console: Console) -> None:
    """Show the parts that were made and those that were there."""
    made = "made" if prepared.publication_made else "checked"
    console.print(
        f"publication {settings.publication}: {made}, {len(prepared.tables)} tables", highlight=False, soft_wrap=True
    )
    for table, topic in prepared.tables.items():
        console.print(f"  {table} -> {topic}", highlight=False, soft_wrap=True, markup=False)
    checked = "" if prepared.topics_made else ", all there already"
    console.print(f"topics: {len(prepared.topics_made)} made{checked}", highlight=False, soft_wrap=True)
    for table in prepared.late:
        console.print(f"{table} came after the slot: cdc run reads its rows", highlight=False, soft_wrap=True)
    console.print(f"next: {following(settings, prepared)}", highlight=False, soft_wrap=True)


def following(settings: Settings, prepared: PreparedPipeline) -> str:
    """The step behind ``cdc init``."""
    if settings.source.kind == "debezium":
        return "cdc connect deploy"
    if not prepared.begun:
        return "cdc snapshot"
    if prepared.late:
        return "start cdc run again, then cdc sink: those that run know the settings of their start"
    return "cdc run"
