"""Dates, times and intervals as numbers, with the text and the arithmetic of Postgres.

A date is days since 1970-01-01, a time microseconds of its day, a timestamp microseconds since 1970 (with time zone: in
UTC). The years are those of the proleptic Gregorian calendar, and year 0 is 1 BC. An interval is (months, days,
microseconds), as in Postgres. ``infinity`` is a number beyond all others, for dates and timestamps alike.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from cdc.views.syntax import NotComputable

INFINITY = 2**63 - 1
"""``infinity``. Its negative is ``-infinity``."""
SECOND, MINUTE, HOUR, DAY = 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000
"""Microseconds."""


class Interval(NamedTuple):
    """Not comparable as it stands: see :meth:`span`."""

    months: int
    days: int
    micros: int

    def span(self) -> int:
        """Microseconds, a month being thirty days: by these Postgres compares."""
        return (self.months * 30 + self.days) * DAY + self.micros


def days_of(year: int, month: int, day: int) -> int:
    """Days since 1970 of a civil date. Astronomical years: 0 is 1 BC.

    >>> days_of(1970, 1, 1), days_of(2000, 3, 1), days_of(0, 12, 31)
    (0, 11017, -719163)
    """
    year -= month <= 2
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def civil(days: int) -> tuple[int, int, int]:
    """Year, month and day. :func:`days_of` the other way.

    >>> civil(11017)
    (2000, 3, 1)
    """
    days += 719_468
    era = days // 146_097
    of_era = days - era * 146_097
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    shifted = (5 * of_year + 2) // 153
    day = of_year - (153 * shifted + 2) // 5 + 1
    month = shifted + (3 if shifted < 10 else -9)
    return year + era * 400 + (month <= 2), month, day


def endless(value: int) -> str | None:
    """The text of an infinite date or timestamp. None for any other."""
    return None if -INFINITY < value < INFINITY else "infinity" if value > 0 else "-infinity"


def _year_text(year: int) -> tuple[str, str]:
    return (f"{year:04d}", "") if year > 0 else (f"{1 - year:04d}", " BC")


def date_text(days: int) -> str:
    """As Postgres prints it.

    >>> date_text(17109), date_text(-719163), date_text(INFINITY)
    ('2016-11-04', '0001-12-31 BC', 'infinity')
    """
    found = endless(days)
    if found is not None:
        return found
    year, month, day = civil(days)
    shown, era = _year_text(year)
    return f"{shown}-{month:02d}-{day:02d}{era}"


def time_text(micros: int) -> str:
    """``13:51:30.123``

    >>> time_text(49890123000), time_text(0)
    ('13:51:30.123', '00:00:00')
    """
    seconds, fraction = divmod(micros, SECOND)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    text = f"{hour:02d}:{minute:02d}:{second:02d}"
    return f"{text}.{f'{fraction:06d}'.rstrip('0')}" if fraction else text


def timestamp_text(micros: int, between: str = " ", zone: str = "") -> str:
    """As Postgres prints it, or with ``T`` between as its JSON has it. ``zone`` stands behind the time.

    >>> timestamp_text(1478267490120000), timestamp_text(1478267490120000, "T", "+00:00")
    ('2016-11-04 13:51:30.12', '2016-11-04T13:51:30.12+00:00')
    """
    found = endless(micros)
    if found is not None:
        return found
    days, of_day = divmod(micros, DAY)
    year, month, day = civil(days)
    shown, era = _year_text(year)
    return f"{shown}-{month:02d}-{day:02d}{between}{time_text(of_day)}{zone}{era}"


def interval_text(value: Interval) -> str:
    """As Postgres prints it under ``intervalstyle = iso_8601``, which capture's sessions have.

    >>> interval_text(Interval(14, -3, 3 * HOUR)), interval_text(Interval(0, 0, -1500000))
    ('P1Y2M-3DT3H', 'PT-1.5S')
    """
    year, month = _toward_zero(value.months, 12)
    hour, rest = _toward_zero(value.micros, HOUR)
    minute, micros = _toward_zero(rest, MINUTE)
    second, fraction = divmod(abs(micros), SECOND)
    day = "".join(f"{number}{unit}" for number, unit in ((year, "Y"), (month, "M"), (value.days, "D")) if number)
    time = "".join(f"{number}{unit}" for number, unit in ((hour, "H"), (minute, "M")) if number)
    if micros:
        behind = f".{fraction:06d}".rstrip("0") if fraction else ""
        time += f"{'-' if micros < 0 else ''}{second}{behind}S"
    return f"P{day}T{time}" if time else f"P{day}" if day else "PT0S"


def _toward_zero(a: int, b: int) -> tuple[int, int]:
    quotient = abs(a) // b * (1 if a >= 0 else -1)
    return quotient, a - quotient * b


_DATE = re.compile(r"(\d{4,7})-(\d\d?)-(\d\d?)( BC)?", re.ASCII)
_TIME = re.compile(r"(\d\d?):(\d\d)(?::(\d\d)(?:\.(\d{1,6}))?)?", re.ASCII)
_STAMP = re.compile(
    r"(\d{4,7})-(\d\d?)-(\d\d?)(?:[ T](\d\d?):(\d\d)(?::(\d\d)(?:\.(\d{1,6}))?)?)?"
    r" ?(Z|z|[Uu][Tt][Cc]|[+-]\d\d(?::?\d\d)?(?::\d\d)?)?( BC)?",
    re.ASCII,
)
_ENDLESS = {"infinity": INFINITY, "-infinity": -INFINITY}


def date_of(text: str) -> int:
    """ISO text as a date. Raises :class:`NotComputable` for any other."""
    found = _DATE.fullmatch(text.strip())
    if found is None:
        if text.strip() in _ENDLESS:
            return _ENDLESS[text.strip()]
        raise NotComputable("a date that is not written as 2016-11-04")
    year = int(found[1]) if found[4] is None else 1 - int(found[1])
    return _checked(year, int(found[2]), int(found[3]))


def _checked(year: int, month: int, day: int) -> int:
    days = days_of(year, month, day) if 1 <= month <= 12 else 0
    if not 1 <= month <= 12 or civil(days) != (year, month, day):
        raise NotComputable("date/time field value out of range")
    return _date_in_range(days)


_FIRST_DAY, _LAST_DAY = days_of(-4713, 11, 24), days_of(5_874_897, 12, 31)
_FIRST_MICROS = _FIRST_DAY * DAY


def _date_in_range(days: int) -> int:
    if not _FIRST_DAY <= days <= _LAST_DAY:
        raise NotComputable("date out of range")
    return days


def _in_range(micros: int) -> int:
    """A timestamp that is none of the infinite ones. Postgres's last 30 years, up to 294276, are refused as well."""
    if not _FIRST_MICROS <= micros < INFINITY:
        raise NotComputable("timestamp out of range")
    return micros


