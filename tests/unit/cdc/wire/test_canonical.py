"""Equal rows give equal bytes, other rows give others."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.wire.canonical import CanonicalTable, decimal_text, number_text
from tests.contract.topics import column, numeric, shape
from tests.single_rows import canonical_row

TABLE = shape(
    column("id", "int4", key=1),
    column("j", "jsonb"),
    numeric("n", 20, 5),
    column("f4", "float4"),
    column("f8", "float8"),
    column("ts", "timestamptz"),
    column("an", "numeric", array=True),
    column("v", "vector"),
    column("hv", "halfvec", array=True),
)

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.text(max_size=5),
    st.integers(-(10**25), 10**25),
    st.decimals(allow_nan=False, allow_infinity=False, places=7),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda f: Decimal(repr(f))),
)
documents = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
)


def written(document: Any, order: bool) -> str:
    """JSON text of a document, numbers to the last digit, its members in one order or the other."""
    if isinstance(document, dict):
        members = sorted(document.items(), reverse=order)
        return "{" + ",".join(f"{json.dumps(k)}: {written(v, order)}" for k, v in members) + "}"
    if isinstance(document, list):
        return "[" + ", ".join(written(v, order) for v in document) + "]"
    return (
        str(document)
        if isinstance(document, Decimal | int) and not isinstance(document, bool)
        else json.dumps(document)
    )


@given(documents)
def test_h32_json_is_equal_by_value_in_any_order_and_spacing(document: Any) -> None:
    one, other = (f'{{"id":1,"j":{written(document, order)}}}'.encode() for order in (True, False))
    assert canonical_row(one, TABLE) == canonical_row(other, TABLE)


@given(st.decimals(allow_nan=False, allow_infinity=False), st.decimals(allow_nan=False, allow_infinity=False))
def test_h32_json_numbers_share_a_text_exactly_when_equal(one: Decimal, other: Decimal) -> None:
    rows = [f'{{"j":[{number}]}}'.encode() for number in (one, other)]
    assert (canonical_row(rows[0], TABLE) == canonical_row(rows[1], TABLE)) == (one == other)


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30, places=4))
def test_decimals_are_equal_by_value(number: Decimal) -> None:
    assert decimal_text(f"{number}0") == decimal_text(str(number)) == decimal_text(f"{number:E}")
    assert Decimal(decimal_text(str(number))) == number


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"n": "1.10"}, {"n": "1.1"}),
        ({"n": "-0.00"}, {"n": "0"}),
        ({"n": "1E+3"}, {"n": "1000"}),
        ({"id": 7, "j": 1}, {"id": 7, "j": 1.0}),
        ({"f8": 5}, {"f8": 5.0}),
        ({"f4": 0.1}, {"f4": 0.10000000149011612}),
        ({"v": [0.1, 1]}, {"v": [0.10000000149011612, 1.0]}),
        ({"hv": [[0.1], None]}, {"hv": [[0.10000000149011612], None]}),
        ({"ts": "2016-11-04T11:51:30.500000Z"}, {"ts": "2016-11-04T11:51:30.5Z"}),
        ({"ts": "2016-11-04T11:51:30.000000Z"}, {"ts": "2016-11-04T11:51:30Z"}),
        ({"an": ["1.0", None]}, {"an": ["1", None]}),
        ({"j": None}, {}),
        ({"j": {"a": 1.0, "b": 2}}, {"j": {"b": 2, "a": 1}}),
    ],
)
def test_equal_rows(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert canonical_row(orjson.dumps(one), TABLE) == canonical_row(orjson.dumps(other), TABLE)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b'{"j":1e400}', b'{"j":1e401}'),
        (b'{"j":12345678901234567890123}', b'{"j":12345678901234567890124}'),
        (b'{"j":"1"}', b'{"j":1}'),
        (b'{"v":[0.1]}', b'{"v":[0.10000001]}'),
        (b'{"v":[1,2]}', b'{"v":[2,1]}'),
        (b'{"j":null}', b'{"j":"null"}'),
        (b'{"f8":"NaN"}', b'{"f8":"Infinity"}'),
        (b'{"f8":0.1}', b'{"f8":0.10000000000000002}'),
        (b'{"j":1e-400}', b'{"j":1e-401}'),
        (b'{"j":9007199254740.993}', b'{"j":9007199254740.992}'),
        (b'{"j":[[1],2]}', b'{"j":[1,[2]]}'),
        (b'{"j":-1.0}', b'{"j":1.0}'),
        (b'{"n":"1.10001"}', b'{"n":"1.1"}'),
        (b'{"j":"\\ud800"}', b'{"j":"\\ud801"}'),
        (b'{"ts":"2016-11-04T11:51:30.05Z"}', b'{"ts":"2016-11-04T11:51:30.5Z"}'),
    ],
)
def test_other_rows(one: bytes, other: bytes) -> None:
    assert canonical_row(one, TABLE) != canonical_row(other, TABLE)


@pytest.mark.parametrize(
    "member",
    [
        "123456789012345", "-12345", "-100", "0", "-0", "-0.5", "0.5", "-2.5", "0.00001", "0.1234567890123", "[1,2]",
        "[]", "true", '{"a":[],"b":null}', '"1.0 \\u00e9"',
    ],
)  # fmt: skip
def test_h32_a_member_is_the_same_beside_numbers_of_any_form(member: str) -> None:
    """Its neighbour decides which of two readers reads it."""
    one, other = (f'{{"id":7,"j":[{member},{number}]}}'.encode() for number in ("1", "1.0"))
    assert canonical_row(one, TABLE) == canonical_row(other, TABLE)


def test_h32_a_table_of_json_alone_keeps_every_digit() -> None:
    table = shape(column("j", "jsonb"))
    rows = [canonical_row(b'{"j":%d}' % number, table) for number in (2**70, 2**70 + 1)]
    assert rows[0] != rows[1]


def test_seconds_without_a_zone_keep_their_digits() -> None:
    table = shape(column("ts", "timestamp"), encoding="debezium")
    rows = [canonical_row(b'{"ts":"2016-11-04T11:51:30.%d"}' % part, table) for part in (51, 52)]
    assert rows[0] != rows[1]


@pytest.mark.parametrize("text", [b"[1.0]", b"5", b'"id"', b"null"])
def test_h67_what_is_no_row_is_a_value_error(text: bytes) -> None:
    with pytest.raises(ValueError, match="the row is not a JSON object"):
        canonical_row(text, TABLE)


def test_the_columns_that_differ_are_named() -> None:
    table = CanonicalTable(TABLE)
    one, other = (table.row(orjson.dumps({"id": 1, "n": n, "f8": 1.5})) for n in ("1.5", "1.6"))
    assert table.differences(one, other) == ["n"]


@given(st.integers(-(10**20), 10**20), st.integers(-30, 30))
def test_a_numbers_text_does_not_depend_on_how_it_was_written(digits: int, power: int) -> None:
    number = Decimal(digits).scaleb(power)
    assert number_text(f"{digits}e{power}") == number_text(format(number, "f")) == number_text(f"{number:E}")
    assert Decimal(number_text(f"{digits}e{power}")) == number


def test_h94_an_exponent_that_no_decimal_has_makes_no_digits() -> None:
    assert decimal_text("1e999999999") == "1e999999999"
    assert decimal_text("1e-999999999") == "1e-999999999"
    assert decimal_text("1e131071") == "1" + "0" * 131_071
    assert number_text("1e999999999") == "1e999999999"
    assert number_text("12e-999999999") == "12e-999999999"


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "none", "007"])
def test_what_is_no_decimal_stays_as_it_is(text: str) -> None:
    assert decimal_text(text) == text
