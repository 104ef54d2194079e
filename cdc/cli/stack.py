"""``cdc stack``: the servers that Headrace works with, on this machine, without Docker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.table import Table

from cdc.cli.terminal import TerminalConsole
from cdc.jvm.jars import ALWAYS, locked
from cdc.process.errors import Exit
from cdc.stack.local import DEFAULT_PORTS, LocalStack
from cdc.stack.servers import checked_parts, jar_sets
from cdc.stack.start import fetch, make_database, start_watched, write_settings
from cdc.wiring.sinks import prepare_spark

stack = typer.Typer(name="stack", help="Run the local stack without Docker.", no_args_is_help=True)
app = stack

Folder = Annotated[Path, typer.Option("--dir", help="Folder for data, logs and settings.")]
_HERE = Path(".cdc")


@stack.command("up")
def up(
    context: typer.Context,
    folder: Folder = _HERE,
    free_ports: Annotated[bool, typer.Option("--free-ports", help="Choose free ports, not the usual ones.")] = False,
    only: Annotated[list[str] | None, typer.Option("--only", help="These parts alone. May be given again.")] = None,
    extra: Annotated[list[str] | None, typer.Option("--with", help="One more part: connect.")] = None,
) -> None:
    """Start the servers, wait until each answers, and write DIR/cdc.toml that fits them."""
    console: Console = context.obj.console
    parts = checked_parts(_split(only), _split(extra))
    local = LocalStack(folder)
    if local.running():
        connections = local.ensure(*parts)
    else:
        connections = start_watched(local, parts, console, ports=None if free_ports else DEFAULT_PORTS)
        try:
            local.detach()
        except BaseException:
            local.abandon()
            raise
    if "postgres" in connections:
        make_database(connections["postgres"]["dsn"])
    settings = write_settings(connections, local.folder)
    console.print(f"the stack is up; its settings are in {settings}", highlight=False, soft_wrap=True)


@stack.command("status")
def status(
    context: typer.Context,
    folder: Folder = _HERE,
    as_json: Annotated[bool, typer.Option("--json", help="Print what clients need, states and pids, as JSON.")] = False,
) -> None:
    """Show the servers and how to reach them. Exit code 1 if one of them is down."""
    local = LocalStack(folder)
    parts: dict[str, dict[str, Any]] = local.status()["parts"]
    if as_json:
        stands = {name: {"state": part["state"], "pid": part["pid"]} for name, part in parts.items()}
        shown = {name: stands.get(name, {}) | one for name, one in (stands | local.connections()).items()}
        typer.echo(orjson.dumps(shown).decode())
    else:
        TerminalConsole(soft_wrap=True).print(_table(parts))
    for name, part in parts.items():
        if part["state"] == "failed":
            context.obj.console.print(f"{name}: {part['error']}; {part['hint']}", highlight=False, soft_wrap=True)
    if any(part["state"] != "ready" for part in parts.values()):
        raise typer.Exit(Exit.DIFFERENCE)


@stack.command("down")
def down(
    context: typer.Context,
    folder: Folder = _HERE,
    wipe: Annotated[bool, typer.Option("--wipe", help="Remove the data too.")] = False,
) -> None:
    """Stop the servers. Their data stays unless --wipe is given."""
    local = LocalStack(folder)
    ran = local.running()
    local.stop()
    if wipe:
        local.wipe()
    words = "the stack is down" if ran else f"no stack ran in {local.folder}"
    context.obj.console.print(words + (", its data removed" if wipe else ""), highlight=False, soft_wrap=True)


@stack.command("fetch", hidden=True)
def fetch_jars(context: typer.Context) -> None:
    """Fetch the jars ahead of their use, and prepare Spark. Silent when that is done."""
    wanted = {jar_set.name: jar_set for jar_set in jar_sets(checked_parts((), ()))}
    fetch([jar_set for name, jar_set in locked().items() if name in wanted or name in ALWAYS], context.obj.console)
    prepare_spark(context.obj.console)


def _split(names: list[str] | None) -> list[str]:
    """``--only a,b --only c`` as a, b, c."""
    return [name for text in names or () for name in text.split(",") if name]


def _table(parts: dict[str, dict[str, Any]]) -> Table:
    table = Table("part", "state", "pid", "address", box=None, pad_edge=False, header_style="bold")
    for name, part in parts.items():
        address = " ".join(part["connection"].values())
        table.add_row(name, part["state"], str(part["pid"] or ""), address)
    return table
