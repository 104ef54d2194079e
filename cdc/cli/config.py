"""``cdc config``: print an example settings file, or check one."""

from __future__ import annotations

import typer

from cdc.reference import example as example_text
from cdc.settings import DebeziumSettings
from sinks.sections import sink_sections

config = typer.Typer(name="config", help="Print an example settings file, or check one.", no_args_is_help=True)


@config.command("example")
def example() -> None:
    """Print a commented settings file with every setting. A start for cdc.toml."""
    typer.echo(example_text(sink_sections()), nl=False)


@config.command("lint")
def lint(context: typer.Context) -> None:
    """Check the settings file. Silent on stdout, exit code 78 when it cannot be used."""
    settings = context.obj.settings()
    sinks = ", ".join(settings.sinks) or "none"
    context.obj.console.print(
        f"{context.obj.config} is good: pipeline {settings.name}, sinks: {sinks}", highlight=False
    )
    if settings.source.kind == "debezium" and settings.debezium is None:
        url = DebeziumSettings().url
        words = f"there is no [debezium] section: Kafka Connect is asked at {url}; [debezium] url names another place"
        context.obj.console.print(words, highlight=False, soft_wrap=True, markup=False)
