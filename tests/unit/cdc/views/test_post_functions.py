"""The user's function on documents: what it is given, what it may return, and what is said where it may not."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.record.schema import Column, Identity, TableSchema
from cdc.record.topic_names import TableName
from cdc.views.post_functions import Post, PostFunction
from cdc.views.syntax import NotComputable
from cdc.views.view_plan import ViewPlan, planned

_KINDS = {"id": "int4", "name": "text", "price": "numeric", "ok": "bool", "size": "float8", "a": "json", "b": "jsonb"}
SHAPE = TableSchema(
    table=TableName("public", "items"),
    topic="t.items",
    version=1,
    oid=1,
    encoding="readable",
    identity=Identity.DEFAULT,
    columns=tuple(
        Column(name=c, attnum=i, type=kind, type_oid=0, kind=kind, key_position=1 if c == "id" else None)
        for i, (c, kind) in enumerate(_KINDS.items(), start=1)
    ),
)
SQL = "select i.id, i.name, i.price, i.ok, i.size, i.a, i.b, null::text as slug from items i"
ROW = (
    '{"id":7,"name":"Blue chair","price":"1.50","ok":true,"size":1.5,'
    '"a":"{\\"n\\" : 0.10}","b":"{\\"n\\": 1234567890123456789.10}","slug":null}'
)


def plan() -> ViewPlan:
    return planned(SQL, [SHAPE])


def posted(function: PostFunction) -> Post:
    return Post("shop.views:f", function, "", plan())


def test_a_document_comes_as_values_and_loses_no_digit() -> None:
    seen: list[dict[str, Any]] = []

    def look(document: dict[str, Any]) -> dict[str, Any]:
        seen.append(dict(document))
        return document

    made = posted(look)(ROW)
    assert seen[0]["b"] == {"n": Decimal("1234567890123456789.10")}
    assert seen[0]["price"] == "1.50"
    assert orjson.loads(made) == orjson.loads(ROW)


@pytest.mark.parametrize("size", ["NaN", "Infinity", "-Infinity"])
def test_h464_a_float_that_is_no_number_comes_back(size: str) -> None:
    """The wire has it as a word. The document was parked, whatever the function did."""
    row = ROW.replace('"size":1.5', f'"size":"{size}"')
    assert orjson.loads(posted(lambda document: document)(row))["size"] == size
    with pytest.raises(NotComputable, match="returned str for the column size"):
        posted(lambda document: document | {"size": "large"})(row)


def test_what_it_returns_is_the_document() -> None:
    def add_slug(document: dict[str, Any]) -> dict[str, Any]:
        slug = document["name"].lower().replace(" ", "-")
        return document | {"slug": slug, "b": document["b"] | {"z": [Decimal("0.30"), None], "a": "\N{SNOWMAN}"}}

    made = orjson.loads(posted(add_slug)(ROW))
    assert made["slug"] == "blue-chair"
    assert made["b"] == '{"a": "\N{SNOWMAN}", "n": 1234567890123456789.10, "z": [0.30, null]}'
    assert made["a"] == '{"n" : 0.10}'


def _raises(document: dict[str, Any]) -> dict[str, Any]:
    raise KeyError(document["name"])


REFUSED: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "raises": (_raises, "shop.views:f raised KeyError"),
    "nothing": (lambda _: None, "shop.views:f returned other columns than the view has: a NoneType"),
    "a column less": (lambda d: {"id": d["id"]}, "without name, price, ok, size, a, b, slug"),
    "a column more": (lambda d: d | {"rank": 1}, "with rank"),
    "another key": (lambda d: d | {"id": 8}, "shop.views:f changed the document's key"),
    "a number for a text": (lambda d: d | {"slug": 1}, "returned int for the column slug of type text"),
    "a flag for a number": (lambda d: d | {"size": True}, "returned bool for the column size of type float8"),
    "no number": (lambda d: d | {"b": {"n": Decimal("NaN")}}, "JSON has no form for in the column b"),
    "no text": (lambda d: d | {"a": {"n": object()}}, "JSON has no form for in the column a"),
    "half a character": (lambda d: d | {"slug": "\ud800"}, "JSON has no form for in the column slug"),
    "a name that is none": (lambda d: d | {"b": {1: 2}}, "JSON has no form for in the column b"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_view_cannot_hold_parks_the_document(case: str) -> None:
    function, words = REFUSED[case]
    with pytest.raises(NotComputable) as refusal:
        posted(function)(ROW)
    assert words in str(refusal.value)
    assert "Blue chair" not in str(refusal.value)


_TEXTS = st.text(st.characters(codec="utf-8"))
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | _TEXTS | st.decimals(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.dictionaries(_TEXTS, inner),
    max_leaves=8,
)


@given(_VALUES)
def test_any_json_is_kept_with_all_its_digits(value: Any) -> None:
    made = orjson.loads(posted(lambda d: d | {"a": value})(ROW))["a"]
    if value is None:
        assert made is None
    else:
        assert json.loads(made, parse_float=Decimal) == value
