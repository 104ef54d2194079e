"""A key that is none of a view's is refused, whatever stands in it: a person or a stranger wrote it."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from cdc.record.schema import Column
from cdc.views.lookups import DocumentSource
from cdc.views.view_plan import planned
from cdc.views.view_ports import rows_asked
from cdc.views.view_records import ViewRecord, key_row
from cdc.views.view_state import ViewState
from connectors.views.view_showing import typed_row
from tests.memory_views import MemoryViewTopic
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
    for odd in (*ODD, *map(orjson.loads, ODD[-9:]), "x", "{", '{"id":[]}', '{"id":null}', "9" * 5000, "\udcff"):
        try:
            row = typed_row(plan, odd)
        except ValueError:
            continue
        assert DocumentSource(plan).of(state.rows, [row]) == {row: None}
    state.close()
    assert all(hash(row) for row in rows_asked(plan, [f'{{"id":{odd}}}' for odd in (*ODD, "no JSON", "3")]))


@pytest.mark.parametrize(
    ("kind", "typed", "wire"),
    [
        ("text", "42", '"42"'),
        ("text", '"42"', '"42"'),
        ("text", '{"id":42}', '"42"'),
        ("text", "true", '"true"'),
        ("text", "null", '"null"'),
        ("text", "[1]", '"[1]"'),
        ("text", '{"a":1}', '"{\\"a\\":1}"'),
        ("text", "007", '"007"'),
        ("text", "1.50", '"1.50"'),
        ("varchar", "42", '"42"'),
        ("bpchar", "42", '"42"'),
        ("int4", "42", "42"),
        ("int8", '{"id":42}', "42"),
        ("bool", "true", "true"),
        ("bool", "t", "true"),
        ("float8", "1.5", "1.5"),
        ("float8", "NaN", '"NaN"'),
        ("numeric", "1.50", '"1.50"'),
        ("numeric", "42", '"42"'),
        ("numeric", '{"id":1.5}', '"1.5"'),
        ("date", "2026-11-28", '"2026-11-28"'),
        ("date", "infinity", '"infinity"'),
        ("time", "10:20", '"10:20:00"'),
        ("timestamp", "2026-11-28 10:20:30", '"2026-11-28T10:20:30"'),
        ("timestamptz", "2026-11-28 12:20:30+02", '"2026-11-28T10:20:30Z"'),
        ("timestamptz", "-0043-03-15T00:00:00Z", '"-0043-03-15T00:00:00Z"'),
        ("interval", "P1DT2H", '"P1DT2H"'),
        ("interval", "1 day 02:00:00", '"P1DT2H"'),
        ("uuid", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", '"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"'),
        ("uuid", "12345678123412341234123456789012", '"12345678-1234-1234-1234-123456789012"'),
        ("bytea", "1234", '"1234"'),
        ("inet", "10.0.0.1", '"10.0.0.1"'),
    ],
)
def test_h511_a_typed_key_finds_the_document(kind: str, typed: str, wire: str) -> None:
    plan = planned("select id, v from t", [table_of("t", {"id": kind, "v": "int4"})])
    assert typed_row(plan, typed) == key_row(plan, b'{"id":%b}' % wire.encode())


def test_h511_a_numeric_is_typed_with_fewer_digits() -> None:
    column = Column(
        name="id", attnum=1, type="numeric", type_oid=0, kind="numeric", typmod=(10 << 16 | 2) + 4, key_position=1
    )
    plan = planned("select id from t", [replace(table_of("t", {}), columns=(column,))])
    assert typed_row(plan, "1.5") == typed_row(plan, '{"id":1.5}') == ("1.50",)


def test_h511_nulls_and_keys_of_several_columns_are_typed() -> None:
    shape = table_of("t", {"id": "int4", "a": "text", "b": "date"})
    plan = planned("select a, count(*) as n from t group by a", [shape])
    assert typed_row(plan, "null") == (None,)
    assert typed_row(plan, '"null"') == ("null",)
    assert typed_row(plan, "42") == ("42",)
    both = planned("select a, b, count(*) as n from t group by a, b", [shape])
    assert typed_row(both, '{"b":"2026-11-28","a":7}') == key_row(both, b'{"a":"7","b":"2026-11-28"}')
    for none in ("7", "{}", '{"a":1}', '{"a":1,"b":"x"}', '{"a":true,"b":[]}'):
        with pytest.raises(ValueError):
            typed_row(both, none)
    one = planned("select count(*) as n from t", [shape])
    assert typed_row(one, "{}") == typed_row(one, "all") == ()
    with pytest.raises(ValueError):
        typed_row(one, "7")


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
