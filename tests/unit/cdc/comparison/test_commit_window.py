"""Records that say nothing of their commit, and what is left of a record to be compared."""

from __future__ import annotations

import pytest

from cdc.comparison.commit_window import CommitWindow, comparable
from cdc.comparison.compared_record import ComparedRecord
from cdc.comparison.lossless import parse


def change(source: str, op: str = "c") -> ComparedRecord:
    value = parse(f'{{"after":{{"id":1}},"source":{{{source}}},"op":"{op}","ts_ms":5}}')
    return ComparedRecord(table="public.t", key=parse('{"id":1}'), value=value, headers=())


@pytest.mark.parametrize("sequence", ["null", '"[null,\\"7\\"]"', '"[]"', '"[7]"', '"7"', '"{}"', "[]"])
def test_a_change_without_a_commit_before_it_is_of_the_beginning(sequence: str) -> None:
    """Before the first commit the connector writes null there."""
    record = change(f'"txId":7,"sequence":{sequence}')
    assert CommitWindow(begin=0, end=1, rows=False).cut([record], []) == ([record], [])
    assert CommitWindow(begin=1, end=9, rows=False).cut([record], []) == ([], [])


def test_a_value_without_a_source_is_compared_as_it_stands() -> None:
    for value in ('{"op":"c","ts_ms":5}', '{"source":7,"op":"c"}', '"text"'):
        record = ComparedRecord(table="public.t", key=None, value=parse(value), headers=())
        assert comparable(record, "shop") is record


def test_markers_of_a_snapshots_rows_stay_what_they_are() -> None:
    first, last, streamed = (change(f'"snapshot":{marker}', "r") for marker in ('"first"', '"last"', '"false"'))
    made = [comparable(record, "shop") for record in (first, last, streamed, change('"snapshot":null', "r"))]
    assert made[0] != made[1]
    assert made[0] != made[2]
    assert made[2] == made[3], "its default is null where defaults are not written"
