"""``cdc up``: the whole pipeline in the foreground."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console

from cdc.cli.pipeline_processes import Children, PipelineProcesses, StepFailed, interruptible, parts_of, slot_to_make
from cdc.cli.status import Watching, served, watched
from cdc.cli.terminal import TerminalConsole, report
from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.errors import CdcError, ConfigError, Exit, UsageError
from cdc.record.position import Lsn
from cdc.settings.model import Settings
from cdc.status.pace import LiveLook, LiveLooks, LooksBeside
from cdc.status.rules import Status, status_of
from cdc.status.view_lines import age, size
from cdc.wiring.pipeline import open_status

_WATCH_S = 2.0
_LINE_S = 30.0
"""Between two lines where nobody looks at a page."""
_FAULTS = 5
"""In one of them."""


def up(
    context: typer.Context,
    yes: Annotated[bool, typer.Option("--yes", help="Make the replication slot without asking.")] = False,
    logs: Annotated[
        Path | None, typer.Option("--logs", help="Folder for what the parts print, <name>-logs by default.")
    ] = None,
    http: Annotated[
        str, typer.Option("--http", metavar="HOST:PORT", help="Serve the page of cdc status --watch --http.")
    ] = "",
) -> None:
    """Run the whole pipeline in the foreground: check, init, snapshot, then capture, views, streams and stores.

    In a terminal it shows what cdc status --watch shows. Ctrl-C ends all parts in order. A part that ends by itself
    ends the others, with its exit code. No part outlives this command. Call it again to go on.
    """
    invocation = context.obj
    settings: Settings = invocation.settings()
    settings.require_native("cdc up")
    console: Console = invocation.console
    folder = _made(logs or Path(f"{settings.name}-logs"))
    with ExitStack() as opened:
        children = opened.enter_context(Children(invocation.config, folder, {}))
        together = PipelineProcesses(children, parts_of(settings), lambda words: _say(console, words))
        ending = opened.enter_context(interruptible(children.kill))
        try:
            tell = opened.enter_context(served(http, settings.name, _WATCH_S, console))
            looks = LiveLooks()
            # A first snapshot takes its time: the page is true meanwhile.
            with _beside(settings, tell, looks):
                _prepare(settings, together, yes=yes)
                # Stores fill while rows are read.
                together.start("sink")
                together.must("snapshot")
                together.start("run", "view", "stream")
            _watch(settings, together, Telling(partial(_say, console), tell, looks), console)
        except KeyboardInterrupt:
            ending()
            _say(console, "stopping")
            together.end()
        except CdcError as failure:
            ending()
            # Told once, and before the wait for the others, which takes its time.
            if failure.exit is Exit.OK or isinstance(failure, StepFailed):
                _say(console, f"{failure.message}: everything ends")
            else:
                report(failure, console)
            together.end_quietly()
            raise typer.Exit(failure.exit) from None


def _made(folder: Path) -> Path:
    """ConfigError where the folder cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as problem:
        raise ConfigError(
            f"the folder {folder} cannot be made: {problem.strerror}", hint="give another --logs"
        ) from None
    return folder.absolute()


def _prepare(settings: Settings, together: PipelineProcesses, *, yes: bool) -> None:
    # A table that waits, as an example, is brought on by the parts that are about to run.
    together.must("check", allowed=Exit.DIFFERENCE)
    with open_status(settings) as reader:
        question = slot_to_make(settings, reader.read().source)
    if question is not None and not yes:
        agree(settings, question)
    together.must("init")


def agree(settings: Settings, question: str) -> None:
    """UsageError unless the slot's name is typed."""
    if not sys.stdin.isatty():
        raise UsageError(f"{question} Nobody is asked here, so nothing was made", hint="cdc up --yes agrees to it")
    typer.echo(question, err=True)
    typed = typer.prompt("Type the slot's name to go on", default="", show_default=False, err=True)
    if typed.strip() != settings.slot:
        raise UsageError("that is not the slot's name: nothing was made", hint=f"the slot is {settings.slot}")


@contextmanager
def _beside(settings: Settings, tell: Callable[[LiveLook], None] | None, looks: LiveLooks) -> Iterator[None]:
    """Within, looks are told of, where somebody hears them."""
    if tell is None:
        yield
        return
    with open_status(settings) as reader:
        look = LooksBeside(lambda: status_of(reader.read(), settings.limits), tell, looks, _WATCH_S, SYSTEM_CLOCK)
        with look:
            yield


def _watch(settings: Settings, together: PipelineProcesses, telling: Telling, console: Console) -> None:
    with open_status(settings) as reader:

        def look() -> Status:
            together.look()
            return status_of(reader.read(), settings.limits)

        if console.is_terminal and TerminalConsole().is_terminal:
            watched(look, Watching(_WATCH_S, 0, as_json=False, tell=telling.tell), follows=telling.looks)
        else:
            lines(look, together.look, telling)


class Telling(NamedTuple):
    """The listeners. ``say`` gets a line now and then where nobody sees a terminal, ``tell`` every look. ``looks``:
    those that were told of before."""

    say: Callable[[str], None]
    tell: Callable[[LiveLook], None] | None
    looks: LiveLooks


def lines(look: Callable[[], Status], alive: Callable[[], None], telling: Telling, clock: Clock = SYSTEM_CLOCK) -> None:
    """A line now and then, for pipes and files, until ``look`` or ``alive`` raises. Both look after the parts, so that
    one that ends is noticed between two lines. Each look asks every part: without a listener there is one a line."""
    said_s = -math.inf
    while True:
        at_s = clock.monotonic()
        due = at_s - said_s >= _LINE_S
        if due or telling.tell is not None:
            seen = telling.looks.look(look, clock)
            if telling.tell is not None:
                telling.tell(seen)
            if due:
                telling.say(_line(seen.shown))
                said_s = at_s
        clock.sleep(_WATCH_S)
        alive()


def _line(shown: Status) -> str:
    stores = (f"{sink.name} {Lsn(sink.lsn) if sink.lsn else '-'} {age(sink.lag_s)}" for sink in shown.sinks)
    passed = [f"! {words}" for words in shown.passed[:_FAULTS]]
    more = [f"! and {len(shown.passed) - _FAULTS} more"] if len(shown.passed) > _FAULTS else []
    return "  ".join((f"log {size(shown.lag_bytes)} behind", *stores, *passed, *more))


def _say(console: Console, words: str) -> None:
    console.print(words, highlight=False, soft_wrap=True, markup=False)
