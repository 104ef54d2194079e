"""A schema of pgsync in another form is refused with the place, whatever is wrong with it."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.views.pgsync_schema import ForeignKey, ImportRefused, SourceTable, imported
from tests.examples import examples

TABLES = {
    table.full: table
    for table in (
        SourceTable("public", "book", {"isbn": "varchar", "title": "text", "doc": "jsonb", "of": "int4"}, ["isbn"]),
        SourceTable("public", "publisher", {"id": "int4", "name": "text"}, ["id"]),
        SourceTable("public", "author", {"id": "int4", "name": "text"}, ["id"]),
        SourceTable("public", "wrote", {"id": "int4", "isbn": "varchar", "author": "int4"}, ["id"]),
    )
}
KEYS = (
    ForeignKey("public.book", ["of"], "public.publisher", ["id"]),
    ForeignKey("public.wrote", ["isbn"], "public.book", ["isbn"]),
    ForeignKey("public.wrote", ["author"], "public.author", ["id"]),
)
PUBLISHER: dict[str, Any] = {
    "table": "publisher",
    "label": "by",
    "columns": ["name"],
    "relationship": {
        "variant": "scalar",
        "type": "one_to_one",
        "foreign_key": {"child": ["id"], "parent": ["of"]},
    },
}
AUTHORS: dict[str, Any] = {
    "table": "author",
    "relationship": {"variant": "object", "type": "one_to_many", "through_tables": ["wrote"]},
    "children": [],
}
BOOK: dict[str, Any] = {
    "database": "shop",
    "plugins": ["One"],
    "setting": {"analysis": {}},
    "routing": "isbn",
    "nodes": {
        "table": "book",
        "schema": "public",
        "columns": ["isbn", "title", "doc->x->0"],
        "transform": {
            "rename": {"title": "called"},
            "replace": {"title": {"a": "b"}},
            "concat": [{"columns": ["isbn", "called"], "destination": "all", "delimiter": "-"}],
        },
        "children": [PUBLISHER, AUTHORS],
    },
}
ODD: tuple[object, ...] = (
    None,
    1,
    1.5,
    True,
    "",
    "x",
    "a->",
    "\0",
    [],
    [1],
    ["x"],
    [[]],
    {},
    {"x": 1},
    {"x": {}},
    [{}],
)


def _places(value: object, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    members = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for name, member in members:
        yield (*above, name)
        yield from _places(member, (*above, name))


def _without(place: tuple[Any, ...], *put: object) -> dict[str, Any]:
    """The schema with something else at a place, or nothing."""
    made = copy.deepcopy(BOOK)
    at: Any = made
    for name in place[:-1]:
        at = at[name]
    if put:
        at[place[-1]] = copy.deepcopy(put[0])
    else:
        del at[place[-1]]
    return made


def test_the_schema_itself_is_imported() -> None:
    assert imported(BOOK, TABLES, KEYS).name == "shop"


@pytest.mark.parametrize(
    ("place", "put", "said"),
    [
        (("transform", "concat"), [{"columns": ["isbn"]}], "lacks a text at nodes.transform.concat[0].destination"),
        (("transform", "concat"), {"destination": "all"}, "lacks a list at nodes.transform.concat.columns"),
        (("transform",), ["rename"], "lacks an object at nodes.transform"),
        (("children",), ["publisher"], "lacks an object at nodes.children[0]"),
        (("children",), [{"label": "by"}], "lacks a text at nodes.children[0].table"),
        (("children", 0, "relationship"), "one", "lacks an object at nodes.children[0].relationship"),
        (("children", 0, "relationship", "foreign_key"), {"child": ["id"]}, "lacks a list at nodes.children[0]"),
        (("children", 0, "relationship", "foreign_key", "parent"), ["of", "isbn"], "names 1 columns of it and 2 of"),
        (("columns",), "isbn", "lacks a list at nodes.columns"),
        (("transform", "rename"), {"title": 3}, "renames title to what is no name"),
    ],
)
def test_h488_a_member_is_named_by_its_place(place: tuple[Any, ...], put: object, said: str) -> None:
    with pytest.raises(ImportRefused) as refused:
        imported(_without(("nodes", *place), put), TABLES, KEYS)
    assert said in refused.value.message
    assert refused.value.hint


@settings(max_examples=examples(200))
@given(seed=st.integers(0, 2**32 - 1))
def test_h488_a_schema_is_imported_or_refused(seed: int) -> None:
    chance = random.Random(seed)
    place = chance.choice(list(_places(BOOK)))
    document = _without(place) if chance.random() < 0.3 else _without(place, chance.choice(ODD))
    try:
        assert imported(document, TABLES, KEYS).sql
    except ImportRefused as refused:
        assert refused.hint


def test_h488_children_without_end_are_refused() -> None:
    nested: dict[str, Any] = AUTHORS
    for _ in range(400):
        nested = AUTHORS | {"children": [nested]}
    with pytest.raises(ImportRefused, match="nested more than 50 deep"):
        imported({"nodes": {"table": "book", "children": [nested]}}, TABLES, KEYS)
