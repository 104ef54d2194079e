"""``cdc config``: write a settings file for a database, print an example, or check one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import orjson
import typer
from rich.console import Console
from rich.text import Text

from cdc.operate.settings_proposal import Proposal, described, pipeline_name, rights_text, settings_text
from cdc.process.errors import ConfigError, UsageError
from cdc.process.untrusted_text import quoted
from cdc.settings.model import DebeziumSettings
from cdc.settings.settings_reference import example as example_text
from cdc.wiring.pipeline import look_at_database
from sinks.contract.kinds import parse_settings, sink_sections

config = typer.Typer(
    name="config", help="Write a settings file for a database, print an example, or check one.", no_args_is_help=True
)


@config.command("new")
def new(
    context: typer.Context,
    dsn: Annotated[str, typer.Option("--dsn", help="The database, as libpq names it, without a password.")],
    name: Annotated[str, typer.Option("--name", help="Name of the pipeline.", show_default="the database's")] = "",
    role: Annotated[str, typer.Option("--role", help="Whom capture logs in as.")] = "cdc",
    kafka: Annotated[str, typer.Option("--kafka", help="host:port of the brokers.")] = "127.0.0.1:9092",
    sink: Annotated[list[str] | None, typer.Option("--sink", help="KIND=PLACE of a store to keep.")] = None,
) -> None:
    """Look at a database and write a settings file for it, and the SQL of the rights that capture needs.

    Writes --config (cdc.toml) and, beside it, <name>-rights.sql. Replaces neither, asks nothing and changes nothing in
    the database. The password is read from CDC_SOURCE_PASSWORD, or as libpq finds it.
    """
    rights = context.obj.config.with_name(f"{context.obj.config.stem}-rights.sql")
    _require_new(context.obj.config, rights)
    sinks = dict(map(_sink, sink or ()))
    found, generated = look_at_database(dsn, role)
    proposal = Proposal(
        name=name or pipeline_name(found.database), role=role, found=found, bootstrap_servers=kafka,
        sinks=sinks,
    )  # fmt: skip
    _show_tables(proposal, context.obj.console)
    if not proposal.taken:
        raise ConfigError(
            f"no table of the database {quoted(found.database)} can be captured as it is",
            hint="the reasons stand above, one for each table",
        )
    parse_settings(proposal.document())
    _write(context.obj.config, settings_text(proposal))
    _write(rights, rights_text(proposal, generated_columns=generated))
    say = context.obj.console
    for fault, cure in found.faults:
        say.print(Text.assemble(("to do: ", "yellow"), f"{fault}: {cure}"), soft_wrap=True)
    say.print(Text(f"{context.obj.config} follows {len(proposal.taken)} tables. Run {rights}, then cdc check."))


def _require_new(*files: Path) -> None:
    for file in files:
        if file.exists():
            raise UsageError(f"{file} exists, and is not replaced", hint="name another one by --config, or move it")


def _write(file: Path, text: str) -> None:
    try:
        with file.open("x", encoding="utf-8") as made:
            made.write(text)
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}", hint="name another one by --config") from None


def _sink(said: str) -> tuple[str, dict[str, str]]:
    """The section's usual name, and its settings. UsageError where it is not ``KIND=PLACE``."""
    kind, _, place = said.partition("=")
    sections = {str(one.sample["kind"]): one for one in sink_sections()}
    if kind not in sections or not place:
        known = ", ".join(sections)
        raise UsageError(
            f"--sink {quoted(kind)} is not KIND=PLACE", hint=f"the kinds are {known}; PLACE is a URL or a folder"
        )
    try:
        secret = urlsplit(place).password
    except ValueError:
        secret = None  # no URL at all, which its kind of store says better
    if secret:
        raise UsageError(
            "--sink holds a password, which every user of this machine can read in the list of processes",
            hint='take it out, change it at the server, and set password = "env:NAME" in the file',
        )
    setting = next(name for name in sections[kind].sample if name != "kind")
    return sections[kind].path.removeprefix("sinks."), {"kind": kind, setting: place}


def _show_tables(proposal: Proposal, console: Console) -> None:
    """Talk: every table that was found, and those left out with the reason."""
    for one in proposal.taken:
        console.print(Text.assemble(("take   ", "green"), f"{one.table}: {described(one)}"), soft_wrap=True)
    for table, why in proposal.not_taken:
        console.print(Text.assemble(("leave  ", "yellow"), f"{table}: {why}"), soft_wrap=True)


@config.command("example")
def example() -> None:
    """Print a commented settings file with every setting. A start for cdc.toml."""
    typer.echo(example_text(sink_sections()), nl=False)


@config.command("schema")
def schema() -> None:
    """Print a JSON Schema of the settings file, with which an editor completes and checks it."""
    from sinks.contract.kinds import settings_schema  # noqa: PLC0415 - the other commands need none of it

    typer.echo(orjson.dumps(settings_schema(), option=orjson.OPT_INDENT_2).decode())


@config.command("lint")
def lint(context: typer.Context) -> None:
    """Check the settings file. Silent on stdout, exit code 78 when it cannot be used."""
    from connectors.debezium.config import require_nameable  # noqa: PLC0415 - the other commands need none of it

    settings = context.obj.settings()
    require_nameable(settings)
    sinks = ", ".join(settings.sinks) or "none"
    context.obj.console.print(
        f"{context.obj.config} is good: pipeline {settings.name}, sinks: {sinks}", highlight=False
    )
    if settings.source.kind == "debezium" and settings.debezium is None:
        url = DebeziumSettings().url
        words = f"there is no [debezium] section: Kafka Connect is asked at {url}; [debezium] url names another place"
        context.obj.console.print(words, highlight=False, soft_wrap=True, markup=False)
