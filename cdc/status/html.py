"""HTML from values, every text escaped unless it is HTML already, and plots as SVG. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from itertools import groupby

from cdc.status.pace import POINT_S, POINTS, Curve
from cdc.status.view_lines import age, size


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(name: str, *children: str, **attributes: str | bool) -> Html:
    """An element with its children. Those that are no :class:`Html` are text, and escaped, as attributes are.

    An underscore in an attribute's name is a hyphen, and one at its end is left out. True stands alone, and False is
    left out.

    >>> element("b", "a<b", element("i"), class_="x", data_at='"', hidden=True)
    '<b class="x" data-at="&quot;" hidden>a&lt;b<i></i></b>'
    """
    said = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escape(str(value))}"')
        for key, value in attributes.items()
        if value is not False
    )
    return Html(f"<{name}{said}>{together(*children)}</{name}>")


def together(*children: str) -> Html:
    """The children behind each other, escaped where they are text.

    >>> together("<", Html("<br>"))
    '&lt;<br>'
    """
    return Html("".join(child if isinstance(child, Html) else escape(child) for child in children))


_WIDTH, _HEIGHT = float(POINTS - 1), 60.0
_UNITS: dict[str, Callable[[float], str]] = {
    "seconds": age,
    "bytes": lambda value: size(round(value)),
    "bytes/s": lambda value: f"{size(round(value))}/s",
    "records": lambda value: f"{value:,.0f}",
}

_QUARTERS = (0.25, 0.5, 0.75)
_TICKS = "".join(f"M{_WIDTH * share:g} 0V{_HEIGHT:g}" for share in _QUARTERS)
_AXIS = ("60 min ago", "45", "30", "15", "now")


def plotted(curve: Curve) -> Html:
    """A curve with its newest and its highest value. Where something was not known the line is broken off, and the
    time is marked."""
    text, known = _UNITS[curve.unit], [value for value in curve.values if value is not None]
    top = max(known, default=0.0)
    now = text(curve.now) if curve.now is not None else "not known"
    most = f"at most {text(top)} in {_span(len(curve.values))}" if known else ""
    drawing = element(
        "svg",
        element("path", d=_TICKS, class_="tick"),
        element("path", d=" ".join(_gaps(curve.values)), class_="gap"),
        element("path", d=" ".join(_areas(curve.values, top)), class_="area"),
        element("path", d=" ".join(_lines(curve.values, top)), class_="line"),
        viewBox=f"0 0 {_WIDTH:.0f} {_HEIGHT:.0f}",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"{curve.title}: now {now}, {most}",
    )
    title = element("figcaption", element("b", curve.title), element("span", now), element("small", most))
    axis = element("div", *(element("small", words) for words in _AXIS), class_="axis", aria_hidden="true")
    return element("figure", title, drawing, axis)


def plots(curves: Sequence[Curve]) -> Html:
    """All that have a known point: one of a store that is being filled has none. Nothing where there is none."""
    drawn = [plotted(curve) for curve in curves if any(value is not None for value in curve.values)]
    return together(element("h2", "The last hour"), element("div", *drawn, class_="plots")) if drawn else Html("")


def _span(points: int) -> str:
    return f"{max(1, round((points - 1) * POINT_S / 60))} min"


def _lines(values: Sequence[float | None], top: float) -> Iterator[str]:
    """Strokes of the known stretches. One known point alone is a stroke as well."""
    for stretch in _stretches(values, top):
        (first_x, first_y), *rest = stretch if len(stretch) > 1 else [(stretch[0][0] - 1, stretch[0][1]), stretch[0]]
        yield f"M{first_x:g} {first_y:g}" + "".join(f"L{x:g} {y:g}" for x, y in rest)


def _gaps(values: Sequence[float | None]) -> Iterator[str]:
    """Marks of the unknown stretches, each from the known point before it to the one after."""
    left, last = _WIDTH - (len(values) - 1), len(values) - 1
    for unknown, run in groupby(range(len(values)), key=lambda place: values[place] is None):
        if unknown:
            first, *rest = run
            begin, end = max(0, first - 1), min(last, (rest or [first])[-1] + 1)
            yield f"M{left + begin:g} 0H{left + end:g}V{_HEIGHT:g}H{left + begin:g}Z"


def _areas(values: Sequence[float | None], top: float) -> Iterator[str]:
    for stretch in _stretches(values, top):
        outline = "".join(f"L{x:g} {y:g}" for x, y in stretch)
        yield f"M{stretch[0][0]:g} {_HEIGHT:g}{outline}L{stretch[-1][0]:g} {_HEIGHT:g}Z"


def _stretches(values: Sequence[float | None], top: float) -> Iterator[list[tuple[float, float]]]:
    """The known points between two unknown ones, in the drawing's units. The newest stands at the right edge."""
    stretch: list[tuple[float, float]] = []
    left = _WIDTH - (len(values) - 1)
    for place, value in enumerate(values):
        if value is None:
            if stretch:
                yield stretch
            stretch = []
            continue
        height = value / top * (_HEIGHT - 4) if top > 0 else 0.0
        stretch.append((left + place, round(_HEIGHT - 1 - height, 1)))
    if stretch:
        yield stretch
