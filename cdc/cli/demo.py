"""``cdc demo``: the whole story on a local stack."""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from cdc.demo.shop import ShopSize
from cdc.demo.shop_views import stop_kept
from cdc.demo.story import Story


def demo(
    context: typer.Context,
    folder: Annotated[Path, typer.Option("--dir", help="Folder for the demo's servers, data and logs.")] = Path(
        ".cdc/demo"
    ),
    keep: Annotated[bool, typer.Option("--keep", help="Leave everything running at the end.")] = False,
    stop: Annotated[
        bool, typer.Option("--stop", help="End a demo that was left running, and remove its data.")
    ] = False,
    duration_s: Annotated[float, typer.Option("--seconds", help="How long the shop lives.", min=1)] = 20.0,
    orders: Annotated[int, typer.Option("--orders", help="Orders to begin with, four rows each.", min=100)] = 30_000,
) -> None:
    """Start the servers, fill a shop, follow it and two views of it into three stores, and prove them equal.

    Takes two to four minutes and about 3 GB of memory. No process is left behind, also after Ctrl-C,
    unless --keep asks for it.
    """
    console = context.obj.console
    if stop:
        console.print("the demo is stopped" if stop_kept(folder) else f"no demo runs in {folder}", highlight=False)
        return
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    Story(folder, console, ShopSize(orders=orders), duration_s, keep).tell()


def _interrupt(number: int, frame: FrameType | None) -> None:
    """A polite end is cleaned up after as Ctrl-C is."""
    raise KeyboardInterrupt
