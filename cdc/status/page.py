"""The status page as one HTML document that asks nobody else for anything. Pure, but for its own two files."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson

from cdc.status.board import Board, Grid, Shown, Tile
from cdc.status.hour import Curve
from cdc.status.html import Html, element, together
from cdc.status.svg import plots

_ICON = "data:,"
"""Without an icon of its own a browser asks for one."""
_FIRST = ("Stores", "Views")
"""Above the plots."""
_NUMBERS = frozenset((
    "behind", "age", "takes up", "caught up in", "p50", "p99", "parked keys", "waiting", "late", "on disk", "done",
    "rows",
))  # fmt: skip
"""The columns whose figures stand below each other."""


@cache
def _inline(name: str) -> Html:
    return Html((Path(__file__).with_name(name)).read_text(encoding="utf-8"))


@cache
def headers() -> Mapping[str, str]:
    """The headers of the page: a browser may fetch the page itself again, and run and apply the two inline parts."""
    policy = {
        "default-src": "'none'",
        "script-src": _hash(_inline("page.js")),
        "style-src": _hash(_inline("page.css")),
        "connect-src": "'self'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return {
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
    }


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def page(board: Board, curves: Sequence[Curve], every_s: float) -> str:
    """The whole document. ``every_s``: after how many seconds it is to be fetched again."""
    head = element(
        "head",
        Html('<meta charset="utf-8">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html(f'<link rel="icon" href="{_ICON}">'),
        element("title", f"{board.title}: {board.verdict.text}"),
        element("style", _inline("page.css")),
        element("noscript", Html(f'<meta http-equiv="refresh" content="{max(1, round(every_s))}">')),
    )
    gone = element("p", id="gone", class_="bad", role="alert", hidden=True)
    body = element("body", gone, _main(board, curves), element("script", _inline("page.js")), data_every=f"{every_s:g}")
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _main(board: Board, curves: Sequence[Curve]) -> Html:
    title = element(
        "header",
        element("h1", board.title),
        element("span", board.verdict.text, class_=f"verdict {board.verdict.tone}"),
        element("span", "looked at ", _figure(board.at), class_="at"),
    )
    faults = element("ul", *(element("li", words) for words in board.faults), class_="faults")
    return element(
        "main",
        title,
        faults if board.faults else Html(""),
        element("div", *map(_tile, board.tiles), class_="tiles") if board.tiles else Html(""),
        *(_grid(grid) for grid in board.grids if grid.title in _FIRST),
        plots(curves),
        *(_grid(grid) for grid in board.grids if grid.title not in _FIRST),
    )


def _tile(tile: Tile) -> Html:
    lines = (
        element("div", element("dt", label), element("dd", _figure(shown)), class_="line-of")
        for label, shown in tile.lines
    )
    return element("section", element("h2", tile.title), _notes(tile.notes), element("dl", *lines), class_="tile")


def _notes(notes: Sequence[str]) -> Html:
    return together(*(element("p", words, class_="note unknown") for words in notes))


def _grid(grid: Grid) -> Html:
    head = element("thead", element("tr", *(_column(title) for title in grid.columns)))
    rows = (element("tr", *_cells(row, grid.columns)) for row in grid.rows)
    table = element("div", element("table", head, element("tbody", *rows)), class_="grid") if grid.rows else Html("")
    return together(element("h2", grid.title), _notes(grid.notes), table)


def _column(title: str) -> Html:
    return element("th", title, scope="col", **_aligned(title))


def _aligned(title: str) -> dict[str, str]:
    return {"class_": "number"} if title in _NUMBERS else {}


def _cells(row: Sequence[Shown], columns: Sequence[str]) -> list[Html]:
    first, *rest = row
    return [
        element("th", _figure(first), scope="row"),
        *(
            element("td", _figure(shown), data_label=title, **_aligned(title))
            for shown, title in zip(rest, columns[1:], strict=True)
        ),
    ]


def _figure(shown: Shown) -> Html:
    """A figure with its place in the document and its value there, for programs that read the page."""
    tone = {"class": shown.tone} if shown.tone else {}
    if not shown.at:
        text = element("span", shown.text, **tone)
    else:
        text = element("data", shown.text, value=_plain(shown.value), data_at=shown.at, **tone)
    if shown.share is None:
        return text
    bar = element("progress", max="1", value=f"{shown.share:.3f}", aria_label=shown.text)
    return element("span", text, bar)


def _plain(value: Any) -> str:
    """As JSON has it, a string without its quotes."""
    return value if isinstance(value, str) else orjson.dumps(value).decode()
