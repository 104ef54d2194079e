"""``cdc dead``: what a store refused, and the keys that wait behind it."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.table import Table

from cdc.dead import DeadLetter, Parked, Why
from cdc.errors import UsageError
from cdc.wiring.dead import read_letters

dead = typer.Typer(name="dead", help="Look at what a store refused.", no_args_is_help=True)


@dead.command("list")
def list_letters(
    context: typer.Context,
    sink: Annotated[str | None, typer.Argument(help="Only this store's.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """List the letters that wait: the record that was refused and, behind it, the later ones of its key."""
    letters = waiting(read_letters(context.obj.settings()), sink)
    if as_json:
        for letter in letters:
            typer.echo(orjson.dumps(document(letter)).decode())
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("store", "what", "record", "key", "reason"):
        table.add_column(title, overflow="fold")
    for letter in letters:
        table.add_row(letter.sink, letter.why.value, place(letter), shown(letter.key), letter.reason)
    Console().print(table if letters else "no dead letters")


@dead.command("show")
def show_letter(
    context: typer.Context,
    sink: Annotated[str, typer.Argument(help="The store.")],
    record: Annotated[str, typer.Argument(help="TOPIC/PARTITION/OFFSET, as cdc dead list prints it.")],
) -> None:
    """Print one letter whole, its value too, as JSON."""
    found = [one for one in read_letters(context.obj.settings()) if (one.sink, place(one)) == (sink, record)]
    if not found:
        raise UsageError(f"{sink} has no dead letter {record}", hint="cdc dead list prints them all")
    whole = document(found[-1]) | {"value": shown(found[-1].value), "headers": _headers(found[-1])}
    typer.echo(orjson.dumps(whole, option=orjson.OPT_INDENT_2).decode())


def waiting(letters: Iterable[DeadLetter], sink: str | None) -> list[DeadLetter]:
    """The letters that have not been released: those of parked keys, and those that are no record of ours."""
    every = list(letters)
    parked = {name: Parked(name, every).keys() for name in {letter.sink for letter in every}}
    return [
        letter
        for letter in every
        if sink in (None, letter.sink)
        and letter.why is not Why.RELEASED
        and (not letter.parks or letter.key in parked[letter.sink].get(letter.topic, ()))
    ]


def place(letter: DeadLetter) -> str:
    """Where the record stands: ``shop.public.orders/0/4711``."""
    return f"{letter.topic}/{letter.partition}/{letter.offset}"


def document(letter: DeadLetter) -> dict[str, Any]:
    """A letter as JSON, without its value."""
    return {
        "sink": letter.sink,
        "why": letter.why.value,
        "record": place(letter),
        "key": shown(letter.key),
        "reason": letter.reason,
    }


def shown(data: bytes | None) -> str | None:
    """Bytes as text, or in base64 where they are none."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"base64:{base64.b64encode(data).decode()}"


def _headers(letter: DeadLetter) -> dict[str, str | None]:
    return {name: shown(value) for name, value in letter.headers}
