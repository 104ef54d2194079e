"""generate_series(): several rows from one, as windows that overlap need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from cdc.views.calendar_days import Interval, endless, plus_interval
from cdc.views.casting import coerced
from cdc.views.refused import NotComputable
from cdc.views.sql_types import INT4, INTERVAL, TIMESTAMP, TIMESTAMPTZ, Group, SqlType
from cdc.views.syntax import ViewText
from cdc.views.term_walks import literal
from cdc.views.terms import Expr

_MOST = 10_000
"""Rows of one series."""


def series_of(text: ViewText, args: list[Expr], location: int) -> tuple[Expr, ...]:
    """The three arguments of a series, each of its type. The first two have that of its column."""
    groups = {arg.type.group for arg in args[:2]} - {Group.UNKNOWN}
    if len(args) == 2 and groups == {Group.INTEGER}:
        args = [*args, literal(1, INT4)]
    if len(args) == 3 and groups == {Group.INTEGER} and args[2].type.group is Group.INTEGER:
        kind = max((arg.type for arg in args), key=lambda one: one.kind)
        kind = INT4 if kind.kind == "int2" else kind
        return tuple(coerced(text, arg, kind) for arg in args)
    if len(args) == 3 and groups and groups <= {Group.DATE, Group.TIMESTAMP, Group.TIMESTAMPTZ}:
        kind = TIMESTAMP if groups == {Group.TIMESTAMP} else TIMESTAMPTZ
        return (*(coerced(text, arg, kind) for arg in args[:2]), coerced(text, args[2], INTERVAL))
    types = ", ".join(str(arg.type) for arg in args)
    hint = "series of a view are of integers, or of times with an interval"
    raise text.refused(f"a view has no generate_series({types})", location, hint=hint)


def series_function(kind: SqlType) -> Callable[[Any, Any, Any], Iterator[tuple[Any]]]:
    """The rows of a series of that type."""
    return _of_integers if kind.group is Group.INTEGER else _of_times


def _of_integers(begin: int | None, end: int | None, step: int | None) -> Iterator[tuple[int]]:
    if begin is None or end is None or step is None:
        return
    if step == 0:
        raise NotComputable("step size cannot equal zero")
    numbers = range(begin, end + (1 if step > 0 else -1), step)
    if len(numbers) > _MOST:
        raise NotComputable(f"a series of more than {_MOST} rows")
    for number in numbers:
        yield (number,)


def _of_times(begin: int | None, end: int | None, step: Interval | None) -> Iterator[tuple[int]]:
    if begin is None or end is None or step is None:
        return
    span = step.span()
    if span == 0:
        raise NotComputable("step size cannot equal zero")
    if endless(begin) is not None or endless(end) is not None:
        raise NotComputable("a series from or to infinity")
    count = 0
    while begin <= end if span > 0 else begin >= end:
        count += 1
        if count > _MOST:
            raise NotComputable(f"a series of more than {_MOST} rows")
        yield (begin,)
        begin = plus_interval(begin, step)
