"""``cdc verify``: the source against the stores, row by row, at a fence."""

from __future__ import annotations

from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Self

import orjson
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from cdc.cli import completion
from cdc.cli.terminal import TerminalConsole, echo
from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.errors import DifferenceFound, UsageError
from cdc.record.topic_names import TableName
from cdc.verification.result import Kind, StoreVerdict, VerificationReport
from cdc.wiring.sinks import Freshness, open_letters, open_verification

if TYPE_CHECKING:
    from cdc.verification.repair import Repaired

_TELL_S = 10.0
"""How often it is told how far all is, where nobody looks at a bar."""
_SIDES = 4
"""In one line: there may be many stores."""
_REPAIR = "cdc events --from-beginning TABLE shows what the log holds of them, cdc verify --repair writes them anew"
_SHARED = (
    "several rows of the source have each, and a store holds one of them: reindex the index of the key (reindex index "
    "NAME; it names rows that it must not hold), and give each row a key of its own"
)
_BY_DEBEZIUM = (
    "cdc connect status says whether the connector reads; cdc connect signal snapshot TABLE brings rows anew, and "
    "cdc connect resnapshot with cdc rebuild removes what is extra"
)


def verify(
    context: typer.Context,
    sinks: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SINK|TABLE]...",
            help="Stores, and tables or views (view.NAME), all unless named.",
            autocompletion=completion.compared,
        ),
    ] = None,
    timeout_s: Annotated[
        float, typer.Option("--timeout", help="Seconds a store may take to reach the fence.", min=0)
    ] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    repairing: Annotated[
        bool, typer.Option("--repair", help="Write what differs anew, and compare once more.")
    ] = False,
) -> None:
    """Compare every row of the source with the stores: what is missing, extra or stale.

    A fence is written to the log and waited for. A key that differs is compared again behind a new fence before it
    counts. Reads only, unless --repair is given: then each differing row is read again from the source and written at a
    position that any later change is above, so it may run beside cdc run and cdc sink. A view's runner is asked to
    publish the view's documents anew. Exit code 1 on any difference, with --repair on any that is left.
    """
    settings = context.obj.settings()
    chosen = sinks or list(settings.sinks)
    if not chosen:
        raise UsageError("the settings name no sink", hint="add a [sinks.<name>] section: cdc config example has five")
    repaired: list[Repaired] = []
    console: Console = context.obj.console
    looking = Looking(console) if console.is_terminal else ReadLines(console)
    with looking, open_verification(settings, chosen, timeout_s=timeout_s, watch=looking) as verification:
        if repairing:
            report, repaired = verification.repair_all(
                lambda found: None if as_json else show(found, TerminalConsole())
            )
        else:
            report = verification.compare()
    if as_json:
        made = {"repaired": [one.document() for one in repaired]} if repairing else {}
        typer.echo(orjson.dumps(report.document() | made, option=orjson.OPT_INDENT_2).decode())
    else:
        for one in repaired:
            echo(_mended(one))
        show(report, TerminalConsole())
    for words in open_letters(settings).left_out():
        console.print(words, style="yellow", highlight=False, soft_wrap=True, markup=False)
    with Freshness(settings) as freshness:
        for name in (one for one in chosen if "." not in one):
            for words in freshness.waiting(name):
                console.print(words, style="yellow", highlight=False, soft_wrap=True, markup=False)
    conclude(report, repairable=settings.source.kind == "postgres")


