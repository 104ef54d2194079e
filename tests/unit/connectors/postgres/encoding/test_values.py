"""Every kind of value, in both encodings, read back by somebody else's rules."""

from __future__ import annotations

import base64
import json
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cdc.record.schema import Column, Encoding
from cdc.wire.types import CATALOG_KINDS, EXTENSION_KINDS
from connectors.postgres.encoding.wire_values import codec
from tests.examples import examples
from tests.unit.connectors.postgres.written import column

ENCODINGS: tuple[Encoding, Encoding] = ("readable", "debezium")
both = pytest.mark.parametrize("encoding", ENCODINGS)


def encoded(shape: Column, text: str | bytes, encoding: Encoding = "readable", lost: Counter[str] | None = None) -> Any:
    """The value as JSON reads it; floats as Decimal, so that nothing is lost on the way."""
    raw = codec(shape, encoding, lost).encode(text.encode() if isinstance(text, str) else text)
    return json.loads(raw, parse_float=Decimal)


def numeric(precision: int, scale: int) -> Column:
    return column("n", "numeric", typmod=(precision << 16 | scale & 0x7FF) + 4)


def unscaled(text: str) -> int:
    """Two's complement, big-endian; as short as it can be."""
    raw = base64.b64decode(text, validate=True)
    value = int.from_bytes(raw, signed=True)
    shorter = 8 * (len(raw) - 1) - 1
    assert shorter < 0 or not -(1 << shorter) <= value < 1 << shorter
    return value


# Numbers


@both
@given(value=st.integers(-(2**63), 2**63 - 1))
def test_integers_are_numbers(encoding: Encoding, value: int) -> None:
    for kind in ("int2", "int4", "int8", "oid"):
        assert encoded(column("n", kind), str(value), encoding) == value


@both
@given(value=st.floats())
@example(value=-0.0)
@example(value=5e-324)
@example(value=1.7976931348623157e308)
def test_h33_floats_are_numbers_and_words_where_json_has_none(encoding: Encoding, value: float) -> None:
    printed = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(repr(value), repr(value).removesuffix(".0"))
    found = codec(column("f", "float8"), encoding).encode(printed.encode())
    if printed in ("NaN", "Infinity", "-Infinity"):
        assert json.loads(found) == printed
    else:
        assert repr(float(json.loads(found))) == repr(value)
        assert found.startswith(b"-") == printed.startswith("-")


decimals = st.decimals(allow_nan=False, allow_infinity=False).map(lambda d: format(d, "f"))
digits = st.from_regex(r"-?(0|[1-9]\d{0,40})(\.\d{1,40})?", fullmatch=True, alphabet="0123456789.-")


@given(digits | decimals)
def test_a_numeric_keeps_its_text(text: str) -> None:
    assert encoded(column("n", "numeric"), text) == text


@given(digits)
def test_a_numeric_without_a_scale_carries_its_own(text: str) -> None:
    found = encoded(column("n", "numeric"), text, "debezium")
    assert found["scale"] >= 0
    assert Fraction(unscaled(found["value"]), 10 ** found["scale"]) == Fraction(text)
    assert found["scale"] == 0 or unscaled(found["value"]) % 10 != 0


@given(st.integers(-(10**30), 10**30), st.integers(0, 12))
def test_a_numeric_with_a_scale_is_unscaled_at_it(value: int, scale: int) -> None:
    whole, fraction = divmod(abs(value), 10**scale)
    text = f"{'-' if value < 0 else ''}{whole}" + (f".{fraction:0{scale}}" if scale else "")
    assert unscaled(encoded(numeric(38, scale), text, "debezium")) == value
    assert encoded(numeric(38, scale), text) == text


def test_a_negative_scale_is_the_right_value() -> None:
    assert unscaled(encoded(numeric(5, -2), "1234600", "debezium")) == 12346
    assert unscaled(encoded(numeric(5, -2), "-100", "debezium")) == -1
    assert encoded(numeric(5, -2), "1234600") == "1234600"


def test_h32_numerics_of_any_length() -> None:
    text = "9" * 20_000 + "." + "7" * 16_000
    assert encoded(column("n", "numeric"), text) == text
    found = encoded(column("n", "numeric"), text, "debezium")
    assert (found["scale"], unscaled(found["value"]) % 10**9) == (16_000, 777_777_777)


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_h32_special_numerics_are_words_or_counted_nulls(word: str) -> None:
    lost: Counter[str] = Counter()
    assert encoded(column("n", "numeric"), word) == word
    assert encoded(column("n", "numeric"), word, "debezium", lost) is None
    assert encoded(numeric(5, 2), word, "debezium", lost) is None
    assert lost == {"n": 2}


