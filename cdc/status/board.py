"""The parts of the status page, from the document that ``--watch --json`` prints. Pure.

Each figure names its place in the document by a JSON pointer, and is read there: the page shows nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from cdc.checks.findings import unfed_view
from cdc.process.untrusted_text import without_urls
from cdc.status.pace import LiveLook, utc_text
from cdc.status.view_lines import age, aged, count, rate, seconds_text, share_text, size

Document: TypeAlias = Mapping[str, Any]

_TONES = {
    **dict.fromkeys(("consistent", "level", "complete", "RUNNING", "reserved"), "good"),
    **dict.fromkeys(("unreachable", "empty", "lost", "unreserved", "FAILED", "held", "failed"), "bad"),
}
"""Colours of states, which stand in words as well. Every other state is one to look at."""

_HALVES = dict.fromkeys(range(0xD800, 0xE000), "\N{REPLACEMENT CHARACTER}")
"""Characters that no encoding has. A name of a file may hold some."""
_FAULTS, _ROWS = 8, 20
"""So many of them are shown: of more a page tells nothing."""
_PARTS = {"log": "the log", "source": "the source", "connector": "the connector"}
_MEANING = (
    "age: how long ago the log first had more than the store shows",
    "p50, p99: from commit to store, of the changes of the last 5 minutes that waited for no fill",
)
_UNTOLD = "freshness is not known: no process answers at [capture] and [spark] http_address"


class Shown(NamedTuple):
    """A figure: its text, its place in the document, its value there. ``tone``: ``good``, ``bad``, ``warn``,
    ``unknown`` or empty. ``share``: how full a bar beside it is, from 0 to 1. ``silent``: the parts that do not say
    it."""

    text: str
    at: str = ""
    value: Any = None
    tone: str = ""
    share: float | None = None
    silent: tuple[str, ...] = ()


class Tile(NamedTuple):
    """A titled list of figures. ``notes``: a sentence each, such as why one is not known."""

    title: str
    lines: Sequence[tuple[str, Shown]]
    notes: Sequence[str] = ()


class Grid(NamedTuple):
    """A titled table of figures. ``notes`` as of a tile."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Shown]]
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """The page of one look. ``verdict``: in a few words. ``faults``: a sentence each."""

    title: str
    at: Shown
    verdict: Shown
    faults: Sequence[str] = ()
    tiles: Sequence[Tile] = ()
    grids: Sequence[Grid] = ()


def document_of(look: LiveLook) -> dict[str, Any]:
    """The document of a look, to be shown to others: no text in it holds the user and password of a URL."""
    found: dict[str, Any] = _clean(look.document())
    return found


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return without_urls(value.translate(_HALVES))
    if isinstance(value, Mapping):
        return {_clean(key): _clean(member) for key, member in value.items()}
    return [_clean(member) for member in value] if isinstance(value, list | tuple) else value


def board_of(document: Document) -> Board:
    """The page of a look."""
    found = _Pointed(document)
    epoch = f", epoch {document['epoch']}" if document["epoch"] is not None else ""
    grids = (_stores(found), _views(found), _others(found), _rereads(found))
    return Board(
        title=f"{document['name']}{epoch}",
        at=found.figure("/at_ms", utc_text),
        verdict=_verdict(document),
        faults=tuple(_first([_with_cure(document, words) for words in document["passed"]], _FAULTS)),
        tiles=tuple(tile._replace(notes=found.notes(shown for _, shown in tile.lines)) for tile in _tiles(found)),
        grids=tuple(grid for grid in map(found.noted, grids) if grid.rows or grid.notes),
    )


def first_board(pipeline: str) -> Board:
    """The page before the first look has ended."""
    return Board(title=pipeline, at=Shown("never yet"), verdict=Shown("looking for the first time", tone="unknown"))


def old_board(document: Document, age_s: float, now_ms: int) -> Board:
    """The page where no look has ended for long: it shows none of the old figures. ``age_s``: how long ago the last
    look began. ``now_ms``: of the calendar, for its day alone."""
    at_ms = document["at_ms"]
    at = utc_text(at_ms, now_ms)
    why = f"The last look began {age(age_s)} ago, and none has ended since: a part answers very slowly."
    return Board(
        title=document["name"],
        at=Shown(at, "/at_ms", at_ms),
        verdict=Shown(f"not known since {at}", tone="unknown"),
        faults=(why,),
    )


def _with_cure(document: Document, sentence: str) -> str:
    cure = document["cures"].get(sentence)
    return f"{sentence}. Fix: {cure}" if cure else sentence


def _first(words: Sequence[str], most: int) -> Iterator[str]:
    yield from words[:most]
    if len(words) > most:
        yield f"and {len(words) - most:,} more: cdc status prints them all"


def _verdict(document: Document) -> Shown:
    if document["unknown"]:
        parts = ", ".join(document["unknown"])
        return Shown(f"not known: {parts}", tone="bad")
    faults = len(document["passed"])
    if faults:
        return Shown("1 fault" if faults == 1 else f"{faults} faults", tone="warn")
    return Shown("all is well", tone="good")


