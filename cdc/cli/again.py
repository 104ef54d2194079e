"""``cdc snapshot TABLE``: tables read again by the running capture, as the command that follows it sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import orjson
import typer
from rich.console import Console

from cdc.clock import SYSTEM_CLOCK, Clock
from cdc.errors import CdcError, ConfigError, UsageError
from cdc.rereads.run import Rereads, WantedRows
from cdc.settings import Settings
from cdc.state import ReadingState, RequestState
from cdc.wiring.snapshot import open_rereads

_LOOK_S = 1.0
_QUIET_S = 10.0


class Again:
    """``tables``: as they were typed."""

    def __init__(
        self, settings: Settings, console: Console, tables: Sequence[str], clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._settings = settings
        self._console = console
        self._tables = tables
        self._clock = clock
        self._said: dict[str, tuple[str, str]] = {}
        self._said_s: dict[str, float] = {}

    def command(self, commands: Sequence[str]) -> None:
        """Pause, resume or cancel. UsageError for more than one at once."""
        if len(commands) > 1:
            raise UsageError("--pause, --resume and --cancel exclude each other", hint="give one of them")
        for sentence in open_rereads(self._settings).command(self._tables, commands[0]):
            self._say(sentence)

    def read(self, where: str | None, keys: Sequence[str] | None, *, detach: bool, as_json: bool) -> None:
        """Ask, and follow to the end. CdcError when a request failed."""
        if not self._tables:
            raise UsageError("--where and --keys need a table", hint="cdc snapshot TABLE --where CONDITION")
        if where is not None and keys:
            raise UsageError("--where and --keys exclude each other", hint="give one of them")
        rereads = open_rereads(self._settings, self._clock)
        asked = rereads.ask(self._tables, WantedRows(where=where, keys=keys or None))
        for request in asked:
            self._say(f"{request.table}: asked for; cdc run carries it out")
        if detach:
            return
        ended = self._follow(rereads, asked)
        if as_json:
            typer.echo(orjson.dumps([asdict(one) for one in ended], option=orjson.OPT_INDENT_2).decode())
        failed = [one for one in ended if one.state == "failed"]
        if failed:
            raise ConfigError(failed[0].detail, hint="mend it, and ask again")
        if any(one.state == "cancelled" for one in ended):
            raise CdcError("cancelled", hint="what was read of it stays")

    def _follow(self, rereads: Rereads, asked: Sequence[RequestState]) -> list[ReadingState]:
        try:
            while True:
                states = rereads.look(asked)
                for request, state in zip(asked, states, strict=True):
                    self._tell(request, state)
                ended = [state for state in states if state is not None and state.over]
                if len(ended) == len(asked):
                    return ended
                self._clock.sleep(_LOOK_S)
        except KeyboardInterrupt:
            self._say("it goes on without this command; cdc snapshot --cancel gives it up")
            raise

    def _tell(self, request: RequestState, state: ReadingState | None) -> None:
        now_s = self._clock.monotonic()
        told = ("", "") if state is None else (state.state, state.detail)
        news = told != self._said.get(request.id, ("", ""))
        if not news and now_s - self._said_s.setdefault(request.id, now_s) < _QUIET_S:
            return
        self._said[request.id], self._said_s[request.id] = told, now_s
        self._say(f"{request.table}: {progress(state)}")

    def _say(self, sentence: str) -> None:
        self._console.print(sentence, soft_wrap=True, highlight=False, markup=False)


def progress(state: ReadingState | None) -> str:
    """How far a request is, in words.

    >>> progress(ReadingState(id="a", table="t", serial=1, epoch=1, state="running", rows=1200, share=0.4))
    'running, 1,200 rows, 40%'
    >>> progress(None)
    'waits for cdc run'
    """
    if state is None:
        return "waits for cdc run"
    said = f"{state.state}, {state.rows:,} rows, {state.share:.0%}"
    return f"{said}: {state.detail}" if state.detail else said