@given(st.integers(-(2**63), 2**63 - 1))
def test_h34_money_without_its_dress(cents: int) -> None:
    printed = f"{'-' if cents < 0 else ''}${abs(cents) // 100:,}.{abs(cents) % 100:02}"
    assert Decimal(encoded(column("m", "money"), printed)) * 100 == cents
    assert unscaled(encoded(column("m", "money"), printed, "debezium")) == cents


@both
def test_booleans(encoding: Encoding) -> None:
    assert encoded(column("b", "bool"), "t", encoding) is True
    assert encoded(column("b", "bool"), "f", encoding) is False


# Text


NOT_TEXT = """
bool int2 int4 int8 oid float4 float8 numeric money bytea bit varbit date time timetz timestamp timestamptz interval
point box lseg path polygon circle line vector halfvec sparsevec hstore uuid
"""
TEXT_KINDS = sorted((CATALOG_KINDS | EXTENSION_KINDS | {"enum", "other"}) - set(NOT_TEXT.split()))


@both
@pytest.mark.parametrize("kind", TEXT_KINDS)
def test_kinds_that_are_their_text(kind: str, encoding: Encoding) -> None:
    for text in ("", "plain", 'say "hi" \\ \n\x01 é 😀', "NULL", "{}", "\\N"):
        assert encoded(column("t", kind), text, encoding) == text


@both
def test_a_uuid_is_its_text(encoding: Encoding) -> None:
    assert encoded(column("u", "uuid"), "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", encoding) == (
        "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
    )


@both
@given(value=st.binary(max_size=50))
def test_bytea_is_base64(encoding: Encoding, value: bytes) -> None:
    assert base64.b64decode(encoded(column("b", "bytea"), "\\x" + value.hex(), encoding)) == value


@both
@given(text=st.text("01", max_size=80))
def test_bits_are_little_endian_and_cut(encoding: Encoding, text: str) -> None:
    raw = base64.b64decode(encoded(column("b", "varbit"), text, encoding))
    assert int.from_bytes(raw, "little") == int(text or "0", 2)
    assert not raw.endswith(b"\0")


@both
def test_one_bit_is_a_truth(encoding: Encoding) -> None:
    for kind in ("bit", "varbit"):
        assert encoded(column("b", kind, typmod=1), "1", encoding) is True
        assert encoded(column("b", kind, typmod=1), "0", encoding) is False
    assert encoded(column("b", "varbit", typmod=1), "", encoding) is None
    assert encoded(column("b", "bit", typmod=2), "11", encoding) == "Aw=="


# What is no value of the type


@both
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("int4", ""), ("int4", "1.5"), ("int4", "x"), ("float8", "1.e5"), ("float8", "nan"), ("numeric", "1e5"),
        ("numeric", ""), ("money", "12,x"), ("bool", "true"), ("bytea", "abc"), ("bytea", "\\x0g"),
        ("date", "2020-1-1"), ("time", "1:00"), ("timetz", "10:00:00"), ("timestamp", "2020-01-01"),
        ("timestamptz", "now"), ("interval", "1 day"), ("point", "1,1"), ("box", "(1,1)"), ("lseg", "(1,1)"),
        ("path", ""), ("polygon", "x"), ("circle", "(1,1),1"), ("line", "{1,2}"), ("vector", "[a]"),
        ("sparsevec", "{}"), ("hstore", "a=>b"), ("bit", "12"), ("varbit", "-1"), ("text", b"\xff"),
    ],
)  # fmt: skip
def test_text_of_another_type_is_refused(kind: str, text: str | bytes, encoding: Encoding) -> None:
    with pytest.raises(ValueError):
        encoded(column("x", kind), text, encoding)


@example("int2", "readable", False, b"00")
@settings(max_examples=examples(400))
@given(
    st.sampled_from(sorted(CATALOG_KINDS | EXTENSION_KINDS)),
    st.sampled_from(ENCODINGS),
    st.booleans(),
    st.binary(max_size=20),
)
def test_any_bytes_give_json_or_a_value_error(kind: str, encoding: Encoding, array: bool, text: bytes) -> None:
    try:
        raw = codec(column("x", kind, array=array), encoding).encode(text)
    except (ValueError, KeyError):
        return
    json.loads(raw)
