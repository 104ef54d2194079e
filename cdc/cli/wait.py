"""``cdc wait``: return when a store shows an LSN."""

from __future__ import annotations

from typing import Annotated

import typer

from cdc.cli import completion
from cdc.process.errors import UsageError
from cdc.record.position import Lsn
from cdc.record.tokens import Token
from cdc.wiring.sinks import Freshness


def wait(
    context: typer.Context,
    sink: Annotated[
        str, typer.Argument(help="The store, by its name in the settings.", autocompletion=completion.sinks)
    ],
    token: Annotated[
        str,
        typer.Argument(
            metavar="LSN",
            help="What pg_current_wal_insert_lsn() said after the commit, or a token of cdc.read.",
        ),
    ],
    table: Annotated[
        str, typer.Option("--table", help="Wait for this table or view too (view.NAME), if the store holds it back.")
    ] = "",
    timeout_s: Annotated[float, typer.Option("--timeout", help="Seconds to wait at most.", min=0)] = 30.0,
) -> None:
    """Return when SINK shows everything committed below LSN, and print what it shows.

    Exit code 1 when that takes longer than --timeout.
    """
    place = Token.parse(token) if "/" in token.partition(":")[0] and ":" in token else _lsn(token)
    settings = context.obj.settings()
    with Freshness(settings) as freshness:
        shown = str(Lsn(freshness.wait(sink, place, timeout_s=timeout_s, table=table).lsn))
        if freshness.unsure:
            context.obj.console.print(freshness.unsure, style="yellow", highlight=False, soft_wrap=True)
        for words in freshness.waiting(sink):
            context.obj.console.print(words, style="yellow", highlight=False, soft_wrap=True)
    typer.echo(shown)


def _lsn(token: str) -> Lsn:
    try:
        return Lsn.parse(token)
    except ValueError:
        raise UsageError(
            f"{token} is not an LSN", hint="take it from select pg_current_wal_insert_lsn(); it looks like 0/16B3D48"
        ) from None
