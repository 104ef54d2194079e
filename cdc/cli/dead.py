"""``cdc dead``: what a store refused, and the keys that wait behind it."""

from __future__ import annotations

import base64
from typing import Annotated, Any

import orjson
import typer

from cdc.cli import completion
from cdc.cli.terminal import echo
from cdc.process.errors import DifferenceFound, SinkError, UsageError
from cdc.record.topic_names import TableName, table_topic
from cdc.settings.model import Settings
from cdc.wire.dead_letter import CAPTURE, DeadLetter, Why, waiting
from cdc.wire.plain import escape_key, store_key
from cdc.wiring.sinks import open_letters
from sinks.contract.stores import sink_settings

_KEY_CHARACTERS = 100

dead = typer.Typer(name="dead", help="What a store refused: look at it, try it again, forget it.", no_args_is_help=True)


@dead.command("list")
def list_letters(
    context: typer.Context,
    sink: Annotated[str | None, typer.Argument(help="Only this store's.", autocompletion=completion.sinks)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """List the letters that wait: the record that was refused and, behind it, the later ones of its key.

    A long key is cut. --json prints it whole.
    """
    letters = [one for one in waiting(open_letters(context.obj.settings()).read()) if sink in (None, one.sink)]
    if as_json:
        for letter in letters:
            typer.echo(orjson.dumps(document(letter)).decode())
        return
    for letter in letters:
        echo(f"{letter.sink}  {letter.why.value}  {letter.address}  {_brief(shown(letter.key) or 'no key')}")
        echo(f"  {letter.reason}")
    if not letters:
        echo("no dead letters")


@dead.command("show")
def show_letter(
    context: typer.Context,
    sink: Annotated[str, typer.Argument(help="The store.", autocompletion=completion.sinks)],
    record: Annotated[str, typer.Argument(help="TOPIC/PARTITION/OFFSET, as cdc dead list prints it.")],
) -> None:
    """Print one letter whole, its value too, as JSON."""
    found = [one for one in open_letters(context.obj.settings()).read() if (one.sink, one.address) == (sink, record)]
    if not found:
        raise UsageError(f"{sink} has no dead letter {record}", hint="cdc dead list prints them all")
    whole = document(found[-1]) | {"value": shown(found[-1].value), "headers": _headers(found[-1])}
    typer.echo(orjson.dumps(whole, option=orjson.OPT_INDENT_2).decode())


@dead.command("retry")
def retry_letters(
    context: typer.Context,
    sink: Annotated[str | None, typer.Option(help="Only this store's.")] = None,
    table: Annotated[str | None, typer.Option(help="Only of this table, as schema.table.")] = None,
    key: Annotated[str | None, typer.Option(help="Only this key, as cdc dead list prints it.")] = None,
    timeout_s: Annotated[float, typer.Option("--timeout", help="Seconds to wait for the answer.", min=0)] = 30.0,
) -> None:
    """Apply what waits, in order: after the store's mapping, its disk or the shape of its table was repaired.

    The application that feeds the store does it, between two batches. Without one running it is done when the
    next one starts. A key whose letters were all applied is free. Of one that is refused still the later events
    go on waiting. Exit code 1 when one is refused still, 69 when nobody answered in time.
    """
    settings = context.obj.settings()
    chosen = [one for one in _chosen(settings, sink, table, key) if one.why in (Why.REFUSED, Why.BEHIND)]
    _ask(context, chosen, Why.RETRY, timeout_s)


@dead.command("drop")
def drop_letters(
    context: typer.Context,
    sink: Annotated[str | None, typer.Option(help="Only this store's.")] = None,
    table: Annotated[str | None, typer.Option(help="Only of this table, as schema.table.")] = None,
    key: Annotated[str | None, typer.Option(help="Only this key, as cdc dead list prints it.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every letter of every store.")] = False,
    timeout_s: Annotated[float, typer.Option("--timeout", help="Seconds to wait for the answer.", min=0)] = 30.0,
) -> None:
    """Forget letters without applying them, and free their keys.

    The store keeps what it shows of such a key until the key's next change. Each is named at the end. A store
    that is filled anew meets the records again.
    """
    if not (sink or table or key or everything):
        raise UsageError("drop was not told what", hint="name it by --sink, --table or --key, or say --all")
    settings = context.obj.settings()
    chosen = _chosen(settings, sink, table, key)
    for words in _ask(context, chosen, Why.DROP, timeout_s):
        echo(words)


def _ask(context: typer.Context, letters: list[DeadLetter], why: Why, timeout_s: float) -> list[str]:
    """Order, and say what became of each. The sentences of what the stores show of dropped keys come back."""
    settings = context.obj.settings()
    if not letters:
        context.obj.console.print("no dead letters", highlight=False)
        return []
    opened = open_letters(settings)
    silent = unchanged = 0
    dropped: list[DeadLetter] = []
    for letter, answer in opened.order(letters, why, timeout_s=timeout_s):
        silent += answer is None
        unchanged += answer is not None and answer.why is Why.HELD
        if answer is not None:
            state = "still held: " if answer.why is Why.HELD else ""
            echo(f"{letter.sink}  {letter.topic} {_brief(shown(letter.key) or '')}  {state}{answer.reason}")
            if why is Why.DROP and answer.why is Why.RELEASED:
                dropped.append(letter)
    words = list(opened.shown(dropped))
    if silent:
        for sentence in words:
            echo(sentence)
        raise SinkError(
            f"{_count(silent)} not answered in {timeout_s:g} s: no cdc sink feeds the store, or it is busy or away",
            hint="the order stands: it is carried out when cdc sink runs",
        )
    if unchanged:
        raise DifferenceFound(
            f"{_count(unchanged)} held still", hint="the reasons are above; cdc dead show prints a record whole"
        )
    return words


def _chosen(settings: Settings, sink: str | None, table: str | None, key: str | None) -> list[DeadLetter]:
    """One letter for each key that waits, the last, and every one that parks no key."""
    if sink is not None and sink != CAPTURE:
        sink_settings(sink, settings)
    topic = settings.source.topics.get(table, table_topic(settings.name, TableName(*_parts(table)))) if table else None
    letters = [
        one
        for one in waiting(open_letters(settings).read())
        if (one.sink == CAPTURE or one.sink in settings.sinks)
        and sink in (None, one.sink)
        and topic in (None, one.topic)
        and (key is None or _is_key(one.key, key))
    ]
    last = {(one.sink, one.topic, one.key): one for one in letters if one.parks}
    return [*last.values(), *(one for one in letters if not one.parks)]


def _is_key(key: bytes | None, asked: str) -> bool:
    """Whether a record's key is the one asked for: as its JSON, or as the stores have it (``42``, ``7:eu``)."""
    if key is None:
        return False
    if shown(key) == asked:
        return True
    try:
        parts = orjson.loads(key)
    except orjson.JSONDecodeError:
        return False
    return isinstance(parts, dict) and store_key(escape_key(str(part)) for part in parts.values()) == asked


def _parts(table: str) -> tuple[str, str]:
    schema, dot, name = table.partition(".")
    if not dot:
        raise UsageError(f"{table} names no schema", hint="write it as schema.table")
    return schema, name


def _count(keys: int) -> str:
    return "1 order is" if keys == 1 else f"{keys} orders are"


def document(letter: DeadLetter) -> dict[str, Any]:
    """A letter as JSON, without its value."""
    return {
        "sink": letter.sink,
        "why": letter.why.value,
        "record": letter.address,
        "key": shown(letter.key),
        "reason": letter.reason,
    }


def _brief(key: str) -> str:
    """A key as a line of a terminal has room for it. Behind a longer one stands how long it is.

    >>> _brief("42"), len(_brief("x" * 120_000)), _brief("x" * 120_000)[-24:]
    ('42', 122, 'xx… (120,000 characters)')
    """
    return key if len(key) <= _KEY_CHARACTERS else f"{key[:_KEY_CHARACTERS]}… ({len(key):,} characters)"


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
