"""The work that a row takes grows with its bytes and columns alone, whatever stands in it; counted in steps."""

from __future__ import annotations

import random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from cdc.record.schema import Encoding
from tests.faults.counted import MOST, Nulls, check, row, wide
from tests.unit.connectors.postgres.encoding.made import VALUES, rows

PATTERNS: dict[str, Nulls] = {
    "none": lambda i: False,
    "all": lambda i: True,
    "every other": lambda i: i % 2 == 1,
    "two of three": lambda i: i % 3 > 0,
    "all but each tenth": lambda i: i % 10 > 0,
    "behind": lambda i: i > 20,
    "before": lambda i: i < 20,
    "chance": lambda i: random.Random(i).random() < 0.5,
}


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("encoding", ["readable", "debezium"])
def test_h94_a_row_of_any_type_takes_steps_as_it_has_bytes(kind: str, encoding: Encoding) -> None:
    schema = wide([kind], 70, encoding)
    check(schema, row(schema, PATTERNS["every other"], 7), row(schema, PATTERNS["none"], 7))
    check(schema, row(schema, PATTERNS["chance"], 7), row(schema, PATTERNS["two of three"], 7))


@pytest.mark.parametrize("nulls", PATTERNS)
@pytest.mark.parametrize("columns", [1, 2, 200, 201, MOST])
def test_h94_a_row_of_any_width_takes_steps_as_it_has_bytes(columns: int, nulls: str) -> None:
    schema = wide(["text"], columns)
    check(schema, row(schema, PATTERNS[nulls], 7), row(schema, PATTERNS[nulls], 7))


@settings(phases=set(Phase) - {Phase.explain})
@given(
    st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=8),
    st.sampled_from((5, 24, 40, 70, 200, 380)),
    st.sampled_from(("readable", "debezium")),
    st.data(),
)
@pytest.mark.slow
def test_h94_rows_of_mixed_types_take_steps_as_they_have_bytes(
    kinds: list[str], columns: int, encoding: Encoding, data: st.DataObject
) -> None:
    some = data.draw(st.lists(rows(wide(kinds, len(kinds) + 1)), min_size=3, max_size=3))
    rng = random.Random(data.draw(st.integers(0, 1000)))
    new, old = ([b"7n", *(rng.choice(some)[1 + i % len(kinds)] for i in range(columns - 1))] for _ in "no")
    check(wide(kinds, columns, encoding), new, old)