def time_of(text: str) -> int:
    """``13:51:30.123`` in microseconds of the day. Raises NotComputable for any other form, and above 24:00:00."""
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise NotComputable("a time that is not written as 13:51:30")
    micros = _of_day(found[1], found[2], found[3], found[4])
    if micros > DAY:
        raise NotComputable("date/time field value out of range")
    return micros


def _of_day(hour: str, minute: str, second: str | None, fraction: str | None) -> int:
    if int(minute) > 59 or int(second or 0) > 60:
        raise NotComputable("date/time field value out of range")
    return int(hour) * HOUR + int(minute) * MINUTE + int(second or 0) * SECOND + int((fraction or "0").ljust(6, "0"))


def timestamp_of(text: str, zoned: bool = False) -> int:
    """ISO text as a timestamp, in microseconds. ``zoned``: an offset counts, and none is UTC. Else it is ignored.

    Raises NotComputable for any other form, and for a time that a timestamp cannot hold.
    """
    found = _STAMP.fullmatch(text.strip())
    if found is None:
        if text.strip() in _ENDLESS:
            return _ENDLESS[text.strip()]
        raise NotComputable("a timestamp that is not written as 2016-11-04 13:51:30")
    year = int(found[1]) if found[9] is None else 1 - int(found[1])
    micros = _checked(year, int(found[2]), int(found[3])) * DAY
    if found[4] is not None:
        micros += _of_day(found[4], found[5], found[6], found[7])
    return _in_range(micros - (_offset(found[8]) if zoned and found[8] else 0))


def _offset(zone: str) -> int:
    if zone[0] not in "+-":
        return 0
    digits = zone[1:].replace(":", "").ljust(6, "0")
    micros = int(digits[:2]) * HOUR + int(digits[2:4]) * MINUTE + int(digits[4:6]) * SECOND
    return micros if zone[0] == "+" else -micros


def timestamp_of_date(days: int) -> int:
    """Midnight."""
    return _in_range(days * DAY) if endless(days) is None else days


def date_of_timestamp(micros: int) -> int:
    """The day."""
    return micros // DAY if endless(micros) is None else micros


def time_of_timestamp(micros: int) -> int | None:
    """The time of the day. An infinite timestamp has none."""
    return micros % DAY if endless(micros) is None else None


def made_date(year: int, month: int, day: int) -> int:
    """make_date(): a negative year is BC. Raises NotComputable for the year 0, and for a day that does not exist."""
    if year == 0:
        raise NotComputable("date field value out of range")
    return _checked(year if year > 0 else year + 1, month, day)


