"""Dates, times and intervals of Postgres as the wire has them: text in, JSON out.

The text is what a session with DateStyle=ISO, TimeZone=UTC and IntervalStyle=iso_8601 prints. Years beyond
9999 and before 1 are legal in Postgres and impossible in ``datetime``: the arithmetic here is our own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

Encode = Callable[[bytes], bytes]

_DATE = re.compile(rb"(\d{4,7})-(\d\d)-(\d\d)( BC)?")
_TIME = re.compile(rb"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
_ZONE = re.compile(rb"([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?")
_STAMP = re.compile(rb"(\d{4,7}-\d\d-\d\d) (\d\d:\d\d:\d\d(?:\.\d{1,6})?)(\+00)?( BC)?")
_INTERVAL = re.compile(
    rb"P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)D)?(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?\d+(?:\.\d+)?)S)?)?"
)
_DAY_US = 86_400_000_000
_MONTH_US = 2_629_800_000_000
"""365.25 / 12 days, as Debezium's MicroDuration has it."""
_INFINITE = (b"infinity", b"-infinity")
_MAX, _MIN = (1 << 63) - 1, -(1 << 63)

# What Debezium writes for infinities in streaming: limits of Java's own types.
_INFINITE_DAYS = {b"infinity": b"2146033979", b"-infinity": b"-2147472691"}
_INFINITE_MS = {b"infinity": b"9223372036825200000", b"-infinity": b"-9223372036832400000"}
_INFINITE_US = {b"infinity": b"9223372036854775807", b"-infinity": b"-9223372036854775808"}


def iso_date(text: bytes) -> bytes:
    """A date of Postgres in ISO 8601: ``+10000-01-01``, ``-0043-03-15`` (44 BC). Raises ValueError for other text."""
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError("not a date")
    if match[4] is None and len(match[1]) == 4:
        return text
    year = _year(match)
    sign = b"+" if year > 9999 else b"-" if year < 0 else b""
    return b"%b%04d-%b-%b" % (sign, abs(year), match[2], match[3])


def readable_date(text: bytes) -> bytes:
    """A ``date`` in Postgres's text as a JSON string in ISO 8601, infinity as it stands."""
    return b'"%b"' % text if text in _INFINITE else b'"%bZ"' % iso_date(text)


def readable_time(text: bytes) -> bytes:
    """A ``time`` in Postgres's text as a JSON string that ends with Z. ValueError for any other text."""
    if _TIME.fullmatch(text) is None:
        raise ValueError("not a time")
    return b'"%bZ"' % text


def readable_timestamp(text: bytes) -> bytes:
    """Both kinds of timestamp with the fraction as Postgres prints it."""
    if text in _INFINITE:
        return b'"%b"' % text
    date, time = _stamp(text)
    return b'"%bT%bZ"' % (iso_date(date), time)


def zoned_timestamp(precision: int) -> Encode:
    """timestamptz: the fraction padded to the column's precision."""

    def encode(text: bytes) -> bytes:
        if text in _INFINITE:
            return b'"%b"' % text
        date, time = _stamp(text)
        return b'"%bT%bZ"' % (iso_date(date), padded(time, precision))

    return encode


def padded(time: bytes, precision: int) -> bytes:
    """``13:51:30.5`` at precision 3 is ``13:51:30.500``."""
    if precision == 0:
        return time
    return (time if len(time) > 8 else time + b".").ljust(9 + precision, b"0")


def zoned_time(text: bytes) -> bytes:
    """timetz in UTC, the fraction trimmed. 24:00 stays where UTC has it so. Raises ValueError for any other text."""
    match = _TIME.match(text)
    zone = _ZONE.fullmatch(text, match.end()) if match else None
    if match is None or zone is None:
        raise ValueError("not a time with time zone")
    offset_s = int(zone[2]) * 3600 + int(zone[3] or 0) * 60 + int(zone[4] or 0)
    second = int(match[1]) * 3600 + int(match[2]) * 60 + int(match[3])
    second -= offset_s if zone[1] == b"+" else -offset_s
    if second != 86_400:
        second %= 86_400
    fraction = (match[4] or b"").rstrip(b"0")
    clock = b"%02d:%02d:%02d" % (second // 3600, second // 60 % 60, second % 60)
    return b'"%b.%bZ"' % (clock, fraction) if fraction else b'"%bZ"' % clock


def epoch_days(text: bytes) -> bytes:
    """A ``date`` in Postgres's text as days since 1970, infinity as the value that stands for it."""
    return _INFINITE_DAYS.get(text) or b"%d" % _days(text)


def day_time(precision: int) -> Encode:
    """time as milliseconds of the day up to precision 3, microseconds above."""
    divisor = 1000 if precision <= 3 else 1
    return lambda text: b"%d" % (time_us(text) // divisor)


def epoch_time(precision: int) -> Encode:
    """timestamp, as if in UTC, in milliseconds since 1970 up to precision 3, microseconds above."""
    milli = precision <= 3
    infinite = _INFINITE_MS if milli else _INFINITE_US

    def encode(text: bytes) -> bytes:
        if text in _INFINITE:
            return infinite[text]
        date, time = _stamp(text)
        micros = _days(date) * _DAY_US + time_us(time)
        return b"%d" % (micros // 1000 if milli else micros)

    return encode


def readable_interval(text: bytes) -> bytes:
    """Every part written, as Debezium does: ``P0Y-1M0DT0H0M0S``."""
    if text in _INFINITE:
        return b'"%b"' % text
    parts = (part or b"0" for part in _interval(text).groups())
    return b'"P%bY%bM%bDT%bH%bM%bS"' % tuple(parts)


def interval_us(text: bytes) -> bytes:
    """Microseconds, a month being 365.25/12 days. Held to 64 bits."""
    if text in _INFINITE:
        return _INFINITE_US[text]
    years, months, days, hours, minutes, seconds = _interval(text).groups(b"0")
    whole, _, fraction = seconds.partition(b".")
    micros = int(whole) * 1_000_000 + (int(fraction.ljust(6, b"0")) if fraction else 0) * (
        -1 if whole.startswith(b"-") else 1
    )
    micros += (int(hours) * 60 + int(minutes)) * 60_000_000 + int(days) * _DAY_US
    micros += (int(years) * 12 + int(months)) * _MONTH_US
    return b"%d" % min(max(micros, _MIN), _MAX)


def time_us(text: bytes) -> int:
    """Microseconds of the day. 24:00:00 is 86400000000. Raises ValueError for any other text."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError("not a time")
    hour, minute, second, fraction = match.groups(b"")
    micros = (int(hour) * 3600 + int(minute) * 60 + int(second)) * 1_000_000
    return micros + int(fraction.ljust(6, b"0")) if fraction else micros


@lru_cache(maxsize=4096)
def _days(text: bytes) -> int:
    """Days since 1970 in the proleptic Gregorian calendar (days_from_civil by H. Hinnant)."""
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError("not a date")
    year, month, day = _year(match), int(match[2]), int(match[3])
    year -= month <= 2
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def _year(match: re.Match[bytes]) -> int:
    """Astronomical: 1 BC is 0."""
    year = int(match[1])
    return 1 - year if match[4] else year


def _stamp(text: bytes) -> tuple[bytes, bytes]:
    match = _STAMP.fullmatch(text)
    if match is None:
        raise ValueError("not a timestamp")
    date, time, _, era = match.groups(b"")
    return date + era, time


def _interval(text: bytes) -> re.Match[bytes]:
    match = _INTERVAL.fullmatch(text)
    if match is None:
        raise ValueError("not an interval")
    return match
