"""A condition as a part of a statement: no text of its own gets out of quotes."""

from __future__ import annotations

import re

import pytest
from hypothesis import given

from cdc.operate.snapshot_requests import condition_on
from cdc.process.errors import ConfigError
from cdc.record.row_condition import Condition, parse
from snapshot.later.window_read import as_sql
from tests.unit.cdc.record.test_condition import conditions
from tests.unit.snapshot.later.test_table_reading import SHAPE

QUOTED = re.compile(r""" E'(?:\\.|''|[^'\\])*'|'(?:''|[^'])*'|"(?:""|[^"])*" """.strip(), re.DOTALL)
NUMBER = re.compile(r"(?<![\w.])-?[0-9]+(?:\.[0-9]+)?(?:E[-+]?[0-9]+)?(?![\w.])")
OURS = {"and", "or", "not", "in", "between", "like", "ilike", "is", "null", "true", "false"}


@given(conditions)
def test_h111_what_is_not_quoted_is_of_a_closed_list(condition: Condition) -> None:
    text = as_sql(condition).as_string(None)
    assert "\0" not in text
    bare = NUMBER.sub(" ", QUOTED.sub(" ", text))
    assert set(re.findall(r"[^\s()=<>,]+", bare)) <= OURS
    assert bare.count("(") == bare.count(")")


def test_a_condition_stands_in_parentheses() -> None:
    found = as_sql(parse("id = 3 or not (\"Id\" like 'a''%' and id in (1, -2))")).as_string(None)
    assert found == """(("id" = 3) or (not (("Id" like 'a''%') and ("id" in (1,  -2)))))"""


def test_h111_a_condition_on_a_table_names_its_captured_columns() -> None:
    assert condition_on("id > 3", SHAPE) == parse("id > 3")
    with pytest.raises(ConfigError, match="no captured column secret"):
        condition_on("id > 3 and secret = 'x'", SHAPE)
    with pytest.raises(ConfigError, match=r"that is no condition on public\.orders"):
        condition_on("id = 3) or (id = 4", SHAPE)