class _Pointed:
    """Reads figures of a document by their pointers."""

    def __init__(self, document: Document) -> None:
        self.document = document

    def at(self, pointer: str) -> Any:
        """The value there. None where something on the way is missing or null."""
        found: Any = self.document
        for step in pointer.split("/")[1:]:
            if not isinstance(found, Mapping | list):
                return None
            word = step.replace("~1", "/").replace("~0", "~")
            found = found[int(word)] if isinstance(found, list) else found.get(word)
        return found

    def figure(self, pointer: str, text: Callable[[Any], str] = str, *parts: str) -> Shown:
        """A figure. ``parts``: those that it is worked out from. While one does not answer it is not known."""
        silent = tuple(part for part in self.document["unknown_since_ms"] if part in parts)
        if silent:
            return Shown("?", tone="unknown", silent=silent)
        value = self.at(pointer)
        # A figure without text is none: a browser shows nothing there.
        return Shown(text(value), pointer, value) if value not in (None, "") else Shown("-")

    def aged(self, here: str, *parts: str) -> Shown:
        """How old the oldest change is that a store or a view lacks."""
        return self.figure(f"{here}/lag_seconds", partial(aged, at_least=self.at(f"{here}/lag_at_least")), *parts)

    def fresh(self, here: str, quantile: str) -> Shown:
        """How fresh changes are. That nothing came is a dash, and that nobody says it is not."""
        if not self.at(f"{here}/freshness_known") and self.at(f"{here}/freshness") is None:
            return Shown("?", tone="unknown")
        return self.figure(f"{here}/freshness/{quantile}", seconds_text)

    def notes(self, shown: Iterable[Shown]) -> tuple[str, ...]:
        """Why figures are not known: once for all of them."""
        unknown = [one for one in shown if one.tone == "unknown"]
        silent = {part for one in unknown for part in one.silent}
        untold = [_UNTOLD] if any(not one.silent for one in unknown) else []
        now_ms = self.document["at_ms"]
        since = (
            f"{_PARTS.get(part, part)} since {utc_text(at_ms, now_ms)}"
            for part, at_ms in self.document["unknown_since_ms"].items()
            if part in silent
        )
        return (*([f"not known: {', '.join(since)}"] if silent else []), *untold)

    def noted(self, grid: Grid) -> Grid:
        """The first rows of a grid, with its notes."""
        rows, more = grid.rows[:_ROWS], len(grid.rows) - _ROWS
        rest = (f"and {more:,} more: cdc status prints them all",) if more > 0 else ()
        return grid._replace(rows=rows, notes=(*self.notes(one for row in rows for one in row), *rest, *grid.notes))

    def state(self, pointer: str, *parts: str) -> Shown:
        """A word with its colour."""
        shown = self.figure(pointer, str, *parts)
        return shown if shown.tone else shown._replace(tone=_TONES.get(shown.text, "warn"))


def step(name: object) -> str:
    """A name as a step of a JSON pointer.

    >>> step("a/b~c")
    'a~1b~0c'
    """
    return str(name).replace("~", "~0").replace("/", "~1")


def _tiles(found: _Pointed) -> Iterator[Tile]:
    document = found.document
    connects = document["connector"] is not None or "connector" in document["unknown"]
    if connects:
        shown = ("name", "position") if found.at("/connector/position") else ("name",)
        lines = [(name, found.figure(f"/connector/{name}", str, "connector")) for name in shown]
        yield Tile("Connector", [("state", found.state("/connector/state", "connector")), *lines])
    if not connects or document["source"]["wal_lsn"] is not None or "source" in document["unknown"]:
        yield _source(found)
        yield _slot(found)
        yield _log(found)
    # A count of ours is at no place in the document.
    aside = found.figure("/tables/others", lambda others: count(len(others)), "log")._replace(at="", value=None)
    yield Tile(
        "Tables",
        [
            ("first snapshot", found.state("/snapshot/state", "connector" if connects else "log")),
            ("rows of it", found.figure("/snapshot/rows", count, "log")),
            ("followed", found.figure("/tables/following", count, "log")),
            ("not followed now", aside._replace(tone=aside.tone or ("" if aside.text == "0" else "warn"))),
        ],
    )


def _source(found: _Pointed) -> Tile:
    lines = [
        ("at", found.figure("/source/wal_lsn", str, "source")),
        ("writes", found.figure("/pace/source_bytes_s", rate, "source")),
        ("server", found.figure("/source/address", str, "source")),
    ]
    return Tile("Source", lines)


def _slot(found: _Pointed) -> Tile:
    if found.at("/slot") is None and "source" not in found.document["unknown"]:
        return Tile("Slot", [("slot", Shown("none", tone="bad"))])
    reader = found.figure("/slot/active_pid", "process {}".format, "source")
    lines = [
        ("keeps", found.figure("/slot/retained_bytes", size, "source")),
        ("WAL", found.state("/slot/wal_status", "source")),
        ("read by", Shown("nobody", tone="bad") if reader.text == "-" else reader),
        ("lost in, at this rate", found.figure("/pace/slot_loss_s", age, "source")),
    ]
    return Tile("Slot", lines)


