"""The path behind #> is read as Postgres reads an array."""

from __future__ import annotations

import pytest

from cdc.views.functions import path_of
from cdc.views.syntax import NotComputable


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("{}", ()),
        (" { } ", ()),
        ("{a,b}", ("a", "b")),
        ("{ a b , 1 }", ("a b", "1")),
        ('{"a,b","", "c\\"d"}', ("a,b", "", 'c"d')),
        ('{NULL,"null",\\null}', (None, "null", "null")),
    ],
)
def test_a_path_has_the_steps_of_an_array(text: str, steps: tuple[str | None, ...]) -> None:
    assert path_of(text) == steps


@pytest.mark.parametrize("text", ["", "{", "a", "{a", "{a,}", "{,a}", '{"a}', '{a"b"}', '{"a"b}', "{{a}}"])
def test_what_is_no_array_is_no_path(text: str) -> None:
    with pytest.raises(NotComputable, match="malformed"):
        path_of(text)
