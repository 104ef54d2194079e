"""generate_series(), several rows from one as windows that overlap need, and what takes a time apart: date_trunc(),
date_bin() and extract()."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

from cdc.views.calendar_days import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    Interval,
    civil,
    days_of,
    endless,
    plus_interval,
    timestamp_of_date,
)
from cdc.views.conversions import coerced
from cdc.views.sql_types import INT4, INTERVAL, TIMESTAMP, TIMESTAMPTZ, Group, SqlType
from cdc.views.syntax import NotComputable, ViewText
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


_TRUNCATED = {"day": DAY, "hour": HOUR, "minute": MINUTE, "second": SECOND, "milliseconds": 1000, "microseconds": 1}
TRUNCATIONS = frozenset({*_TRUNCATED, "week", "month", "quarter", "year"})


def truncated_to(unit: str, micros: int) -> int:
    """date_trunc() in UTC, of a timestamp. A week begins on Monday."""
    if endless(micros) is not None:
        return micros
    if unit in _TRUNCATED:
        return micros - micros % _TRUNCATED[unit]
    days = micros // DAY
    if unit == "week":
        return (days - (days + 3) % 7) * DAY
    year, month, _ = civil(days)
    if unit == "year":
        month = 1
    elif unit == "quarter":
        month = (month - 1) // 3 * 3 + 1
    return days_of(year, month, 1) * DAY


def binned(stride: Interval, micros: int, origin: int) -> int:
    """date_bin(): the beginning of the interval that a timestamp lies in, in microseconds.

    Raises NotComputable for an infinite origin, and for a stride with months, of zero or below it.
    """
    if endless(micros) is not None:
        return micros
    if endless(origin) is not None:
        raise NotComputable("origin out of range")
    if stride.months:
        raise NotComputable("timestamps cannot be binned into intervals containing months or years")
    width = stride.days * DAY + stride.micros
    if width <= 0:
        raise NotComputable("stride must be greater than zero")
    return micros - (micros - origin) % width


def _seconds(micros: int) -> Decimal:
    return Decimal(micros % MINUTE).scaleb(-6)


def _shown_year(year: int) -> int:
    return year if year > 0 else year - 1


def _iso_week(days: int) -> tuple[int, int]:
    thursday = days - (days + 3) % 7 + 3
    year = civil(thursday)[0]
    return year, (thursday - days_of(year, 1, 1)) // 7 + 1


_FIELDS: dict[str, Callable[[int, int], int | Decimal]] = {
    "year": lambda days, _: _shown_year(civil(days)[0]),
    "month": lambda days, _: civil(days)[1],
    "day": lambda days, _: civil(days)[2],
    "quarter": lambda days, _: (civil(days)[1] - 1) // 3 + 1,
    "week": lambda days, _: _iso_week(days)[1],
    "isoyear": lambda days, _: _shown_year(_iso_week(days)[0]),
    "dow": lambda days, _: (days + 4) % 7,
    "isodow": lambda days, _: (days + 3) % 7 + 1,
    "doy": lambda days, _: days - days_of(civil(days)[0], 1, 1) + 1,
    "hour": lambda _, micros: micros // HOUR,
    "minute": lambda _, micros: micros // MINUTE % 60,
    "second": lambda _, micros: _seconds(micros),
    "epoch": lambda days, micros: Decimal(days * DAY + micros).scaleb(-6),
}
FIELDS = frozenset(_FIELDS)
DATE_FIELDS = FIELDS - {"hour", "minute", "second"}


def field_of(name: str, micros: int) -> Decimal | None:
    """extract() from a timestamp. Of an infinite one, what grows with time is infinite, and what repeats is NULL."""
    shown = endless(micros)
    if shown is not None:
        return Decimal(shown) if name in ("year", "isoyear", "epoch") else None
    days, of_day = divmod(micros, DAY)
    return Decimal(_FIELDS[name](days, of_day))


def date_field_of(name: str, days: int) -> Decimal | None:
    """extract() from a date."""
    if name == "epoch" and endless(days) is None:
        return Decimal(days * 86_400)
    return field_of(name, timestamp_of_date(days))
