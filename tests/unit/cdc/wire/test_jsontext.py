"""JSON strings, byte for byte as Jackson writes them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.wire.jsontree import name, quote

_SHORT = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


def jackson(text: str) -> str:
    """The rules one character at a time."""
    out = []
    for character in text:
        code = ord(character)
        if character in _SHORT:
            out.append(_SHORT[character])
        elif code < 0x20:
            out.append(f"\\u{code:04X}")
        elif code > 0xFFFF:
            high, low = divmod(code - 0x10000, 0x400)
            out.append(f"\\u{0xD800 + high:04X}\\u{0xDC00 + low:04X}")
        else:
            out.append(character)
    return '"' + "".join(out) + '"'


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_any_text_is_escaped_as_jackson_does(text: str) -> None:
    quoted = quote(text.encode())
    assert quoted.decode() == jackson(text)
    assert json.loads(quoted) == text


@given(st.text('\\u0019"{}\x1f\n😀é', max_size=30))
def test_text_that_looks_like_escapes_stays_itself(text: str) -> None:
    assert json.loads(quote(text.encode())) == text
    assert quote(text.encode()).decode() == jackson(text)


@pytest.mark.parametrize("text", [b"\xff", b"a\xc3", b"\xed\xa0\x80", b'"\xff', b"\xf0\x9f\x98"])
def test_text_that_is_not_utf8_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError):
        quote(text)


def test_a_member_is_named_with_its_colon() -> None:
    assert name('quo"te 😀') == b'"quo\\"te \\uD83D\\uDE00":'
