"""LIKE of a view becomes an expression: the work of a match grows with the text's length alone (H94)."""

from __future__ import annotations

import pytest

from cdc.views.text_values import _like, like
from tests.faults.steps import Steps

_PATTERNS = ("%a%a%a%a%b", "%ab%ab%ab%", "a%a_a%a", "%%%%x", "_%_%_%_", "%a_a_a%c")
_SHORT, _LONG = 50, 400


@pytest.mark.parametrize("pattern", _PATTERNS)
@pytest.mark.parametrize("text", ["a", "ab", "aab", "x"])
def test_h94_like_takes_linear_time(pattern: str, text: str) -> None:
    steps = Steps(_like(pattern, "\\", False))
    short, long = (steps.match(text * (length // len(text)), whole=True, limit=10**7)[1] for length in (_SHORT, _LONG))
    assert long <= 2 * (_LONG // _SHORT) * short


@pytest.mark.parametrize(
    ("text", "pattern", "matches"),
    [
        ("abcab", "%ab", True),
        ("abab", "ab%ab", True),
        ("aba", "ab%ba", False),
        ("aXb", "a_b", True),
        ("ab", "a_b", False),
    ],
)
def test_parts_take_their_first_places_and_the_last_its_end(text: str, pattern: str, matches: bool) -> None:
    assert like(text, pattern) is matches
