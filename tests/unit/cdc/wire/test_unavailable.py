"""Debezium's placeholder for a value that an update left out, in each of its shapes (H38)."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.wire.envelope import is_unavailable, may_be_unavailable, missing
from tests.contract.topics import column, shape

TEXT = "__debezium_unavailable_value"
BASE64 = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
HSTORE = f'{{"{TEXT}":"{TEXT}"}}'
SHAPES: dict[str, Any] = {
    "text": TEXT,
    "bytea": BASE64,
    "text[]": [TEXT],
    "bytea[]": [BASE64],
    "int4[]": list(TEXT.encode()),
    "hstore": HSTORE,
    "hstore[]": [HSTORE],
    # What Java's UUID.nameUUIDFromBytes makes of the text.
    "uuid[]": ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"],
}


@pytest.mark.parametrize("of", SHAPES)
def test_h38_a_placeholder_is_known_in_each_shape(of: str) -> None:
    assert is_unavailable(SHAPES[of])


@pytest.mark.parametrize("value", [None, "", TEXT + " ", [TEXT, TEXT], list(TEXT.encode()[1:]), "{}", {TEXT: TEXT}, 0])
def test_h38_a_value_that_is_near_one_is_a_value(value: object) -> None:
    assert not is_unavailable(value)


def test_h38_columns_that_lack_their_values_are_named() -> None:
    """A type of one length is always sent: text that is the placeholder's is text there."""
    table = shape(
        column("id", "int8", key=1), column("note", "text"), column("label", "enum"), column("days", "date", array=True)
    )
    after = {"id": 1, "note": TEXT, "label": TEXT, "days": [TEXT]}
    assert missing(after, table) == ["note", "days"]
    assert missing({**after, "note": "paid"}, table) == ["days"]
    assert missing({"id": 1}, table) == []


def test_h38_an_array_may_be_left_out_whatever_its_elements_are() -> None:
    found = {(kind, array): may_be_unavailable(column("c", kind, array=array)) for kind, array in PLACES}
    assert found == {("int4", False): False, ("int4", True): True, ("text", False): True, ("text", True): True}


PLACES = [("int4", False), ("int4", True), ("text", False), ("text", True)]