def show(report: VerificationReport, console: Console) -> None:
    """A line per table and store, then the first keys of each kind."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("table", overflow="fold")
    table.add_column("store", no_wrap=True)
    seldom = (Kind.AHEAD, Kind.SHARED)
    kinds = [kind for kind in Kind if kind not in seldom or any(v.counts[kind] for v in report.verdicts)]
    titles = ["source", "held", *kinds] + (["undecided"] if report.undecided else [])
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    for verdict in sorted(report.verdicts, key=lambda v: (v.table, v.sink)):
        table.add_row(*_cells(verdict, kinds)[: 2 + len(titles)])
    console.print(table)
    for verdict in report.verdicts:
        for kind, keys in verdict.keys.items():
            if keys:
                more = ", ..." if verdict.counts[kind] > len(keys) else ""
                words = f"{kind.value} in {verdict.sink}: {verdict.table} {', '.join(keys)}{more}"
                console.print(Text(words), soft_wrap=True)
    for name, words in report.not_compared.items():
        console.print(Text(f"{name} not compared: {words}", style="yellow"), soft_wrap=True)
    for name, words in report.left_out.items():
        console.print(Text(f"{name} left out: {words}", style="yellow"), soft_wrap=True)
    for name, columns in report.columns_left_out.items():
        for column, words in columns.items():
            console.print(Text(f"{name}.{column} not compared: {words}", style="yellow"), soft_wrap=True)
    rows = sum(verdict.source_rows for verdict in report.verdicts)
    looks = f"{report.looks} looks" if report.looks > 1 else "1 look"
    console.print(Text(f"{rows:,} rows compared at {report.reached}, in {looks}: {_verdict(report)}"), soft_wrap=True)


def _mended(one: Repaired) -> str:
    """A line on what was done to one store and table."""
    refused = f", {len(one.refused):,} refused: {sorted(set(one.refused))[0]}" if one.refused else ""
    unread = f", {len(one.unread):,} taken away whose key is none of the table's" if one.unread else ""
    asked = f"{one.recomputed:,} published anew by its runner, " if one.recomputed else ""
    done = f"{asked}{one.written:,} written, {one.deleted:,} deleted"
    return f"repaired {one.sink}: {one.table}: {done}{refused}{unread}"


def conclude(report: VerificationReport, *, repairable: bool = True) -> None:
    """Return where every table was compared that can be, and none differs. ``repairable``: the hint may name
    ``--repair``.

    Raises DifferenceFound when rows differ, and when a table was not compared.
    """
    if report.not_compared and not report.differences:
        raise DifferenceFound(
            f"not compared: {', '.join(report.not_compared)}",
            hint="the reason of each is above; cdc status says what ends it for a table that is set aside",
        )
    if report.differences:
        counts = {kind: sum(v.counts[kind] for v in report.verdicts) for kind in Kind}
        words = ", ".join(f"{count:,} {kind.value}" for kind, count in counts.items() if count)
        hint = _SHARED if counts[Kind.SHARED] == report.differences else _REPAIR if repairable else _BY_DEBEZIUM
        raise DifferenceFound(f"the stores differ from the source: {words}", hint=f"the keys are above; {hint}")


def _verdict(report: VerificationReport) -> str:
    undecided = f"; {report.undecided} keys changed at every look" if report.undecided else ""
    rest = f"; {len(report.not_compared)} tables not compared" if report.not_compared else ""
    rest += f"; {len(report.left_out)} left out" if report.left_out else ""
    found = f"{report.differences:,} differences" if report.differences else "all equal"
    # Of nothing it could be said that it is equal.
    return f"{'nothing compared' if report.left_out and not report.verdicts else found}{undecided}{rest}"


def _cells(verdict: StoreVerdict, kinds: list[Kind]) -> tuple[str | Text, ...]:
    found = [verdict.counts[kind] for kind in kinds]
    counts = [Text(f"{count:,}", style="bold red" if count else "green") for count in found]
    undecided = Text(f"{verdict.undecided:,}", style="yellow" if verdict.undecided else "green")
    return str(verdict.table), verdict.sink, f"{verdict.source_rows:,}", f"{verdict.store_rows:,}", *counts, undecided


class ReadLines:
    """Tells how far the comparison is in plain lines, for logs and pipes: one now and then, of the sides and tables
    that were read since the one before. Implements :class:`cdc.verification.passes.VerificationProgress`."""

    def __init__(self, console: Console, clock: Clock = SYSTEM_CLOCK) -> None:
        self._console = console
        self._clock = clock
        self._rows: dict[str, int] = {}
        self._untold: list[str] = []
        self._told_s: float | None = None
        self._lock = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def reading(self, side: str, table: TableName, rows: int) -> None:
        label, now_s = f"{side}: {table}", self._clock.monotonic()
        with self._lock:  # the source and the stores are read at once
            self._rows[label] = self._rows.get(label, 0) + rows
            if label not in self._untold:
                self._untold.append(label)
            if self._told_s is None:
                self._told_s = now_s
            if now_s - self._told_s < _TELL_S:
                return
            self._told_s, words = now_s, self._words()
            self._untold.clear()
        self._say(words)

    def looking(self, look: int, keys: int) -> None:
        if look > 1:
            with self._lock:
                self._rows.clear()  # of this look alone
            self._say(again(look, keys))

    def _words(self) -> str:
        read = [f"{label}: {self._rows[label]:,} rows read" for label in self._untold if label in self._rows]
        more = [f"and {len(read) - _SIDES} more"] if len(read) > _SIDES else []
        return ", ".join((*read[:_SIDES], *more))

    def _say(self, words: str) -> None:
        self._console.print(words, highlight=False, soft_wrap=True, markup=False)


def again(look: int, keys: int) -> str:
    """The sentence on another pass over the keys that differed.

    >>> again(2, 1200)
    'look 2: 1,200 keys again, behind a new fence'
    """
    return f"look {look}: {keys:,} keys again, behind a new fence"


class Looking:
    """How far the comparison is, on a terminal. Implements :class:`cdc.verification.passes.VerificationProgress`."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.completed:,.0f} rows"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._progress.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.__exit__(kind, error, trace)

    def reading(self, side: str, table: TableName, rows: int) -> None:
        label = f"{side}: {table}"
        if label not in self._tasks:
            self._tasks[label] = self._progress.add_task(label, total=None)
        self._progress.advance(self._tasks[label], rows)

    def looking(self, look: int, keys: int) -> None:
        if look > 1:
            for task in self._tasks.values():
                self._progress.reset(task)
            self._progress.console.print(again(look, keys), highlight=False)
