"""Values of two captures against each other, whatever the column: numbers, arrays, text in base64, keys in headers."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from binascii import Error as Base64Error
from struct import pack

from cdc.comparison.lossless import Json, LosslessNumber, Object, parse

_BEHIND_MS = re.compile(r"(\.\d{3})\d+")
_CUT_UNITS = 1_000
"""Microseconds that are lost where an array's times are cut to milliseconds."""


def same_elements(theirs: Json, ours: Json, *, cut: bool) -> bool:
    """Whether two arrays have the same elements in the same order, whatever their dimensions.

    ``cut``: theirs may be times cut to milliseconds. As many NULLs, too: where some are gone, this does not say whether
    they were there.
    """
    if not (isinstance(theirs, tuple) and isinstance(ours, tuple)):
        return False
    one, two = _members(theirs), _members(ours)
    return (
        len(one) == len(two)
        and all(a == b or (cut and _is_cut(a, b)) for a, b in zip(_present(one), _present(two), strict=False))
        and [a is None for a in one].count(True) == [b is None for b in two].count(True)
    )


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


def _members(elements: tuple[Json, ...]) -> list[Json]:
    return [m for e in elements for m in (_members(e) if isinstance(e, tuple) else [e])]


def _present(members: list[Json]) -> list[Json]:
    return [member for member in members if member is not None]


def _is_cut(one: Json, two: Json) -> bool:
    """Whether ``one`` is the time ``two`` cut to milliseconds."""
    if isinstance(one, LosslessNumber) and isinstance(two, LosslessNumber):
        return int(one.text) == int(two.text) // _CUT_UNITS * _CUT_UNITS
    return isinstance(one, str) and isinstance(two, str) and one == _BEHIND_MS.sub(r"\1", two)


def is_awkward(elements: tuple[Json, ...]) -> bool:
    """NULL elements, several dimensions, or special values among them."""
    words = ("NaN", "Infinity", "-Infinity", "infinity", "-infinity")
    return any(e is None or isinstance(e, tuple) or e in words for e in elements)


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


def single(number: LosslessNumber) -> bytes:
    """The number rounded to single precision, as its four bytes."""
    return pack("f", float(number.text))


def equal_numbers(one: Json, two: Json) -> bool:
    """Equal in bits too, so a minus before a zero counts. Java and Postgres print the same float otherwise."""
    if isinstance(one, tuple) and isinstance(two, tuple):
        return len(one) == len(two) and all(a == b or equal_numbers(a, b) for a, b in zip(one, two, strict=True))
    if not (isinstance(one, LosslessNumber) and isinstance(two, LosslessNumber)) or (_whole(one) and _whole(two)):
        return False
    return repr(float(json.loads(one.text))) == repr(float(json.loads(two.text)))


def _whole(number: LosslessNumber) -> bool:
    """An integer's digits are exact on both sides: two of them that a float cannot tell apart differ."""
    return number.text.lstrip("-").isdigit()


def equal_members(one: Json, two: Json) -> bool:
    """Whether two values are equal. Strings that hold JSON objects are equal in any order of members.

    Raises ValueError where one string begins as an object and is no JSON.
    """
    if not (isinstance(one, str) and isinstance(two, str) and one.startswith("{")):
        return one == two
    return bool(json.loads(one) == json.loads(two))