_ISO_INTERVAL = re.compile(
    r"P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)D)?(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?\d+)(?:\.(\d+))?S|(-)?0?\.(\d+)S)?)?",
    re.ASCII,
)


def interval_of_iso(text: str) -> Interval:
    """``P1Y2M3DT4H5M6.7S``, as the wire has it. Raises NotComputable for what is not ISO 8601.

    >>> interval_of_iso("P0Y1M0DT2H0M-0.5S")
    Interval(months=1, days=0, micros=7199500000)
    """
    found = _ISO_INTERVAL.fullmatch(text)
    if found is None:
        raise NotComputable("an interval that is not ISO 8601")
    years, months, days, hours, minutes, seconds = (int(found[i] or 0) for i in range(1, 7))
    fraction = int((found[7] or "0").ljust(6, "0")[:6])
    if (found[6] or "").startswith("-"):
        fraction = -fraction
    return Interval(years * 12 + months, days, hours * HOUR + minutes * MINUTE + seconds * SECOND + fraction)


_UNITS = {
    **dict.fromkeys(("year", "years", "y"), (12, 0, 0)),
    **dict.fromkeys(("month", "months", "mon", "mons"), (1, 0, 0)),
    **dict.fromkeys(("week", "weeks", "w"), (0, 7, 0)),
    **dict.fromkeys(("day", "days", "d"), (0, 1, 0)),
    **dict.fromkeys(("hour", "hours", "h"), (0, 0, HOUR)),
    **dict.fromkeys(("minute", "minutes", "min", "mins", "m"), (0, 0, MINUTE)),
    **dict.fromkeys(("second", "seconds", "sec", "secs", "s"), (0, 0, SECOND)),
    **dict.fromkeys(("millisecond", "milliseconds", "ms"), (0, 0, 1000)),
    **dict.fromkeys(("microsecond", "microseconds", "us"), (0, 0, 1)),
}
_PART = re.compile(r"([+-]?\d+) ?([a-z]+)|([+-])?(\d+):(\d\d)(?::(\d\d)(?:\.(\d{1,6}))?)?", re.ASCII)


def interval_of(text: str) -> Interval:
    """``1 day 02:00:00`` or ``15 minutes``. Raises :class:`NotComputable` for what is written in another way.

    >>> interval_of("1 mon -2 days +03:00:00")
    Interval(months=1, days=-2, micros=10800000000)
    """
    rest, months, days, micros = text.strip().lower(), 0, 0, 0
    if not rest:
        raise NotComputable("an interval that is not written as 1 day 02:00:00")
    while rest:
        found = _PART.match(rest)
        unit = _UNITS.get(found[2]) if found is not None and found[2] else None
        if found is None or (found[2] and unit is None):
            raise NotComputable("an interval that is not written as 1 day 02:00:00")
        if unit is not None:
            months, days, micros = (n + int(found[1]) * u for n, u in zip((months, days, micros), unit, strict=True))
        else:
            clock = _of_day(found[4], found[5], found[6], found[7])
            micros += -clock if found[3] == "-" else clock
        rest = rest[found.end() :].strip()
    return Interval(months, days, micros)


def plus_interval(micros: int, value: Interval) -> int:
    """A timestamp, months first (to the month's last day where it is shorter), then days, then the time."""
    if endless(micros) is not None:
        return micros
    days, of_day = divmod(micros, DAY)
    if value.months:
        year, month, day = civil(days)
        months = year * 12 + month - 1 + value.months
        year, month = months // 12, months % 12 + 1
        following = days_of(year + (month == 12), month % 12 + 1, 1)
        days = min(days_of(year, month, day), following - 1)
    return _in_range((days + value.days) * DAY + of_day + value.micros)


def negated(value: Interval) -> Interval:
    """Each part by itself."""
    return Interval(-value.months, -value.days, -value.micros)


def plus(a: Interval, b: Interval) -> Interval:
    """Each part by itself."""
    return Interval(a.months + b.months, a.days + b.days, a.micros + b.micros)


def between(a: int, b: int) -> Interval:
    """One timestamp less another: days and the time of a day, as Postgres justifies it.

    Raises NotComputable when either is infinite.
    """
    if endless(a) is not None or endless(b) is not None:
        raise NotComputable("interval out of range")
    micros = a - b
    days = abs(micros) // DAY * (1 if micros >= 0 else -1)
    return Interval(0, days, micros - days * DAY)


def date_minus(a: int, b: int) -> int:
    """Days between two dates. Raises NotComputable when either is infinite."""
    if endless(a) is not None or endless(b) is not None:
        raise NotComputable("cannot subtract infinite dates")
    return a - b


def date_plus(days: int, more: int) -> int:
    """A date so many days later."""
    return days if endless(days) is not None else _date_in_range(days + more)
