"""Plain values: the same from either encoding; keys that tell rows apart."""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cdc.record.schema import Encoding
from cdc.wire.plain import PlainTable, iso_date, unscaled_text
from tests.contract.topics import column, numeric, shape
from tests.single_rows import plain_row, store_key

NUMBERS = shape(
    column("id", "int4", key=1),
    numeric("n", 30, 6),
    numeric("big", 8, -2),
    numeric("whole", 8, 0),
    column("free", "numeric"),
    column("m", "money"),
    column("d", "date"),
    column("t", "time"),
    column("t3", "time", typmod=3),
    column("ts", "timestamp"),
    column("ts3", "timestamp", typmod=3),
    column("t4", "time", typmod=4),
    column("iv", "interval"),
    column("iv3", "interval", typmod=(0x7FFF << 16) | 3),
    column("ad", "date", array=True),
    numeric("an", 30, 2, array=True),
    encoding="debezium",
)


def unscaled(number: int) -> str:
    return base64.b64encode(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)).decode()


@given(st.integers(-(10**40), 10**40), st.integers(-5, 40))
def test_h32_a_base64_decimal_keeps_every_digit(number: int, scale: int) -> None:
    text = unscaled_text(unscaled(number), scale)
    assert Fraction(text) == Fraction(number) / Fraction(10) ** scale
    assert len(text.partition(".")[2]) == max(0, scale)


def test_a_decimal_longer_than_python_prints() -> None:
    number = 10**20_000 + 1
    assert unscaled_text(unscaled(number), 0) == "1" + "0" * 19_999 + "1"


@pytest.mark.parametrize("scale", [-131_072, 131_072])
def test_h94_the_longest_scale_that_postgres_has_is_read(scale: int) -> None:
    text = unscaled_text(unscaled(7), scale)
    assert len(text) == 131_073 + (scale > 0)


def test_a_decimal_that_is_no_base64_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="column n"):
        plain_row({"n": "AYr3 "}, NUMBERS)


@pytest.mark.parametrize("scale", [-131_073, 131_073])
def test_h94_an_impossible_scale_is_refused_before_any_digits(scale: int) -> None:
    with pytest.raises(ValueError, match="scale"):
        unscaled_text(unscaled(1), scale)
    with pytest.raises(ValueError, match="column n"):
        plain_row({"n": {"scale": scale, "value": "AQ=="}}, shape(column("n", "numeric"), encoding="debezium"))


