"""``cdc status``: how far everything is."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from typing import Annotated, NamedTuple, TypeVar

import orjson
import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cdc.clock import SYSTEM_CLOCK, Clock
from cdc.errors import CdcError
from cdc.found import Unknown
from cdc.lsn import Lsn
from cdc.status.facts import Reread
from cdc.status.fresh import fresh_text
from cdc.status.pace import Pace, Paces, StorePace
from cdc.status.rules import SinkStatus, Status, age, size, status_of
from cdc.wiring.status import open_status

T = TypeVar("T")
_STYLES = {"consistent": "green", "unreachable": "bold red", "empty": "bold red"}


def status(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Look again and again, with rates, until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option("--every", help="Seconds between two looks.", min=0.2)] = 2.0,
    looks: Annotated[int, typer.Option("--looks", help="End after so many looks, 0 for never.", min=0)] = 0,
) -> None:
    """Show the slot, how far the log is behind the source, and what each store shows.

    With --watch the page is drawn anew in a terminal, printed page after page elsewhere, and one line of JSON a look
    with --json. The exit code is then that of the last look, and 0 after Ctrl-C.

    Exit code 1 when a limit of the settings is passed, a store is empty, or keys are parked. That of the first part
    which does not answer, when one does not. Figures that it did not give are shown as not known.
    """
    settings = context.obj.settings()
    with open_status(settings) as reader:
        if watch:
            try:
                shown = watched(lambda: status_of(reader.read(), settings.limits), Watching(every, looks, as_json))
            except KeyboardInterrupt:
                return
            _refuse(shown)
            return
        shown = status_of(reader.read(), settings.limits)
    if as_json:
        typer.echo(orjson.dumps(shown.document(), option=orjson.OPT_INDENT_2).decode())
    else:
        Console().print(view(shown))
    _refuse(shown)


class Watching(NamedTuple):
    """How ``--watch`` looks: seconds between two looks, how many (0: until it is stopped), and whether as JSON."""

    every_s: float
    looks: int
    as_json: bool


def watched(look: Callable[[], Status], how: Watching, clock: Clock = SYSTEM_CLOCK) -> Status:
    """Show one look after the other; returns the last one. KeyboardInterrupt ends it as the user wants."""
    paces, console, number = Paces(), Console(), 0
    with ExitStack() as drawn:
        # Drawn in one place, without a second screen: what was shown last stays.
        live = drawn.enter_context(Live(console=console, auto_refresh=False)) if _draws(console, how) else None
        while True:
            at_s, shown = clock.monotonic(), look()
            pace, number = paces.of(shown, at_s), number + 1
            if how.as_json:
                typer.echo(orjson.dumps({**shown.document(), "pace": pace and asdict(pace)}).decode())
            elif live is not None:
                live.update(view(shown, pace), refresh=True)
            else:
                console.print(view(shown, pace), Text("-" * 20), sep="\n")
            if number == how.looks:
                return shown
            clock.sleep(max(0.0, at_s + how.every_s - clock.monotonic()))


def _draws(console: Console, how: Watching) -> bool:
    return console.is_terminal and not how.as_json


def _refuse(shown: Status) -> None:
    """CdcError with the first limit that is passed."""
    if shown.passed:
        more = f", and {len(shown.passed) - 1} more" if len(shown.passed) > 1 else ""
        first = next(iter(shown.silent.values()), None)
        hint = first.hint if first is not None else "cdc check says what is wrong where"
        raise CdcError(f"{shown.passed[0]}{more}", hint=hint, exit=shown.exit)


def view(shown: Status, pace: Pace | None = None) -> Group:
    """The page, within 80 columns. ``pace``: how fast all of it moves, where that was watched."""
    passed = (Text(f"! {words}", style="yellow") for words in shown.passed)
    views: list[Text | Table] = [Text(""), view_table(shown)] if shown.views else []
    moves = [*_moves(pace), Text("")] if pace is not None else []
    return Group(*_head(shown), *moves, sink_table(shown), *views, *_fresh(shown), *passed)


def _moves(pace: Pace) -> list[Text]:
    """A line for the whole, and one for each store that moves or has to."""
    written, logged = _measured(pace.source_bytes_s, _per_second), _measured(pace.log_bytes_s, _per_second)
    lines = [f"per second, of the last {pace.seconds:.0f} s: the source writes {written}, the log takes {logged}"]
    for name, store in pace.stores.items():
        lines.append(f"  {name} takes {_per_second(store.bytes_s)}{_level(store)}")
    return [Text(line) for line in lines]


def _level(store: StorePace) -> str:
    if store.level_s is None:
        return ", and comes no nearer"
    return f", level in {age(store.level_s)}" if store.level_s else ""


def _per_second(count_bytes: float) -> str:
    return size(round(count_bytes))


def view_table(shown: Status) -> Table:
    """One line per view."""
    table = Table(box=None, pad_edge=False, show_header=True, header_style="bold")
    for title in ("view", "shows"):
        table.add_column(title, no_wrap=True)
    for title in ("behind", "age"):
        table.add_column(title, no_wrap=True, justify="right")
    table.add_column("state", no_wrap=True)
    closing = any(view.facts.state is not None and view.facts.state.closed_before for view in shown.views)
    for title in ("waiting", "on disk", *(["late"] if closing else [])):
        table.add_column(title, no_wrap=True, justify="right")
    for view in shown.views:
        facts, kept = view.facts, view.facts.state
        table.add_row(
            facts.name,
            str(Lsn(facts.lsn)) if facts.lsn is not None else "-",
            _measured(view.lag_bytes, size),
            _measured(view.lag_s, age),
            Text(view.shown, style=_STYLES.get(view.shown, "yellow")),
            f"{kept.waiting:,}" if kept is not None else "?",
            size(kept.size_bytes) if kept is not None else "?",
            *([f"{kept.late:,}" if kept is not None else "?"] if closing else []),
        )
    return table


def _fresh(shown: Status) -> list[Text]:
    """How long changes took, as the running processes say."""
    if not shown.fresh_known and not any(sink.fresh_known for sink in shown.sinks):
        return [Text(""), Text("freshness not known: no process answers at [capture] and [spark] http_address")]
    lines = [] if shown.connector is not None else [f"  to the log  {fresh_text(shown.fresh_known, shown.fresh)}"]
    lines += [f"  to {sink.name}  {fresh_text(sink.fresh_known, sink.fresh)}" for sink in shown.sinks]
    return [Text(""), Text("freshness, from commit, of the last 5 minutes"), *(Text(line) for line in lines)]


def sink_table(shown: Status) -> Table:
    """One line per store."""
    table = Table(box=None, pad_edge=False, show_header=True, header_style="bold")
    for title in ("store", "shows"):
        table.add_column(title, no_wrap=True)
    for title in ("behind", "age"):
        table.add_column(title, no_wrap=True, justify="right")
    table.add_column("state", no_wrap=True)
    table.add_column("parked", no_wrap=True, justify="right")
    for sink in shown.sinks:
        table.add_row(*_cells(sink))
    return table


def _cells(sink: SinkStatus) -> tuple[str | Text, ...]:
    lsn = str(Lsn(sink.lsn)) if sink.lsn else "-"
    state = Text(sink.state, style=_STYLES.get(sink.state, "yellow"))
    parked = "?" if sink.parked is None else str(sink.parked)
    behind = f"{sink.lag_records:,} records" if sink.lag_records is not None else _measured(sink.lag_bytes, size)
    return sink.name, lsn, behind, _measured(sink.lag_s, age), state, parked


def _measured(figure: T | None, text: Callable[[T], str]) -> str:
    return "-" if figure is None else text(figure)


def _head(shown: Status) -> list[Text]:
    epoch = f", epoch {shown.epoch}" if shown.epoch is not None else ""
    lines = [Text.assemble((f"pipeline {shown.name}", "bold"), epoch)]
    connector = shown.connector
    if connector is not None:
        lines.append(Text(f"connector {connector.name}, {connector.state}, at {connector.position or '-'}"))
        if connector.moved:
            lines.append(Text(f"server    {connector.moved}"))
    if "connector" in shown.silent:
        lines.append(Text("connector not known, Kafka Connect does not answer"))
    if not shown.asked:
        database = f"{connector.database} at {connector.address}" if connector is not None else "not known"
        lines.append(Text(f"source    {database}, which is not asked: the connector says how far it is"))
        return [*lines, Text(f"snapshot  {shown.snapshot}"), Text("")]
    wal = str(Lsn(shown.wal_lsn)) if shown.wal_lsn is not None else "?"
    lines.append(Text(f"source    {shown.address or 'does not answer'}, at {wal}"))
    slot = shown.slot
    if isinstance(slot, Unknown):
        lines.append(Text(f"slot      {shown.slot_name}: not known, Postgres does not answer"))
    elif slot is None:
        lines.append(Text(f"slot      {shown.slot_name}: none"))
    else:
        used = f"read by process {slot.active_pid}" if slot.active_pid is not None else "read by nobody"
        lines.append(Text(f"slot      {slot.slot}, {used}, wal {slot.wal_status}, {size(slot.retained_bytes)} kept"))
    log = str(Lsn(shown.log_lsn)) if shown.log_lsn is not None else "-"
    behind = f"{size(shown.lag_bytes)} and {age(shown.lag_s)} behind the source"
    if "log" in shown.silent:
        return [*lines, Text("log       not known, it was not read"), Text("snapshot  not known"), Text("")]
    lines.append(Text(f"log       holds {log}{', ' + behind if shown.lag_bytes is not None else ''}"))
    rows = f", {shown.snapshot_rows:,} rows" if shown.snapshot_rows else ""
    lines.append(Text(f"snapshot  {shown.snapshot}{rows}"))
    lines += [Text(f"  {one.state.value:<8}{table}, since {Lsn(one.since_lsn)}") for table, one in shown.asides.items()]
    lines += [Text(_again(one)) for one in shown.rereads]
    return [*lines, Text("")]


def _again(one: Reread) -> str:
    why = f": {one.detail}" if one.detail else ""
    return f"  again   {one.table}, {one.state}, {one.share:.0%}, {one.rows:,} rows{why}"