def _log(found: _Pointed) -> Tile:
    lines = [
        ("holds", found.figure("/log/lsn", str, "log")),
        ("behind", found.figure("/log/lag_bytes", size, "log", "source")),
        ("age", found.figure("/log/lag_seconds", age, "log", "source")),
        ("grows by", found.figure("/pace/log_bytes_s", rate, "log")),
        ("freshness p50", found.fresh("/log", "p50_seconds")),
        ("p99", found.fresh("/log", "p99_seconds")),
    ]
    return Tile("Log", lines)


def _stores(found: _Pointed) -> Grid:
    columns = ("store", "state", "shows", "behind", "age", "takes up", "caught up in", "p50", "p99", "parked keys")
    rows = [_store(found, name) for name in found.document["sinks"]]
    return Grid("Stores", columns, rows, _MEANING)


def _places(found: _Pointed, name: str, here: str) -> tuple[Shown, Shown, Shown]:
    """Where a store is: its LSN, how far behind, and how long."""
    if found.at(f"{here}/lag_records") is not None:
        behind = found.figure(f"{here}/lag_records", "{:,} records".format, name, "log")
    else:
        behind = found.figure(f"{here}/lag_bytes", size, name, "log", "source")
    shows = found.figure(f"{here}/lsn")
    # A store that is being filled is at no place in the WAL yet.
    first = Shown("-") if shows.value == "0/0" else found.figure(f"{here}/lsn", str, name)
    return first, behind, found.aged(here, name, "log", "source")


def _store(found: _Pointed, name: str) -> list[Shown]:
    here, pace = f"/sinks/{step(name)}", f"/pace/stores/{step(name)}"
    first, behind, lag = _places(found, name, here)
    state, fill = found.state(f"{here}/state"), found.at(f"{here}/fill/share")
    if (rebuilt := found.at(f"{here}/rebuild/share")) is not None:
        state = state._replace(share=rebuilt, text=f"{state.text}, rebuild {share_text(rebuilt)}")
    return [
        Shown(name),
        state if fill is None else state._replace(share=fill, text=f"{state.text} {share_text(fill)}"),
        first,
        behind,
        lag,
        found.figure(f"{pace}/bytes_s", rate, name),
        _level(found, name, here, pace),
        found.fresh(here, "p50_seconds"),
        found.fresh(here, "p99_seconds"),
        _warned(found.figure(f"{here}/parked", count, "log")),
    ]


def _warned(shown: Shown) -> Shown:
    """A count that ought to be 0."""
    return shown._replace(tone="warn") if shown.value else shown


def _level(found: _Pointed, name: str, here: str, pace: str) -> Shown:
    left = found.figure(f"{here}/fill/remaining_seconds", age)
    if left.value is not None:
        return left
    return (
        Shown("no nearer")
        if found.at(f"{pace}/nearer") is False
        else found.figure(f"{pace}/level_s", age, name, "source")
    )


def _views(found: _Pointed) -> Grid:
    columns = ("view", "state", "shows", "behind", "age", "takes up", "waiting", "on disk")
    rows = []
    for name in found.document["views"]:
        here = f"/views/{step(name)}"
        rows.append(
            [
                Shown(name),
                found.state(f"{here}/state", "log"),
                found.figure(f"{here}/lsn", str, "log"),
                found.figure(f"{here}/lag_bytes", size, "log", "source"),
                found.aged(here, "log", "source"),
                found.figure(f"/pace/views/{step(name)}/bytes_s", rate, "log"),
                found.figure(f"{here}/waiting", count, "log"),
                found.figure(f"{here}/state_bytes", size, "log"),
            ]
        )
    unfed = [unfed_view(name) for name, view in found.document["views"].items() if not view["fed"]]
    return Grid("Views", columns, rows, [f"{one.sentence}: {one.cure}" for one in unfed])


def _others(found: _Pointed) -> Grid:
    rows = []
    for table in found.document["tables"]["others"]:
        here = f"/tables/others/{step(table)}"
        figures = [found.figure(f"{here}/{name}") for name in ("cause", "detail", "since_lsn")]
        rows.append([Shown(table), found.state(f"{here}/state"), *figures])
    return Grid("Tables set aside", ("table", "state", "cause", "detail", "since"), rows, _silent_log(found))


def _rereads(found: _Pointed) -> Grid:
    rows = []
    for number, one in enumerate(found.document["rereads"]):
        here = f"/rereads/{number}"
        share = found.figure(f"{here}/share", share_text)._replace(share=one["share"])
        rows.append(
            [
                Shown(one["table"]),
                found.state(f"{here}/state"),
                share,
                found.figure(f"{here}/rows", count),
                found.figure(f"{here}/reason"),
                found.figure(f"{here}/detail"),
            ]
        )
    return Grid("Tables read again", ("table", "state", "done", "rows", "why", "detail"), rows, _silent_log(found))


def _silent_log(found: _Pointed) -> tuple[str, ...]:
    """A log that is silent does not say that there is none."""
    return found.notes([found.figure("/tables", str, "log")]) if "log" in found.document["unknown_since_ms"] else ()
