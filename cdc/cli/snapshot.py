"""``cdc snapshot``: the slot, and the rows that were there before it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Protocol

import orjson
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from cdc.cli import completion
from cdc.cli.terminal import TerminalConsole
from cdc.operate.snapshot_requests import Rereads, WantedRows
from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.errors import CdcError, ConfigError, UsageError
from cdc.record.state import ReadingState, RequestState
from cdc.settings.model import Settings
from cdc.wiring.pipeline import build_snapshot, open_rereads

if TYPE_CHECKING:
    from snapshot.first.summary import Summary as SnapshotSummary


_TALK_S = 10.0
"""How often a table says how far it is, where nobody looks at a bar."""
_MOST_BARS = 20


def snapshot(  # noqa: PLR0913, PLR0917 - each is an option of the command
    context: typer.Context,
    tables: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TABLE]...", help="Tables to read again.", autocompletion=completion.tables),
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, max=64, help="Processes that read at once.")
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Make the slot and copy no rows.")] = False,
    live: Annotated[bool, typer.Option("--live", help="Make the slot. The running capture brings the rows.")] = False,
    where: Annotated[str | None, typer.Option("--where", help="Read only rows that meet this condition.")] = None,
    keys: Annotated[
        list[str] | None, typer.Option("--keys", help="Read only this key, as stores write it. May be given again.")
    ] = None,
    pause: Annotated[bool, typer.Option("--pause", help="Let tables that are read again wait.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with them.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Give them up.")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Ask, and do not wait for the end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Make the replication slot and copy every row that is there, tied to the slot's LSN.

    Stop or kill it at any time: the next call goes on where it was. cdc run waits until it is complete.
    With tables: ask the running capture to read them again, while it streams, and follow it.
    """
    settings = context.obj.settings()
    settings.require_native("cdc snapshot")
    commands = [name for name, wanted in (("paused", pause), ("asked", resume), ("cancelled", cancel)) if wanted]
    again = RereadCommand(settings, context.obj.console, tables or [])
    if commands:
        again.command(commands)
        return
    if tables or where is not None or keys:
        again.read(where, keys, detach=detach, as_json=as_json)
        return
    if live:
        open_rereads(settings).ask_first()
    with progress_on(context.obj.console) as reporter:
        summary = build_snapshot(settings, reporter, workers=workers).run(rows=not (none or live))
    if as_json:
        typer.echo(orjson.dumps(summary.document(), option=orjson.OPT_INDENT_2).decode())
    else:
        show(summary, TerminalConsole())


def show(summary: SnapshotSummary, console: Console) -> None:
    """The figures: a line per table and the total, then what they stand for."""
    if summary.already_complete:
        console.print("The snapshot is complete; nothing was left to do.", soft_wrap=True)
    if summary.tables:
        console.print(_figures(summary))
    console.print(
        f"consistent point {summary.consistent_point}; the stores are consistent once the stream has passed "
        f"{summary.last_cut_lsn}",
        soft_wrap=True,
        highlight=False,
    )
    for sentence in summary.requests:
        console.print(
            f"{sentence}: it has to be read again after that, which is noted in the state topic",
            soft_wrap=True,
            highlight=False,
            markup=False,
        )
    if not summary.already_complete:
        console.print("next: cdc run", soft_wrap=True, highlight=False)


def _figures(summary: SnapshotSummary) -> Table:
    figures = Table(box=None, pad_edge=False)
    figures.add_column("table", overflow="fold")
    for heading in ("rows", "bytes", "time", "rows/s"):
        figures.add_column(heading, justify="right", no_wrap=True)
    for table in summary.tables:
        name = f"{table.table} (dropped meanwhile)" if table.gone else table.table
        figures.add_row(Text(name), *_row(table.rows, table.size_bytes, table.duration_s, table.rows_per_s))
    figures.add_section()
    total = _row(summary.rows, summary.size_bytes, summary.read_s, summary.rows_per_s)
    figures.add_row(_tables(len(summary.tables)), *total, style="bold")
    return figures


def _tables(count: int) -> str:
    return "1 table" if count == 1 else f"{count:,} tables"


def _row(rows: int, size_bytes: int, duration_s: float, rows_per_s: float) -> tuple[str, str, str, str]:
    return f"{rows:,}", in_bytes(size_bytes), f"{duration_s:.1f} s", f"{rows_per_s:,.0f}"


def in_bytes(count: int) -> str:
    """A size as a person reads it.

    >>> in_bytes(0), in_bytes(2048), in_bytes(643_834_688)
    ('0 B', '2.0 kB', '614.0 MB')
    """
    size, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"


class _Totals(Protocol):
    @property
    def row_estimate(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...


class Lines:
    """Progress as plain lines, for logs and pipes: now and then per table, and when one is done. Implements
    :class:`snapshot.source.ports.Reporter`."""

    def __init__(self, console: Console, clock: Clock = SYSTEM_CLOCK) -> None:
        self._console = console
        self._clock = clock
        self._told_s: dict[str, float] = {}
        self._done: set[str] = set()

    def say(self, sentence: str) -> None:
        self._console.print(sentence, soft_wrap=True, highlight=False, markup=False)

    def plan(self, tables: Mapping[str, _Totals]) -> None:
        rows = sum(totals.row_estimate for totals in tables.values())
        size = in_bytes(sum(totals.size_bytes for totals in tables.values()))
        self._done.clear()
        self.say(f"{_tables(len(tables))}, about {rows:,} rows, {size}")

    def progress(self, table: str, rows: int, share: float) -> None:
        now = self._clock.monotonic()
        if share >= 1 and table not in self._done:
            self._done.add(table)
            self.say(f"{table}: {rows:,} rows, done")
        elif share < 1 and now - self._told_s.setdefault(table, now) >= _TALK_S:
            self._told_s[table] = now
            self.say(f"{table}: {rows:,} rows, {share:.0%}")


class Bars:
    """Progress as bars, one per table. Of very many tables, those that are being read. Implements
    :class:`snapshot.source.ports.Reporter`."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def say(self, sentence: str) -> None:
        self._progress.console.print(sentence, soft_wrap=True, highlight=False, markup=False)

    def plan(self, tables: Mapping[str, _Totals]) -> None:
        for table in self._tasks.keys() - tables.keys():
            self._progress.update(self._tasks[table], visible=False)
        for table in tables:
            if table not in self._tasks:
                shown = len(self._tasks) < _MOST_BARS
                # Brackets in a name would be taken for markup.
                name = table.replace("[", r"\[")
                self._tasks[table] = self._progress.add_task(name, total=1.0, visible=shown, rows="")

    def progress(self, table: str, rows: int, share: float) -> None:
        many = len(self._tasks) > _MOST_BARS
        self._progress.update(self._tasks[table], completed=share, rows=f"{rows:,}", visible=not (many and share >= 1))


@contextmanager
def progress_on(console: Console) -> Iterator[Lines | Bars]:
    """Bars on a terminal, lines elsewhere."""
    if not console.is_terminal:
        yield Lines(console)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[rows]} rows", justify="right"),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=console) as progress:
        yield Bars(progress)


_LOOK_S = 1.0
_QUIET_S = 10.0


class RereadCommand:
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
