"""``cdc config``: print an example settings file, or check one."""

from __future__ import annotations

import typer

from cdc.reference import example as example_text

config = typer.Typer(name="config", help="Print an example settings file, or check one.", no_args_is_help=True)


@config.command("example")
def example() -> None:
    """Print a commented settings file with every setting; a start for cdc.toml."""
    typer.echo(example_text(), nl=False)


@config.command("lint")
def lint(context: typer.Context) -> None:
    """Check the settings file; silent on stdout, exit code 78 when it cannot be used."""
    settings = context.obj.settings()
    sinks = ", ".join(settings.sinks) or "none"
    context.obj.console.print(
        f"{context.obj.config} is good: pipeline {settings.name}, sinks: {sinks}", highlight=False
    )
