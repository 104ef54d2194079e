"""``cdc stream``: Spark SQL over topics of events."""

from __future__ import annotations

from typing import Annotated

import orjson
import typer

from cdc.cli import completion
from cdc.cli.terminal import echo
from cdc.process.errors import UsageError
from cdc.wiring.streams import (
    check_streams,
    drop_stream,
    listed_streams,
    rebuild_stream,
    run_streams,
    verify_stream,
)

stream = typer.Typer(name="stream", help="Count and join events as they come.", no_args_is_help=True)

_Names = Annotated[
    list[str] | None, typer.Argument(help="Streams of the settings, all by default.", autocompletion=completion.streams)
]
_Name = Annotated[str, typer.Argument(help="A stream of the settings.", autocompletion=completion.streams)]


@stream.command()
def check(context: typer.Context, names: _Names = None) -> None:
    """Have Spark analyse each stream's text, and refuse what cannot be kept: no bound of its state (exit code 78, with
    the word and its place), no topic of events (64).
    """
    for said in check_streams(context.obj.settings(), names or []):
        echo(said)


@stream.command()
def run(
    context: typer.Context,
    names: _Names = None,
    until_caught_up: Annotated[
        bool, typer.Option("--until-caught-up", help="Stop when what the log holds now is counted.")
    ] = False,
) -> None:
    """Keep streams until SIGTERM or Ctrl-C: read their events, and publish each row that changed."""
    run_streams(context.obj.settings(), names or [], until_caught_up=until_caught_up)


@stream.command("list")
def list_streams(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per stream.")] = False,
) -> None:
    """Show each stream that was published: its generation and topic, its newest batch, its state, what it set apart."""
    for one in listed_streams(context.obj.settings()):
        for line in [orjson.dumps({"stream": one.name} | one.document()).decode()] if as_json else one.lines():
            echo(line)


@stream.command()
def verify(context: typer.Context, name: _Name) -> None:
    """Compute a stream anew over all of its events, and compare each key and row with its topic.

    Exit code 1 where they differ.
    """
    for said in verify_stream(context.obj.settings(), name):
        echo(said)


@stream.command()
def rebuild(
    context: typer.Context,
    name: _Name,
    yes: Annotated[bool, typer.Option("--yes", help="Even where age has removed the first events.")] = False,
) -> None:
    """Begin a new generation of a stream, by the settings of now, from the first events that the topics still hold.

    The next cdc stream run, or one that goes on, fills it. Stores then let the rows of the former one go: where age has
    removed events that these were counted of, this is refused (exit code 82) without --yes.
    """
    echo(rebuild_stream(context.obj.settings(), name, shorter=yes))


@stream.command()
def drop(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A stream that was published.", autocompletion=completion.streams)],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for the stream's name.")] = False,
    former: Annotated[bool, typer.Option("--former", help="Only the generations before the published one.")] = False,
) -> None:
    """Delete what is known of a stream, its checkpoints and its topics, with what it set apart. Its name has to be
    typed back.

    With --former: the topics and checkpoints that rebuilds have left, without a question.

    Stores keep the rows that they have. End the stream's process first: one that still runs ends with 83 at its next
    batch, and leaves that batch's files in the checkpoint.
    """
    settings = context.obj.settings()
    if not (yes or former):
        context.obj.console.print(f"This deletes the rows of the stream {name} from the log.", highlight=False)
        typed = typer.prompt("Type the stream's name to go on", default="", show_default=False, err=True)
        if typed.strip() != name:
            raise UsageError("that is not the stream's name: nothing was dropped", hint=f"the stream is {name}")
    for said in drop_stream(settings, name, former=former):
        context.obj.console.print(said, highlight=False, soft_wrap=True, markup=False)
