"""``cdc status``: how far everything is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Annotated, NamedTuple

import orjson
import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from cdc.cli.status_text import fitted, view
from cdc.cli.terminal import TerminalConsole
from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.errors import CdcError, UsageError
from cdc.status.pace import LiveLook, LiveLooks
from cdc.status.page_server import StatusPages
from cdc.status.rules import Status, status_of
from cdc.wiring.status import open_status

_EVERY_S, _DAY_S = 0.2, 86_400.0


def status(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Look again and again, with rates, until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option("--every", help="Seconds between two looks.", min=_EVERY_S, max=_DAY_S)] = 2.0,
    looks: Annotated[int, typer.Option("--looks", help="End after so many looks, 0 for never.", min=0)] = 0,
    http: Annotated[
        str, typer.Option("--http", metavar="HOST:PORT", help="With --watch, serve it as a page for browsers too.")
    ] = "",
) -> None:
    """Show the slot, how far the log is behind the source, and what each store shows.

    With --watch the page is drawn anew in a terminal, printed page after page elsewhere, and one line of JSON a look
    with --json. With --http as well nothing is printed outside a terminal but its address. The exit code is then that
    of the last look, and 0 after Ctrl-C: 130 as long as the command is still being loaded.

    Exit code 1 when a limit of the settings is passed, a store is empty, or keys are parked. That of the first part
    which does not answer, when one does not. Figures that it did not give are shown as not known.
    """
    settings = context.obj.settings()
    if http and not watch:
        raise UsageError("--http shows one look after the other", hint="give --watch with it")
    if watch:
        try:
            with open_status(settings) as reader, served(http, settings.name, every, context.obj.console) as tell:
                how = Watching(every, looks, as_json, tell)
                shown = watched(lambda: status_of(reader.read(), settings.limits), how)
        except KeyboardInterrupt:
            return
        _refuse(shown)
        return
    with open_status(settings) as reader:
        shown = status_of(reader.read(), settings.limits)
    if as_json:
        typer.echo(orjson.dumps(shown.document(), option=orjson.OPT_INDENT_2).decode())
    else:
        TerminalConsole().print(view(shown))
    _refuse(shown)


@contextmanager
def served(
    address: str, pipeline: str, every_s: float, console: Console
) -> Iterator[Callable[[LiveLook], None] | None]:
    """Serve the looks that the yielded function hears of as a page. Its address is told to ``console``. None, and
    nothing is served, where ``address`` is empty. ConfigError where it is none or is taken."""
    if not address:
        yield None
        return
    with StatusPages(address, pipeline, every_s) as pages:
        console.print(f"the page is at {pages.url}", highlight=False, soft_wrap=True, markup=False)
        yield pages.tell


class Watching(NamedTuple):
    """How ``--watch`` looks: seconds between two looks, how many (0: until it is stopped), and whether as JSON.
    ``tell``: hears of each look before it is drawn. Outside a terminal it is the only reader then, unless as JSON."""

    every_s: float
    looks: int
    as_json: bool
    tell: Callable[[LiveLook], None] | None = None


def watched(
    look: Callable[[], Status], how: Watching, clock: Clock = SYSTEM_CLOCK, follows: LiveLooks | None = None
) -> Status:
    """Show one look after the other; returns the last one. ``follows``: those that were before. KeyboardInterrupt ends
    it as the user wants."""
    looks, console, number = follows or LiveLooks(), TerminalConsole(), 0
    with ExitStack() as drawn:
        # Drawn in one place, without a second screen: what was shown last stays.
        first = Text("looking for the first time", style="yellow")
        live = drawn.enter_context(Live(first, console=console, auto_refresh=False)) if _draws(console, how) else None
        while True:
            at_s = clock.monotonic()
            seen, number = looks.look(look, clock), number + 1
            if how.tell is not None:
                how.tell(seen)
            if how.as_json:
                typer.echo(orjson.dumps(seen.document()).decode())
            elif live is not None:
                live.update(fitted(partial(view, seen.shown, seen), console), refresh=True)
            elif how.tell is None:
                console.print(view(seen.shown, seen), Text("-" * 20), sep="\n")
            if number == how.looks:
                return seen.shown
            clock.sleep(max(0.0, at_s + how.every_s - clock.monotonic()))


def _draws(console: Console, how: Watching) -> bool:
    # A terminal that cannot move its cursor would show nothing.
    return console.is_terminal and not console.is_dumb_terminal and not how.as_json


def _refuse(shown: Status) -> None:
    """CdcError with the first condition, and what ends it."""
    if shown.conditions:
        first, count = shown.conditions[0], len(shown.conditions)
        more = f", and {count - 1} more" if count > 1 else ""
        raise CdcError(f"{first.sentence}{more}", hint=first.cure, exit=shown.exit)
