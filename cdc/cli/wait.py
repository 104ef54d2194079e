"""``cdc wait``: return when a store shows an LSN."""

from __future__ import annotations

from typing import Annotated

import typer

from cdc.errors import UsageError
from cdc.lsn import Lsn
from cdc.wiring.freshness import Freshness


def wait(
    context: typer.Context,
    sink: Annotated[str, typer.Argument(help="The store, by its name in the settings.")],
    lsn: Annotated[str, typer.Argument(help="What pg_current_wal_insert_lsn() said after the commit.")],
    timeout_s: Annotated[float, typer.Option("--timeout", help="Seconds to wait at most.", min=0)] = 30.0,
) -> None:
    """Return when SINK shows everything committed below LSN, and print what it shows.

    Exit code 1 when that takes longer than --timeout.
    """
    try:
        wanted = Lsn.parse(lsn)
    except ValueError:
        raise UsageError(
            f"{lsn} is not an LSN", hint="take it from select pg_current_wal_insert_lsn(); it looks like 0/16B3D48"
        ) from None
    with Freshness(context.obj.settings()) as freshness:
        watermark = freshness.wait(sink, wanted, timeout_s=timeout_s)
        if freshness.unsure:
            context.obj.console.print(freshness.unsure, style="yellow", highlight=False, soft_wrap=True)
        for words in freshness.waiting(sink):
            context.obj.console.print(words, style="yellow", highlight=False, soft_wrap=True)
    typer.echo(str(Lsn(watermark.lsn)))
