"""``cdc events``: the changes, as a person reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from cdc.cli import completion
from cdc.cli.terminal import echo
from cdc.process.errors import UsageError
from cdc.record.topic_names import TableName
from cdc.settings.model import Settings
from cdc.wire.events import Change, PublishedEvent, short_names
from cdc.wiring import follow_events, open_changes


def events(
    context: typer.Context,
    table: Annotated[
        str | None,
        typer.Argument(help="Only this table, with or without its schema.", autocompletion=completion.tables),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="Start with what the log holds.")] = False,
    history: Annotated[bool, typer.Option("--history", help="Every change that [history] keeps of it.")] = False,
    until_caught_up: Annotated[
        bool, typer.Option("--until-caught-up", help="Stop at the log's end instead of waiting for more.")
    ] = False,
) -> None:
    """Print changes as they come: table and key, what happened, where in the log, the new values and the old.

    Documents of a view, too, where TABLE names it: view.NAME. Events of the outbox, where it is outbox, or outbox.TYPE.

    Ends with Ctrl-C, or by itself with --until-caught-up.
    """
    settings = context.obj.settings()
    if settings.outbox is not None and table is not None and f"{table}.".startswith("outbox."):
        chosen_type = table.partition(".")[2]
        print_outbox(
            follow_events(settings, chosen_type, from_beginning=from_beginning, until_caught_up=until_caught_up),
            as_json=as_json,
        )
        return
    changes = open_changes(settings)
    chosen = choose(changes.tables if table else of_tables(changes.tables, settings), table)
    names = short_names(changes.tables)
    for batch in changes.follow(
        chosen, from_beginning=from_beginning, until_caught_up=until_caught_up, history=history
    ):
        for change in in_order(batch):
            if as_json:
                typer.echo(change.json())
            else:
                echo(change.line(names[change.table]))


def print_outbox(batches: Iterator[list[PublishedEvent]], *, as_json: bool) -> None:
    """Print outbox events as they come."""
    for batch in batches:
        for change in sorted(batch, key=lambda one: one.position):
            if as_json:
                typer.echo(change.json())
            else:
                echo(change.line())


def choose(tables: list[TableName], wanted: str | None) -> list[TableName]:
    """The tables meant by ``wanted``: all, or those called so. UsageError when there is none."""
    chosen = [table for table in tables if wanted in (None, table.table, str(table))]
    if not chosen:
        known = ", ".join(map(str, tables)) or "none yet: cdc snapshot or cdc connect deploy comes first"
        raise UsageError(f"no table {wanted or ''} is captured".replace("  ", " "), hint=f"the tables are {known}")
    return chosen


def of_tables(tables: list[TableName], settings: Settings) -> list[TableName]:
    """Those that are no views: of a change of a table the documents are printed where they are asked for."""
    return [table for table in tables if not settings.views or table.schema != "view"]


def in_order(batch: list[Change]) -> list[Change]:
    """By position, as far as one batch goes: partitions are read side by side."""
    return sorted(batch, key=lambda change: change.position or (0, 0, 0))