@pytest.mark.parametrize("digits", [4_214, 4_215, 40_000, 131_072])
@pytest.mark.parametrize("sign", ["", "-"])
def test_decimals_of_any_length_keep_every_digit(digits: int, sign: str) -> None:
    text = sign + ("1234567890" * (digits // 10 + 1))[:digits]
    number = int(Decimal(text))
    length = number.bit_length() // 8 + 1
    assert unscaled_text(base64.b64encode(number.to_bytes(length, signed=True)).decode(), 0) == text


@given(st.dates(), st.times())
def test_dates_and_times_of_numbers_are_those_of_the_calendar(day: date, clock: time) -> None:
    moment = datetime.combine(day, clock)
    micros = (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    row = plain_row({"id": 1, "d": (day - date(1970, 1, 1)).days, "ts": micros, "ts3": micros // 1000}, NUMBERS)
    assert row["d"] == f"{day.isoformat()}Z"
    assert datetime.fromisoformat(row["ts"].removesuffix("Z")) == moment
    millis = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    assert datetime.fromisoformat(row["ts3"].removesuffix("Z")) == millis


def test_h31_what_calendars_lack_has_words_and_years() -> None:
    row = {
        "d": 2146033979,
        "ts": -9223372036854775808,
        "ts3": 9223372036825200000,
        "t": 86_400_000_000,
        "t3": 86_400_000,
        "t4": 10_010_010,
        "iv": -1_500_000,
        "iv3": 1_000_000,
        "ad": [-735160, None, -2147472691],
    }
    assert plain_row(row, NUMBERS) == {
        "d": "infinity",
        "ts": "-infinity",
        "ts3": "infinity",
        "t": "24:00:00Z",
        "t3": "24:00:00Z",
        "t4": "00:00:10.01001Z",
        "iv": "PT-1.5S",
        "iv3": "PT1S",
        "ad": ["-0043-03-15Z", None, "-infinity"],
    }


@pytest.mark.parametrize(
    ("column", "number", "word"),
    [
        ("d", 2146033979, "infinity"),
        ("d", 2**31 - 1, "infinity"),
        ("d", -2147472691, "-infinity"),
        ("d", -(2**31), "-infinity"),
        ("ts", 2**63 - 1, "infinity"),
        ("ts", -(2**63), "-infinity"),
        ("ts3", 9223372036825200000, "infinity"),
        ("ts3", -9223372036832400000, "-infinity"),
        ("ts3", 2**63 - 1, "infinity"),
        ("ts3", -(2**63), "-infinity"),
    ],
)
def test_h31_infinities_of_every_release_of_debezium(column: str, number: int, word: str) -> None:
    assert plain_row({column: number}, NUMBERS) == {column: word}


@pytest.mark.parametrize("column", ["d", "t", "t3", "ts", "ts3", "iv"])
def test_what_debezium_wrote_as_text_stays_as_it_is(column: str) -> None:
    assert plain_row({column: "as text"}, NUMBERS) == {column: "as text"}


@pytest.mark.parametrize(
    ("days", "text"),
    [
        (2932896, "9999-12-31"), (2932897, "+10000-01-01"), (-719528, "0000-01-01"), (-719529, "-0001-12-31"),
        (-719162, "0001-01-01"),
    ],
)  # fmt: skip
def test_h31_years_outside_the_calendar_have_a_sign(days: int, text: str) -> None:
    assert iso_date(days) == text


def test_h31_february_ends_in_every_year_as_in_the_calendar() -> None:
    for year in (*range(1, 9999, 97), *range(1890, 2110), 1599, 1600, 2399, 2400):
        for day in (date(year, 2, 28), date(year, 3, 1), date(year, 12, 31)):
            days = (day - date(1970, 1, 1)).days
            assert [iso_date(days), iso_date(days + 1)] == [day.isoformat(), (day + timedelta(1)).isoformat()]


def test_decimals_of_every_scale() -> None:
    row = {
        "n": "AYr3",
        "big": "bg==",
        "whole": "bg==",
        "free": {"scale": 4, "value": "AYr3"},
        "m": unscaled(-123411),
        "an": ["bg==", None],
    }
    assert plain_row(row, NUMBERS) == {
        "n": "0.101111",
        "big": "11000",
        "whole": "110",
        "free": "10.1111",
        "m": "-1234.11",
        "an": ["1.10", None],
    }


def test_h32_json_is_nested_by_its_own_text() -> None:
    table = shape(column("id", "int4", key=1), column("j", "jsonb"), column("aj", "json", array=True))
    plain = PlainTable(table)
    row = plain.row(b'{"id":1,"j":"{\\"a\\": 1e400, \\"b\\": 12345678901234567890123}","aj":["[1.10]",null,"null"]}')
    assert row == b'{"id":1,"j":{"a": 1e400, "b": 12345678901234567890123},"aj":[[1.10],null,null]}'
    assert PlainTable(table, nested=False).as_it_is
    dated = PlainTable(shape(column("d", "date"), column("j", "jsonb"), encoding="debezium"), nested=False)
    assert dated.row(b'{"d":17109,"j":"[1.10]"}') == b'{"d":"2016-11-04Z","j":"[1.10]"}'


@pytest.mark.parametrize("row", [b"", b"[]", b"5", b'{"j":"{"}', b'{"j":5}', b'{"j":"NaN"}', b'{"aj":"x"}', b"\xff"])
def test_h67_a_row_that_does_not_fit_is_a_value_error(row: bytes) -> None:
    table = shape(column("id", "int4", key=1), column("j", "jsonb"), column("aj", "json", array=True))
    with pytest.raises(ValueError, match=r".") as refused:
        PlainTable(table).row(row)
    assert "{" not in str(refused.value) or isinstance(refused.value, orjson.JSONDecodeError)


KEYED = shape(column("a", "text", key=2), column("b", "int8", key=1))


def test_a_keys_columns_stand_in_key_order_and_escaped() -> None:
    assert store_key(KEYED, b'{"b":-5,"a":"50%:x"}') == "-5:50%25%3Ax"


keys = st.tuples(st.text(), st.integers(-(2**63), 2**63 - 1))


@given(keys, keys)
def test_h90_different_keys_have_different_texts(one: tuple[str, int], other: tuple[str, int]) -> None:
    texts = {store_key(KEYED, orjson.dumps({"a": a, "b": b})) for a, b in (one, other)}
    assert len(texts) == len({one, other})


NAMED = shape(column("a", "text", key=1), column("b", "text", key=2))
names = st.text(alphabet="ab:%2n", max_size=4)


@given(st.tuples(names, names), st.tuples(names, names))
@example(("x:y", "z"), ("x", "y:z"))
def test_h90_texts_that_hold_the_separator_tell_keys_apart(one: tuple[str, str], other: tuple[str, str]) -> None:
    pairs = [orjson.dumps({"a": a, "b": b}) for a, b in (one, other)]
    texts = [store_key(NAMED, pair) for pair in pairs]
    assert (texts[0] == texts[1]) == (one == other)
    assert PlainTable(NAMED).keys(pairs) == texts


@pytest.mark.parametrize(
    ("kind", "array", "value", "text"),
    [
        ("float8", False, b"-0.0", "0.0"),
        ("float8", False, b"1e-7", "1e-7"),
        ("float8", False, b"5", "5.0"),
        ("float4", False, b"-0.0", "0.0"),
        ("float4", False, b"5", "5.0"),
        ("oid", False, b"4294967295", "4294967295"),
        ("bool", False, b"false", "false"),
        ("bool", False, b"true", "true"),
        ("int4", True, b"[1,null]", "[1,null]"),
        ("float8", True, b"[0.5]", "[0.5]"),
        ("text", True, b'["a:b"]', '["a%3Ab"]'),
    ],
)
def test_a_key_of_one_value_as_it_stands_in_the_stores(kind: str, array: bool, value: bytes, text: str) -> None:
    table = PlainTable(shape(column("k", kind, key=1, array=array)))
    assert table.key(b'{"k":%b}' % value) == text
    assert table.keys([b'{"k":%b}' % value]) == [text]


def test_a_key_is_the_same_from_either_encoding() -> None:
    columns = (
        column("d", "date", key=1),
        numeric("n", 10, 2),
        column("f", "float8", key=2),
        column("b", "bool", key=3),
    )
    readable, debezium = shape(*columns), shape(*columns, encoding="debezium")
    assert store_key(readable, b'{"d":"2016-11-04Z","f":1.0E10,"b":true}') == "2016-11-04Z:10000000000.0:true"
    assert store_key(debezium, b'{"d":17109,"f":1e10,"b":true}') == "2016-11-04Z:10000000000.0:true"


@pytest.mark.parametrize("key", [b"{}", b"[1]", b'{"id":null}', b'{"id":"1"}', b"not json", b'{"id":1.5}'])
def test_h67_a_key_that_does_not_fit_is_a_value_error(key: bytes) -> None:
    table = PlainTable(shape(column("id", "int8", key=1)))
    for read in (table.key, lambda k: table.keys([b'{"id":1}', k])):
        with pytest.raises(ValueError, match=r"."):
            read(key)


@pytest.mark.parametrize(("kind", "encoding"), [("text", "readable"), ("date", "debezium")])
def test_h67_null_is_no_key_of_a_table(kind: str, encoding: Encoding) -> None:
    table = PlainTable(shape(column("id", kind, key=1), encoding=encoding))
    for read in (table.key, lambda key: table.keys([key])):
        with pytest.raises(ValueError, match=r"null|the key does not have the columns id"):
            read(b'{"id":null}')


def test_h67_text_in_place_of_an_array_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="the value of column ad does not fit its type"):
        plain_row({"ad": "17109"}, NUMBERS)


def test_v13_null_stands_in_the_keys_of_views_alone() -> None:
    columns = replace(column("a", "text", key=1), nullable=True), column("b", "int4", key=2)
    assert store_key(shape(*columns, schema="view"), b'{"a":null,"b":1}') == "%null:1"
    assert store_key(shape(*columns, schema="view"), b'{"a":"%null","b":1}') == "%25null:1"
    for table, key in ((shape(*columns), b'{"a":null,"b":1}'), (shape(*columns, schema="view"), b'{"a":"","b":null}')):
        with pytest.raises(ValueError, match="the key does not have the columns a, b"):
            store_key(table, key)


def test_a_key_without_columns_is_one_word() -> None:
    table = shape(column("n", "int8"), schema="view")
    assert store_key(table, b"{}") == "all"
    assert PlainTable(table).keys([b"{}"]) == ["all"]
    with pytest.raises(ValueError, match="the key does not have the columns"):
        store_key(table, b'{"n":1}')
