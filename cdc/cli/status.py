"""``cdc status``: how far everything is, as text within 80 columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Annotated, NamedTuple, TypeVar

import orjson
import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cdc.checks.findings import Condition, unfed_view
from cdc.cli.terminal import TerminalConsole
from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.errors import CdcError, UsageError
from cdc.record.ports import Unknown
from cdc.record.position import Lsn
from cdc.record.tables_aside import AsideState
from cdc.status.facts import Reread
from cdc.status.pace import LiveLook, LiveLooks, Pace, StorePace, utc_text
from cdc.status.page_server import StatusPages
from cdc.status.rules import Status, status_of
from cdc.status.view_lines import SinkStatus, ViewStatus, age, aged, fresh_text, share_text, size
from cdc.wiring.pipeline import open_status

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


T = TypeVar("T")
_STYLES = {"consistent": "green", "level": "green", "unreachable": "bold red", "empty": "bold red"}
_GOOD = ("consistent", "level")


class PageRoom(NamedTuple):
    """How much of a page is shown: so many ``lines`` of each list, and ``rows`` of stores and of views. None: all.
    ``cures``: also what ends each fault."""

    lines: int | None = None
    rows: int | None = None
    cures: bool = False


_ALL = PageRoom(cures=True)
_ROOMS = (
    _ALL,
    PageRoom(),
    *(PageRoom(lines) for lines in (12, 8, 5, 3, 2, 1)),
    *(PageRoom(1, rows) for rows in (12, 8, 5, 3, 2, 1)),
)
"""From the widest on. Stores are what a page is looked at for: their rows go last."""


def view(shown: Status, look: LiveLook | None = None, room: PageRoom = _ALL) -> Group:
    """The page. ``look``: the look that it is of, where one follows the other. Faults then stand above the figures,
    because a terminal that is too low for the page cuts it off below."""
    passed = _few([_condition(one, room) for one in shown.conditions], room.lines)
    views: list[Text | Table] = [Text(""), *_rows(view_table, shown.views, _is_good_view, room)] if shown.views else []
    unfed = [_condition(unfed_view(view.facts.name), room, style="") for view in shown.views if not view.facts.fed]
    views += _few(unfed, room.lines)
    views += _few([Text(line) for stream in shown.streams for line in ("", *stream.lines())], room.lines)
    stores = _rows(sink_table, shown.sinks, _is_good_sink, room)
    rest = (*stores, *views, *_fresh(shown, room))
    if look is None:
        return Group(*_head(shown, None, room), Text(""), *rest, *passed)
    moves = [*_moves(look.pace, shown, room), Text("")] if look.pace is not None else []
    title, *head = _head(shown, look, room)
    return Group(title, *passed, *head, Text(""), *moves, *rest)


def _condition(one: Condition, room: PageRoom, style: str = "yellow") -> Text:
    cure = [(f"\n  fix: {one.cure}", "cyan")] if one.cure and room.cures else []
    return Text.assemble((f"{'! ' if style else ''}{one.sentence}", style), *cure)


def fitted(draw: Callable[[PageRoom], Group], console: Console) -> Group:
    """The page with as much of it as the terminal has lines for, without empty ones where it is too low with them."""
    for room in _ROOMS:
        page = draw(room)
        if _fits(page, console):
            return page
        page = Group(*(part for part in page.renderables if not (isinstance(part, Text) and not part.plain)))
        if _fits(page, console):
            break
    return page


def _fits(page: Group, console: Console) -> bool:
    return len(console.render_lines(page, pad=False)) < console.height


def _few(lines: Sequence[Text], most: int | None) -> list[Text]:
    """The first lines, and how many more there are. One more is shown: it takes no more room than its mention."""
    if most is None or len(lines) <= most + 1:
        return list(lines)
    return [*lines[:most], Text(f"  and {len(lines) - most:,} more")]


def _rows(
    table: Callable[[Sequence[T]], Table], every: Sequence[T], is_good: Callable[[T], bool], room: PageRoom
) -> list[Text | Table]:
    """A table of all, or of as many as there is room for, with those first that somebody has to see."""
    if room.rows is None or len(every) <= room.rows + 1:
        return [table(every)]
    return [table(sorted(every, key=is_good)[: room.rows]), Text(f"  and {len(every) - room.rows:,} more")]


def _is_good_sink(sink: SinkStatus) -> bool:
    return sink.state in _GOOD and not sink.parked


def _is_good_view(view: ViewStatus) -> bool:
    return view.shown in _GOOD


def _moves(pace: Pace, shown: Status, room: PageRoom) -> list[Text]:
    """A line for the whole, and one for each store and view that moves or has to."""
    written, logged = _measured(pace.source_bytes_s, _per_second), _measured(pace.log_bytes_s, _per_second)
    lines = [f"  {name} takes {_per_second(one.bytes_s)}{_level(one)}" for name, one in pace.stores.items()]
    lines += [f"  the view {name} takes {_per_second(one.bytes_s)}{_level(one)}" for name, one in pace.views.items()]
    for sink in shown.sinks:
        if sink.fill is not None:
            left = f", {age(sink.fill.left_s)} left" if sink.fill.left_s is not None else ""
            lines.append(f"  {sink.name} is filled to {share_text(sink.fill.share)}{left}")
    title = f"per second, of the last {pace.seconds:.0f} s: the source writes {written}, the log takes {logged}"
    lost = [f"  the slot is lost in {age(pace.slot_loss_s)} if this goes on"] if pace.slot_loss_s is not None else []
    return [Text(title), *map(Text, lost), *_few([Text(line) for line in lines], room.lines)]


def _level(store: StorePace) -> str:
    if store.nearer is False:
        return ", and comes no nearer"
    return f", level in {age(store.level_s)}" if store.level_s else ""


def _per_second(count_bytes: float) -> str:
    return size(round(count_bytes))


def _table(name: str) -> Table:
    """With a column of names, which are cut where there is no room: figures never are."""
    table = Table(box=None, pad_edge=False, show_header=True, header_style="bold")
    table.add_column(name, overflow="ellipsis")
    table.add_column("shows", no_wrap=True)
    return table


def view_table(views: Sequence[ViewStatus]) -> Table:
    """One line per view."""
    table = _table("view")
    for title in ("behind", "age"):
        table.add_column(title, no_wrap=True, justify="right")
    table.add_column("state", no_wrap=True)
    for title in ("waiting", "on disk"):
        table.add_column(title, no_wrap=True, justify="right")
    for view in views:
        facts, kept = view.facts, view.facts.state
        table.add_row(
            facts.name,
            str(Lsn(facts.lsn)) if facts.lsn is not None else "-",
            _measured(view.lag_bytes, size),
            _aged(view),
            Text(view.shown, style=_STYLES.get(view.shown, "yellow")),
            f"{kept.waiting:,}" if kept is not None else "?",
            size(kept.size_bytes) if kept is not None else "?",
        )
    return table


def _fresh(shown: Status, room: PageRoom) -> list[Text]:
    """How long changes took, as the running processes say."""
    if not shown.fresh_known and not any(sink.fresh_known for sink in shown.sinks):
        return [Text(""), Text("freshness not known: no process answers at [capture] and [spark] http_address")]
    lines = [] if shown.connector is not None else [f"  to the log  {fresh_text(shown.fresh_known, shown.fresh)}"]
    lines += [f"  to {sink.name}  {fresh_text(sink.fresh_known, sink.fresh)}" for sink in shown.sinks]
    title = Text("freshness, from commit, of the last 5 minutes")
    return [Text(""), title, *_few([Text(line) for line in lines], room.lines)]


def sink_table(sinks: Sequence[SinkStatus]) -> Table:
    """One line per store."""
    table = _table("store")
    for title in ("behind", "age"):
        table.add_column(title, no_wrap=True, justify="right")
    table.add_column("state", no_wrap=True)
    table.add_column("parked", no_wrap=True, justify="right")
    for sink in sinks:
        table.add_row(*_cells(sink))
    return table


def _cells(sink: SinkStatus) -> tuple[str | Text, ...]:
    lsn = str(Lsn(sink.lsn)) if sink.lsn else "-"
    filled = f" {share_text(sink.fill.share)}" if sink.fill is not None else ""
    rebuilt = f", rebuild {share_text(sink.rebuild.share)}" if sink.rebuild is not None else ""
    state = Text(f"{sink.state}{filled}{rebuilt}", style=_STYLES.get(sink.state, "yellow"))
    parked = "?" if sink.parked is None else str(sink.parked)
    behind = f"{sink.lag_records:,} records" if sink.lag_records is not None else _measured(sink.lag_bytes, size)
    return sink.name, lsn, behind, _aged(sink), state, parked


def _aged(shown: SinkStatus | ViewStatus) -> str:
    return "-" if shown.lag_s is None else aged(shown.lag_s, shown.lag_at_least)


def _measured(figure: T | None, text: Callable[[T], str]) -> str:
    return "-" if figure is None else text(figure)


def _head(shown: Status, look: LiveLook | None, room: PageRoom) -> list[Text]:
    epoch = f", epoch {shown.epoch}" if shown.epoch is not None else ""
    at = f", at {utc_text(look.at_ms)}" if look is not None else ""
    lines = [Text.assemble((f"pipeline {shown.name}", "bold"), epoch, at)]
    lines += map(Text, _connector_lines(shown, look))
    if shown.asked:
        lines += [Text(_source_line(shown, look)), Text(_slot_line(shown, look))]
        lines += map(Text, _log_lines(shown, look))
        lines += _few([Text(_set_aside(table, one)) for table, one in shown.asides.items()], room.lines)
    else:
        lines.append(Text(f"snapshot  {shown.snapshot}"))
    lines += _few([Text(_again(one)) for one in shown.rereads], room.lines)
    return lines


def _connector_lines(shown: Status, look: LiveLook | None) -> Iterator[str]:
    connector = shown.connector
    if connector is not None:
        yield f"connector {connector.name}, {connector.state}" + (
            f", at {connector.position}" if connector.position else ""
        )
    if "connector" in shown.silent:
        yield f"connector not known{_since(look, 'connector')}, Kafka Connect does not answer"
    if not shown.asked:
        database = f"{connector.database} at {connector.address}" if connector is not None else "not known"
        yield f"source    {database}, which is not asked: cdc connect status shows how far the connector is"


def _source_line(shown: Status, look: LiveLook | None) -> str:
    if "source" in shown.silent:
        return f"source    not known{_since(look, 'source')}, it does not answer"
    return f"source    {shown.address or '?'}, at {Lsn(shown.wal_lsn) if shown.wal_lsn is not None else '?'}"


def _slot_line(shown: Status, look: LiveLook | None) -> str:
    slot = shown.slot
    if isinstance(slot, Unknown):
        return f"slot      {shown.slot_name}: not known{_since(look, 'source')}, Postgres does not answer"
    if slot is None:
        return f"slot      {shown.slot_name}: none"
    used = f"read by process {slot.active_pid}" if slot.active_pid is not None else "read by nobody"
    return f"slot      {slot.slot}, {used}, wal {slot.wal_status}, {size(slot.retained_bytes)} kept"


def _log_lines(shown: Status, look: LiveLook | None) -> Iterator[str]:
    if "log" in shown.silent:
        yield f"log       not known{_since(look, 'log')}, it was not read"
        yield f"snapshot  not known{_since(look, 'log')}"
        yield f"tables    not known{_since(look, 'log')}, nor which are set aside or read again"
        return
    log = str(Lsn(shown.log_lsn)) if shown.log_lsn is not None else "-"
    behind = f"{size(shown.lag_bytes)} and {age(shown.lag_s)} behind the source"
    yield f"log       holds {log}{', ' + behind if shown.lag_bytes is not None else ''}"
    yield f"snapshot  {shown.snapshot}{f', {shown.snapshot_rows:,} rows' if shown.snapshot_rows else ''}"
    if shown.tables:
        followed, aside = _measured(shown.following, "{:,}".format), len(shown.asides)
        yield f"tables    {followed} followed{f', {aside:,} not' if aside else ''}"


def _since(look: LiveLook | None, part: str) -> str:
    if look is None or part not in look.since_ms:
        return ""
    return f" since {utc_text(look.since_ms[part], look.at_ms)}"


def _set_aside(table: str, one: AsideState) -> str:
    return f"  {one.state.value:<8}{table}, since {Lsn(one.since_lsn)}"


def _again(one: Reread) -> str:
    why = f": {one.detail}" if one.detail else ""
    return f"  again   {one.table}, {one.state}, {share_text(one.share)}, {one.rows:,} rows{why}"
