"""A key that is none of a view's is refused, whatever stands in it: a person or a stranger wrote it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from cdc.views.asked_keys import rows_asked
from cdc.views.lookups import DocumentSource
from cdc.views.memory_views import MemoryViewTopic
from cdc.views.view_plan import planned
from cdc.views.view_records import ViewRecord, key_row
from cdc.views.view_state import ViewState
from tests.unit.cdc.views.view_histories import History, Runner, shown, table_of

KINDS = (
    *("int4", "int8", "text", "varchar", "bpchar", "numeric", "float8", "bool", "uuid", "bytea", "inet"),
    *("date", "time", "timestamp", "timestamptz", "interval"),
)
ODD = (
    *("1", "-1", "1.5", "true", "null", "[]", "[1]", "{}", '{"a":1}', "1e300", "99999999999999999999"),
    *('""', '"x"', '"NaN"', '"infinity"', '"2020-13-45"', '"99999-01-01"', '"\\u0000"', '"1e400"', '"P1D"'),
)


@pytest.mark.parametrize("kind", KINDS)
def test_h490_a_key_is_looked_up_or_none(kind: str) -> None:
    plan = planned("select id, v from t", [table_of("t", {"id": kind, "v": "int4"})])
    state = ViewState(":memory:", plan, 1)
    for odd in ODD:
        try:
            row = key_row(plan, b'{"id":%b}' % odd.encode())
        except ValueError:
            continue
        assert DocumentSource(plan).of(state.rows, [row]) == {row: None}
        assert state.digests([row]) == {}
    state.close()
    assert all(hash(row) for row in rows_asked(plan, [f'{{"id":{odd}}}' for odd in (*ODD, "no JSON", "3")]))


@pytest.mark.parametrize(
    "odd", ["3", "[]", '{"id":true}', '{"id":[1]}', '{"id":{}}', '{"id":null}', '{"id":99999999999999999999}']
)
def test_h490_a_strangers_key_ends_no_runner(tmp_path: Path, odd: str) -> None:
    history = History(random.Random(1))
    strange = ViewRecord("t.view.v.1", 0, odd.encode(), b"{}", [("pos", b"0" * 32), ("op", b"u"), ("ver", b"1")])
    runner = Runner("select o.id from orders o", history, tmp_path, MemoryViewTopic({0: [strange]}))
    history.write("orders", 1, {"id": 1, "customer_id": None})
    history.progress_now()
    runner.until_level()
    runner.topic.records[0].remove(strange)
    assert shown(runner.topic) == {b'{"id":1}': {"id": 1}}
    runner.end()
