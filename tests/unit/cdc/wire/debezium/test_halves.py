"""Texts that Debezium cut within a character."""

from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.wire.debezium.reading import is_read_row
from cdc.wire.debezium.wrapped import Wrappings, without_halves

TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('\\"u😀'))


@given(st.dictionaries(TEXT, TEXT))
def test_json_without_halves_stays_as_it_is(row: dict[str, str]) -> None:
    for text in (json.dumps(row).encode(), orjson.dumps(row)):
        assert without_halves(text) == text


@given(TEXT, st.sampled_from(["\ud800", "\ud83d", "\udbff"]))
def test_h324_a_text_ends_before_the_half(text: str, half: str) -> None:
    row = {"before": None, "after": {"id": 1, "v": text + half}, "op": "r", "source": {}}
    plain = json.dumps(row, separators=(",", ":")).encode()
    wrapped = b'{"schema":{"type":"struct","fields":[{"field":"allowed incremental"}]},"payload":' + plain + b"}"
    for value in (plain, wrapped):
        found = Wrappings().unwrap(value)
        assert found.payload["after"] == {"id": 1, "v": text} == orjson.loads(found.text)["after"]
        assert is_read_row(value) and not is_read_row(value.replace(b'"op":"r"', b'"op":"u"'))


@pytest.mark.parametrize("value", [b"{", b'{"a":"\\ude00"}', b'{"a":"\\ud83d b"}', b'{"a":"x'])
def test_what_is_no_json_is_none(value: bytes) -> None:
    with pytest.raises(ValueError):
        Wrappings().unwrap(value)
