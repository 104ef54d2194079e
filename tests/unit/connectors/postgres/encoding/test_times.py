"""Dates and times against numpy's calendar, which has no first and no last year."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cdc.record.schema import Encoding
from connectors.postgres.encoding.wire_values import codec
from tests.unit.connectors.postgres.written import column

years = st.integers(-4712, 5874896) | st.integers(-50, 50) | st.integers(9990, 10010) | st.integers(1500, 2100)
micros = st.integers(0, 999_999) | st.sampled_from((0, 500_000, 123_000, 120))
seconds = st.integers(0, 86_399)


def encoded(kind: str, text: str, encoding: Encoding, typmod: int = -1) -> Any:
    return json.loads(codec(column("t", kind, typmod=typmod), encoding).encode(text.encode()))


def printed_date(year: int, month: int, day: int) -> tuple[str, str]:
    """What Postgres prints of a day, before and after what may follow it."""
    return (f"{1 - year:04}-{month:02}-{day:02}", " BC") if year <= 0 else (f"{year:04}-{month:02}-{day:02}", "")


def iso(year: int, month: int, day: int) -> str:
    sign = "+" if year > 9999 else "-" if year < 0 else ""
    return f"{sign}{abs(year):04}-{month:02}-{day:02}"


def printed_time(second: int, micro: int) -> str:
    text = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
    return text + (f".{micro:06}".rstrip("0") if micro else "")


def days(year: int, month: int, day: int) -> int:
    return int(np.datetime64(f"{year:05}-{month:02}-{day:02}", "D").astype(np.int64))


@given(years, st.integers(1, 12), st.integers(1, 28))
@example(2024, 2, 29)
@example(0, 2, 29)
@example(1582, 10, 10)
def test_h31_dates_of_every_year(year: int, month: int, day: int) -> None:
    before, after = printed_date(year, month, day)
    assert encoded("date", before + after, "readable") == iso(year, month, day) + "Z"
    assert encoded("date", before + after, "debezium") == days(year, month, day)


@given(years.filter(lambda y: y < 290_000), st.integers(1, 12), st.integers(1, 28), seconds, micros)
def test_h31_timestamps_of_every_year(year: int, month: int, day: int, second: int, micro: int) -> None:
    before, after = printed_date(year, month, day)
    time = printed_time(second, micro)
    assert encoded("timestamp", f"{before} {time}{after}", "readable") == f"{iso(year, month, day)}T{time}Z"
    total = (days(year, month, day) * 86_400 + second) * 1_000_000 + micro
    assert encoded("timestamp", f"{before} {time}{after}", "debezium") == total
    assert encoded("timestamp", f"{before} {time}{after}", "debezium", 4) == total


@given(st.integers(1, 9999), seconds, st.integers(0, 999))
def test_timestamps_up_to_milliseconds_are_milliseconds(year: int, second: int, milli: int) -> None:
    text = f"{year:04}-06-07 {printed_time(second, milli * 1000)}"
    assert encoded("timestamp", text, "debezium", 3) == (days(year, 6, 7) * 86_400 + second) * 1000 + milli


@pytest.mark.parametrize("encoding", ["readable", "debezium"])
@given(year=years, second=seconds, micro=micros)
def test_a_timestamptz_is_padded_to_its_precision(encoding: Encoding, year: int, second: int, micro: int) -> None:
    before, after = printed_date(year, 3, 4)
    clock = printed_time(second, 0)
    text = f"{before} {printed_time(second, micro)}+00{after}"
    assert encoded("timestamptz", text, encoding) == f"{iso(year, 3, 4)}T{clock}.{micro:06}Z"
    whole = f"{before} {clock}+00{after}"
    assert encoded("timestamptz", whole, encoding, 0) == f"{iso(year, 3, 4)}T{clock}Z"
    assert encoded("timestamptz", whole, encoding, 3) == f"{iso(year, 3, 4)}T{clock}.000Z"


@given(seconds, micros)
def test_times_of_the_day(second: int, micro: int) -> None:
    text = printed_time(second, micro)
    assert encoded("time", text, "readable") == text + "Z"
    assert encoded("time", text, "debezium") == second * 1_000_000 + micro
    assert encoded("time", printed_time(second, micro // 1000 * 1000), "debezium", 3) == second * 1000 + micro // 1000


def test_h31_the_end_of_the_day_is_not_its_beginning() -> None:
    assert encoded("time", "24:00:00", "readable") == "24:00:00Z"
    assert encoded("time", "24:00:00", "debezium") == 86_400_000_000
    assert encoded("time", "24:00:00", "debezium", 0) == 86_400_000
    assert encoded("timetz", "24:00:00+00", "readable") == "24:00:00Z"


offsets = st.integers(-15 * 3600 - 59 * 60 - 59, 15 * 3600 + 59 * 60 + 59)


@given(seconds, micros, offsets)
def test_a_timetz_is_the_same_moment_in_utc(second: int, micro: int, offset: int) -> None:
    sign, size = "-" if offset < 0 else "+", abs(offset)
    zone = f"{sign}{size // 3600:02}"
    if size % 3600:
        zone += f":{size // 60 % 60:02}"
    if size % 60:
        zone += f":{size % 60:02}"
    found = encoded("timetz", printed_time(second, micro) + zone, "debezium")
    utc = (second - offset) % 86_400
    if second - offset == 86_400:
        assert found == "24:00:00" + printed_time(0, micro)[8:] + "Z"
    else:
        assert found == printed_time(utc, micro) + "Z"


INFINITE = {
    "date": (2146033979, -2147472691),
    "timestamp": (9223372036854775807, -9223372036854775808),
    "interval": (9223372036854775807, -9223372036854775808),
}


@pytest.mark.parametrize("kind", sorted(INFINITE))
def test_h31_infinity_is_a_word_or_debeziums_number(kind: str) -> None:
    assert encoded(kind, "infinity", "readable") == "infinity"
    assert encoded(kind, "-infinity", "readable") == "-infinity"
    assert (encoded(kind, "infinity", "debezium"), encoded(kind, "-infinity", "debezium")) == INFINITE[kind]


def test_h31_infinite_timestamps_of_other_kinds() -> None:
    assert encoded("timestamp", "infinity", "debezium", 3) == 9223372036825200000
    assert encoded("timestamp", "-infinity", "debezium", 3) == -9223372036832400000
    for encoding in ("readable", "debezium"):
        assert encoded("timestamptz", "-infinity", encoding) == "-infinity"


parts = st.integers(-1000, 1000) | st.just(0)


@given(parts, parts, parts, parts, parts, st.integers(-59_999_999, 59_999_999))
def test_intervals_by_their_parts(years: int, months: int, days: int, hours: int, minutes: int, us: int) -> None:
    sign, size = "-" if us < 0 else "", abs(us)
    second = f"{sign}{size // 1_000_000}" + (f".{size % 1_000_000:06}".rstrip("0") if size % 1_000_000 else "")
    date = "".join(f"{n}{unit}" for n, unit in ((years, "Y"), (months, "M"), (days, "D")) if n)
    time = "".join(f"{n}{unit}" for n, unit in ((hours, "H"), (minutes, "M"), (second, "S")) if n not in (0, "0"))
    text = "P" + date + ("T" + time if time else "") if date or time else "PT0S"
    assert encoded("interval", text, "readable") == f"P{years}Y{months}M{days}DT{hours}H{minutes}M{second}S"
    whole = (years * 12 + months) * 2_629_800_000_000 + days * 86_400_000_000
    assert encoded("interval", text, "debezium") == whole + (hours * 60 + minutes) * 60_000_000 + us


def test_an_interval_longer_than_64_bits_is_held_to_them() -> None:
    assert encoded("interval", "P178000000Y", "debezium") == 9223372036854775807
    assert encoded("interval", "P-178000000Y", "debezium") == -9223372036854775808
