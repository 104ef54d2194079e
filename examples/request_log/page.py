"""One page of plots from the table ``stream.traffic`` of the SQL store: requests, errors, times and users a minute.

python -m examples.request_log.page reports.db > traffic.html
"""

from __future__ import annotations

import sqlite3
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 640, 180, 56, 12, 24
COLORS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b")
PLOTS = (
    ("requests", "Requests"),
    ("error_ratio", "Share of errors"),
    ("p50_ms", "Median time, ms"),
    ("p99_ms", "99th percentile of the time, ms"),
    ("users", "Users, about"),
)
_ROWS = "select minute, path, requests, error_ratio, p50_ms, p99_ms, users from stream_traffic_live order by minute"
_ALERTS = "select minute, requests, errors from stream_alerts_live order by minute"


class Traffic(NamedTuple):
    """A row of ``stream.traffic``."""

    minute: str
    path: str
    requests: int
    error_ratio: float
    p50_ms: float
    p99_ms: float
    users: int


def page(rows: Sequence[Traffic], alerts: Sequence[tuple[str, int, int]]) -> str:
    """The page as HTML, with the plots in it as SVG. It loads nothing from the network."""
    plots = "".join(f"<h2>{title}</h2>{_plot(rows, member)}" for member, title in PLOTS)
    told = "".join(f"<li>{escape(minute)}: {errors} of {count} failed</li>" for minute, count, errors in alerts)
    paths = sorted({row.path for row in rows})
    names = "".join(f'<b style="color:{color}">{escape(path)}</b> ' for path, color in _colors(paths).items())
    return (
        '<!doctype html><meta charset="utf-8"><title>Traffic</title>'
        "<style>body{font:14px sans-serif;margin:2em;color:#222}h2{font-size:15px;margin:1.2em 0 .2em}</style>"
        f"<h1>Traffic</h1><p>{names}</p>{plots}<h2>Alerts</h2><ul>{told or '<li>none</li>'}</ul>"
    )


def _plot(rows: Sequence[Traffic], member: str) -> str:
    minutes = sorted({row.minute for row in rows})
    lines: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for row in rows:
        lines[row.path].append((minutes.index(row.minute), float(getattr(row, member))))
    most = max((value for line in lines.values() for _, value in line), default=0) or 1
    step = (WIDTH - LEFT - 8) / max(1, len(minutes) - 1)

    def point(place: tuple[int, float]) -> str:
        return f"{LEFT + place[0] * step:.1f},{HEIGHT - BOTTOM - place[1] / most * (HEIGHT - TOP - BOTTOM):.1f}"

    drawn = []
    for path, color in _colors(sorted(lines)).items():
        points = [point(place) for place in lines[path]]
        drawn.append(f'<polyline fill="none" stroke="{color}" stroke-width="2" points="{" ".join(points)}"/>')
        x, y = points[-1].split(",")
        drawn.append(f'<circle cx="{x}" cy="{y}" r="3" fill="{color}"/>')
    floor = HEIGHT - BOTTOM
    first, last = (minutes[0][11:16], minutes[-1][11:16]) if minutes else ("", "")
    frame = f'<path d="M{LEFT} {TOP}V{floor}H{WIDTH - 8}" fill="none" stroke="#999"/>'
    marks = (
        f'<text x="{LEFT - 6}" y="{TOP + 6}" text-anchor="end">{most:.4g}</text>'
        f'<text x="{LEFT - 6}" y="{floor}" text-anchor="end">0</text>'
        f'<text x="{LEFT}" y="{HEIGHT - 6}">{escape(first)}</text>'
        f'<text x="{WIDTH - 8}" y="{HEIGHT - 6}" text-anchor="end">{escape(last)}</text>'
    )
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    return f'<svg {size} font-size="12">{frame}{marks}{"".join(drawn)}</svg>'


def _colors(paths: Sequence[str]) -> Mapping[str, str]:
    return {path: COLORS[number % len(COLORS)] for number, path in enumerate(paths)}


def main(database: str) -> int:
    """Print the page."""
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as reports:
        rows = [Traffic(*row) for row in reports.execute(_ROWS)]
        alerts = reports.execute(_ALERTS).fetchall()
    print(page(rows, alerts))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
