"""The patch arithmetic: any change of any document, told as MongoDB tells it, comes out as the changed document."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.wire.debezium.patch import AmbiguousPath, Patch, Patched

Document = dict[str, Any]


def patched(document: Document, *patches: Patch) -> Patched:
    made = Patched(copy.deepcopy(document))
    for patch in patches:
        made.apply(copy.deepcopy(patch))
    return made


def diff(one: Any, other: Any, path: str = "") -> Patch:
    """What changed between two values of one kind, as MongoDB's change streams tell it: the least that says it."""
    removed: list[str] = []
    truncated: list[tuple[str, int]] = []
    updated: dict[str, Any] = {}
    if isinstance(one, dict):
        removed = [f"{path}{name}" for name in one if name not in other]
        pairs = [(name, one[name], other[name]) for name in other if name in one]
        updated = {f"{path}{name}": value for name, value in other.items() if name not in one}
    else:
        if len(other) < len(one):
            truncated.append((path[:-1], len(other)))
        pairs = [(str(n), a, b) for n, (a, b) in enumerate(zip(one, other, strict=False))]
        updated = {f"{path}{n}": value for n, value in enumerate(other) if n >= len(one)}
    for name, before, after in pairs:
        if isinstance(before, dict | list) and type(before) is type(after):
            inner = diff(before, after, f"{path}{name}.")
            removed += inner.removed
            truncated += inner.truncated
            updated |= inner.updated
        elif not same(before, after):
            updated[f"{path}{name}"] = after
    return Patch(tuple(removed), tuple(truncated), updated)


def same(one: Any, other: Any) -> bool:
    """Equal as JSON: True is not 1."""
    return orjson.dumps(one, option=orjson.OPT_SORT_KEYS) == orjson.dumps(other, option=orjson.OPT_SORT_KEYS)


def documents(names: st.SearchStrategy[str]) -> st.SearchStrategy[Document]:
    scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5)
    values = st.recursive(
        scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=3), max_leaves=12
    )
    return st.dictionaries(names, values, max_size=4)


plain = documents(st.sampled_from(["a", "b", "c", "0", "1", "$d", "", "ü"]))
dotted = documents(st.sampled_from(["a", "b", "a.b", "b.0", "0", "a.b.0", "."]))


@given(plain, plain)
def test_a_document_and_what_changed_make_the_other(one: Document, other: Document) -> None:
    made = patched(one, diff(one, other))
    assert same(made.document, other)
    assert made.unplaced == []


def without_new_dots(one: Any, other: Any) -> Any:
    """``other`` less the names with dots that it adds to an object of ``one``: of these a patch says too little."""
    if isinstance(one, dict) and isinstance(other, dict):
        kept = {name: value for name, value in other.items() if name in one or "." not in name}
        return {name: without_new_dots(one.get(name), value) for name, value in kept.items()}
    if isinstance(one, list) and isinstance(other, list):
        return [without_new_dots(one[n] if n < len(one) else None, value) for n, value in enumerate(other)]
    return other


@given(dotted, dotted)
def test_with_dots_in_names_it_is_the_other_document_or_refused(one: Document, wanted: Document) -> None:
    other = without_new_dots(one, wanted)
    try:
        made = patched(one, diff(one, other))
    except AmbiguousPath:
        return
    assert made.unplaced == []
    assert same(made.document, other)


@given(plain, plain)
def test_a_patch_applied_again_changes_nothing(one: Document, other: Document) -> None:
    patch = diff(one, other)
    made = patched(one, patch, patch)
    assert same(made.document, other)
    assert made.unplaced == []


@given(st.lists(plain, min_size=2, max_size=6), st.data())
def test_patches_applied_again_from_any_of_them_end_as_before(states: list[Document], data: st.DataObject) -> None:
    """As after a snapshot whose rows hold changes that come behind it, or changes that were written twice."""
    patches = [diff(one, other) for one, other in pairwise(states)]
    again = data.draw(st.integers(0, len(patches) - 1))
    made = patched(states[-1], *patches[again:])
    assert made.unplaced or same(made.document, states[-1])


