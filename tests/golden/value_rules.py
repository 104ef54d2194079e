"""Values of two captures against each other, for every type: numbers, arrays, text in base64, keys in headers."""

from __future__ import annotations

import json
from base64 import b64decode
from binascii import Error as Base64Error
from struct import pack

from tests.golden.lossless import Json, LosslessNumber, Object, parse

NUMERIC_WORDS = {"NAN": "NaN", "NaN": "NaN", "POSITIVE_INFINITY": "Infinity", "NEGATIVE_INFINITY": "-Infinity"}
"""Debezium's word for a numeric that is no number -> ours."""
_NO_NUMBERS: tuple[Json, ...] = (*NUMERIC_WORDS.values(), None)


def lost_elements(theirs: Json, ours: Json) -> bool:
    """Whether Debezium's array says less than ours in a way it is known for.

    Of several dimensions it keeps the first alone, with nothing of worth in it. For an array that holds a NULL or a
    number that is none it may write NULL. All other elements it writes as they are.
    """
    if not isinstance(ours, tuple):
        return False
    nested = any(isinstance(element, tuple) for element in ours)
    if theirs is None:
        return nested or any(element in _NO_NUMBERS for element in ours)
    return nested and isinstance(theirs, tuple) and len(theirs) == len(ours)


def is_text(value: Json) -> bool:
    """Whether a value is a string, or an array of strings and nulls at any depth."""
    if isinstance(value, tuple):
        return all(element is None or is_text(element) for element in value)
    return isinstance(value, str)


def base64_text(expected: Json, got: Json) -> bool:
    """``include.unknown.datatypes``: the same text in base64. An array of it as one text."""
    if not isinstance(expected, str):
        return False
    try:
        text = b64decode(expected, validate=True).decode()
    except (Base64Error, UnicodeDecodeError):
        return False
    return text == got or isinstance(got, tuple)


def has_control(text: str) -> bool:
    """Whether a character below U+0020 is in the text."""
    return any(character < " " for character in text)


def is_json_object(text: Json) -> bool:
    """Whether a value is a string that holds a JSON object."""
    try:
        return isinstance(text, str) and isinstance(parse(text), Object)
    except ValueError:
        return False


def same_unescaped(expected: Json, got: Json) -> bool:
    """The same key, but for control characters that Debezium leaves as they are."""
    if not (isinstance(expected, str) and has_control(expected) and isinstance(got, str) and is_json_object(got)):
        return False
    try:
        return bool(json.loads(expected, strict=False) == json.loads(got))
    except ValueError:
        return False


def single(number: LosslessNumber) -> bytes | None:
    """The number rounded to single precision, as its four bytes. None for one that is too large for it."""
    try:
        return pack("f", float(number.text))
    except OverflowError:
        return None


def equal_numbers(one: Json, two: Json) -> bool:
    """Equal in bits too, so a minus before a zero counts. Java and Postgres print the same float otherwise."""
    if isinstance(one, tuple) and isinstance(two, tuple):
        return len(one) == len(two) and all(a == b or equal_numbers(a, b) for a, b in zip(one, two, strict=True))
    if not (isinstance(one, LosslessNumber) and isinstance(two, LosslessNumber)) or (_whole(one) and _whole(two)):
        return False
    return repr(float(json.loads(one.text))) == repr(float(json.loads(two.text)))


def _whole(number: LosslessNumber) -> bool:
    """An integer's digits are exact on both sides: two that are one float differ."""
    return number.text.lstrip("-").isdigit()


def equal_members(one: Json, two: Json) -> bool:
    """Whether two values are equal. Strings that hold JSON objects are equal in any order of members."""
    if not (isinstance(one, str) and isinstance(two, str) and is_json_object(one)):
        return one == two
    return is_json_object(two) and bool(json.loads(one) == json.loads(two))
