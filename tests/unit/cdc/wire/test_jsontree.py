"""JSON of any depth: as Python's own reader and writer have it, and deeper."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.wire.jsontree import is_deeper, loads, value_at, written
from tests.hostile_documents import DEEP, EVERY

_leaves = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
values = st.recursive(_leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner))
_AROUND = 2_000


def deep(text: str) -> str:
    """So deep that Python's reader gives up."""
    return "[" * _AROUND + text + "]" * _AROUND


def inner(value: Any) -> Any:
    for _ in range(_AROUND):
        (value,) = value
    return value


@given(values, st.sampled_from([None, 1]))
def test_w6_what_stands_deep_is_read_as_elsewhere(value: Any, indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    assert loads(f" {text}\n", int) == value
    assert inner(loads(deep(f" {text}\n"), int)) == value
    assert value_at(f"1,{deep(text)},2", 2, int)[1] == 2 + len(deep(text))


@given(values)
def test_w6_what_was_read_is_written_again(value: Any) -> None:
    assert json.loads(written(value, json.dumps)) == value
    assert written(value, json.dumps, order=str) == json.dumps(value, sort_keys=True, separators=(",", ":"))
    text = deep(json.dumps(value, separators=(",", ":")))
    assert written(loads(text, int), json.dumps) == text


@pytest.mark.parametrize(
    "bad", ["", "[", "[1,]", "[1 2]", "[1}", '{"a"}', '{"a":1,}', "{1:2}", '{"a":', "nope", "NaN", "1 2", "]"]
)
def test_w6_what_is_no_json_is_refused_at_any_depth(bad: str) -> None:
    for text in (bad, deep(bad) if bad not in ("", "1 2") else deep("1 2"), deep("1") + bad + "]"):
        with pytest.raises(ValueError):
            loads(text, int)


@given(values)
def test_w6_the_depth_is_that_of_the_brackets_outside_texts(value: Any) -> None:
    def depth(one: Any) -> int:
        members = one.values() if isinstance(one, dict) else one if isinstance(one, list) else None
        return 0 if members is None else 1 + max(map(depth, members), default=0)

    text = json.dumps(value, ensure_ascii=False).encode()
    assert [is_deeper(text, level) for level in range(9)] == [depth(value) > level for level in range(9)]


@pytest.mark.parametrize("name", EVERY)
def test_w6_the_hostile_documents_are_read_and_written(name: str) -> None:
    once = written(loads(EVERY[name], str), json.dumps)
    assert written(loads(once, str), json.dumps) == once
    assert is_deeper(EVERY[name].encode(), 100) == ((name in DEEP and "99" not in name) or "300" in name)
