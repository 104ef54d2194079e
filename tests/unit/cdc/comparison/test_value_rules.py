"""Two values of two captures that say the same: numbers, arrays, text in base64, keys in headers."""

from __future__ import annotations

from base64 import b64encode

import pytest

from cdc.comparison.lossless import Json, parse
from cdc.comparison.value_rules import (
    base64_text,
    equal_members,
    equal_numbers,
    has_control,
    is_json_object,
    is_text,
    lost_elements,
    same_unescaped,
)
from tests.unit.cdc.comparison.test_narrow_rules import explained


@pytest.mark.parametrize(
    ("theirs", "ours"), [("NAN", "NaN"), ("POSITIVE_INFINITY", "Infinity"), ("NEGATIVE_INFINITY", "-Infinity")]
)
def test_a_number_that_is_none_has_a_word_of_each_side(theirs: str, ours: str) -> None:
    """Debezium writes NULL for an array that holds one."""
    assert explained(f'{{"num":"{theirs}"}}', f'{{"num":"{ours}"}}') == [["D4"]]
    assert lost_elements(None, ("1.0", ours))
    assert not lost_elements(None, ("1.0", theirs))


@pytest.mark.parametrize(
    ("theirs", "ours", "lost"),
    [
        ("null", "[1,null]", True),
        ("null", "[[1,2],[3,4]]", True),
        ("null", "[1,2]", False),
        ("null", "[]", False),
        ("null", '"text"', False),
        ("[null,null]", "[[1,2],[3,4]]", True),
        ("[null]", "[[1,2],[3,4]]", False),
        ('"ab"', "[[1,2],[3,4]]", False),
        ("[1,2]", "[1,null]", False),
    ],
)
def test_h180_an_array_loses_dimensions_and_what_is_no_number(theirs: str, ours: str, lost: bool) -> None:
    assert lost_elements(parse(theirs), parse(ours)) is lost


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ('"a"', True), ('["a",null]', True), ('[["a"],[null]]', True), ("[]", True),
        ("1", False), ("null", False), ('["a",1]', False), ('[["a"],[1]]', False), ('{"a":"b"}', False),
    ],
)  # fmt: skip
def test_an_array_of_strings_and_nulls_is_text(value: str, text: bool) -> None:
    assert is_text(parse(value)) is text


@pytest.mark.parametrize(
    ("expected", "got", "same"),
    [
        (b64encode(b"(1,2)").decode(), "(1,2)", True),
        (b64encode(b"(1,2)").decode(), "(1,3)", False),
        (b64encode(b"{a,b}").decode(), ("a", "b"), True),
        (b64encode(b"(1,2)").decode() + "\n", "(1,2)", False),
        (b64encode(b"\xff").decode(), "\xff", False),
        ("no base64!", "no base64!", False),
        (None, "(1,2)", False),
        (("KDEsMik=",), "(1,2)", False),
    ],
)
def test_base64_is_that_of_the_text(expected: Json, got: Json, same: bool) -> None:
    """An array's elements are no part of what Debezium writes: it is one text."""
    assert base64_text(expected, got) is same


@pytest.mark.parametrize(("text", "control"), [("", False), ("a b", False), ("a\x1f", True), ("\n", True)])
def test_a_blank_is_no_control_character(text: str, control: bool) -> None:
    assert has_control(text) is control


@pytest.mark.parametrize(
    ("value", "is_object"),
    [('"{}"', True), (r'"{\"a\":1}"', True), ('"[1]"', False), ('"{"', False), ("1", False), ("null", False)],
)
def test_a_json_object_is_in_a_string(value: str, is_object: bool) -> None:
    assert is_json_object(parse(value)) is is_object


@pytest.mark.parametrize(
    ("expected", "got", "same"),
    [
        ('{"a":"x\ny"}', '{"a":"x\\ny"}', True),
        ('{"a":"x\ny"}', '{"a":"x\\nz"}', False),
        ('{"a": "x"}', '{"a":"x"}', False),
        ('["x\ny"]', '["x\\ny"]', False),
        ("x\ny{", '{"a":"x\\ny"}', False),
        ('{"a":"x\ny"}', None, False),
        (None, '{"a":"x\\ny"}', False),
    ],
)
def test_only_control_characters_may_stand_unescaped(expected: Json, got: Json, same: bool) -> None:
    assert same_unescaped(expected, got) is same


@pytest.mark.parametrize(
    ("one", "two", "equal"),
    [
        ("1.0E10", "10000000000", True),
        ("1.5", "1.50", True),
        ("1.5", "1.25", False),
        ("0.0", "-0.0", False),
        ("9007199254740993", "9007199254740992", False),
        ("-9007199254740993", "-9007199254740992", False),
        ("1.5", '"1.5"', False),
        ("1.5", "null", False),
        ("[1.0E1,null]", "[10,null]", True),
        ("[[1.0E1],[2]]", "[[10.0],[2]]", True),
        ("[1.0E1,2.5]", "[10,2.25]", False),
        ("[1.0E1]", "[10,10]", False),
        ("[1.0E1]", "10", False),
    ],
)
def test_floats_are_equal_by_their_bits_and_integers_by_digits(one: str, two: str, equal: bool) -> None:
    assert equal_numbers(parse(one), parse(two)) is equal
    assert equal_numbers(parse(two), parse(one)) is equal


@pytest.mark.parametrize(
    ("one", "two", "equal"),
    [
        ('{"a":"1","b":null}', '{"b":null,"a":"1"}', True),
        ('{"a":"1"}', '{"a":"2"}', False),
        ('{"a":"1"}', "text", False),
        ('{"a":"1"}', None, False),
        ("text", "text", True),
        ("text", "other", False),
        (None, None, True),
    ],
)
def test_members_have_no_order_where_both_are_objects(one: Json, two: Json, equal: bool) -> None:
    assert equal_members(one, two) is equal
    assert equal_members(two, one) is equal