@pytest.mark.parametrize(
    ("document", "patch", "expected"),
    [
        ({"a": [1, 2, 3]}, Patch((), (("a", 1),), {}), {"a": [1]}),
        ({"a": [1, 2, 3]}, Patch((), (("a", 2),), {"a.1": 9, "a.2": 8}), {"a": [1, 9, 8]}),
        ({"a": [1]}, Patch((), (), {"a.3": 2}), {"a": [1, None, None, 2]}),
        ({"a": [1]}, Patch((), (("a", 3),), {}), {"a": [1]}),
        ({"a": {"b": {"c": 1}}}, Patch(("a.b.c",), (), {}), {"a": {"b": {}}}),
        ({"a": [{"b": 1, "c": 2}]}, Patch(("a.0.b",), (), {"a.0.d": [3]}), {"a": [{"c": 2, "d": [3]}]}),
        ({"a": {"0": 0}}, Patch((), (), {"a.0": 1}), {"a": {"0": 1}}),
        ({"a": 1}, Patch(("gone", "gone.too"), (), {}), {"a": 1}),
        ({"a": {"b": 1}}, Patch((), (), {"a": {"c": 2}}), {"a": {"c": 2}}),
        ({"a.b": 1}, Patch((), (), {"a.b": 2}), {"a.b": 2}),
        ({"a.b": {"c": 1}}, Patch(("a.b.c",), (), {"a.b.d": 2}), {"a.b": {"d": 2}}),
        ({"a": {}, "a.b": 1}, Patch(("a.b",), (), {}), {"a": {}}),
        ({"a": [1, 2]}, Patch(("a.0", "a.2"), (), {}), {"a": [None, 2]}),
        ({"a": [1, 2]}, Patch((), (("gone", 0), ("a.2", 0)), {}), {"a": [1, 2]}),
        ({"a": {"b": 1}, "a.b": [1, 2]}, Patch((), (("a.b", 1),), {}), {"a": {"b": 1}, "a.b": [1]}),
    ],
)
def test_documented_cases(document: Document, patch: Patch, expected: Document) -> None:
    made = patched(document, patch)
    assert (made.document, made.unplaced) == (expected, [])


@pytest.mark.parametrize("path", ["x.y", "a.b.c", "l.1.x", "l.7.x", "l.x", "l.9999999", "l.x.y", "l.-1", "l.²"])
def test_an_update_without_a_place_is_told(path: str) -> None:
    made = patched({"a": {"b": 1}, "l": [1]}, Patch((), (), {path: 1}))
    assert made.unplaced == [path]
    assert made.document == {"a": {"b": 1}, "l": [1]}


@pytest.mark.parametrize(("beyond", "is_set"), [(1_500_000, True), (1_500_001, False)])
def test_an_element_far_behind_an_arrays_end_is_none(beyond: int, is_set: bool) -> None:
    """MongoDB pads by so many nulls and refuses more: a path of such a number means something else."""
    made = patched({"l": [1]}, Patch((), (), {f"l.{1 + beyond}": 2}))
    assert len(made.document["l"]) == (2 + beyond if is_set else 1)
    assert bool(made.unplaced) != is_set


def test_every_update_without_a_place_is_told_with_those_before() -> None:
    first, second = Patch((), (), {"x.y.z": 1}), Patch((), (), {"x.y": 1})
    assert patched({}, first, second).unplaced == ["x.y.z", "x.y"]


@pytest.mark.parametrize(
    "later",
    [
        Patch(("a",), (), {}),
        Patch(("a.b",), (), {}),
        Patch(("a", "other"), (), {"more": 1}),
        Patch((), (), {"a": 5}),
        Patch((), (), {"a.b": 3}),
    ],
)
def test_a_later_patch_that_removes_the_place_makes_it_needless(later: Patch) -> None:
    held: Document = {"a": {}} if "a.b" in later.updated else {}
    first = Patch((), (), {"a.b": 1}) if not held else Patch((), (), {"a.b.c": 1})
    assert patched(held, first).unplaced
    assert patched(held, first, later).unplaced == []


@pytest.mark.parametrize("patch", [Patch((), (), {"a.b": 1}), Patch(("a.b",), (), {}), Patch((), (("a.b", 0),), {})])
def test_a_path_that_means_two_fields_is_refused(patch: Patch) -> None:
    with pytest.raises(AmbiguousPath, match=r"a\.b"):
        patched({"a": {"b": [1]}, "a.b": [1]}, patch)


def test_a_patch_is_read_from_what_the_record_says() -> None:
    said = {"removedFields": ["b"], "truncatedArrays": [{"field": "a", "size": 0}], "updatedFields": '{"c.0": 1}'}
    assert Patch.read(said, orjson.loads) == Patch(("b",), (("a", 0),), {"c.0": 1})
    nothing = {"removedFields": None, "truncatedArrays": None, "updatedFields": None}
    assert Patch.read(nothing, orjson.loads) == Patch.read({}, orjson.loads) == Patch((), (), {})
