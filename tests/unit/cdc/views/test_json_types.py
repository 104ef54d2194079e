"""Values of every type as JSON: what json.c of Postgres writes, or a refusal that says what would do."""

from __future__ import annotations

import sqlite3

import orjson
import pytest

from cdc.record.schema import Column, Identity, TableSchema
from cdc.record.topic_names import TableName
from cdc.settings.mask_rules import NO_MASKS
from cdc.views.embedded_state import EmbeddedState, SqliteRows
from cdc.views.lookups import DocumentSource
from cdc.views.row_changes import RowChange, UnseenRows
from cdc.views.stored_values import cell, loaded
from cdc.views.syntax import ViewRefused
from cdc.views.view_plan import ViewPlan, planned
from cdc.views.view_records import StateRows
from connectors.postgres.encoding.encoder import compile_table


def shape(types: dict[str, str]) -> TableSchema:
    """The table ``t`` with a key ``id`` and these columns. A type without a kind of its own is ``other``."""
    columns = [_column(name, kind, number) for number, (name, kind) in enumerate(types.items(), start=2)]
    key = Column(name="id", attnum=1, type="integer", type_oid=23, kind="int4", nullable=False, key_position=1)
    return TableSchema(
        table=TableName("public", "t"),
        topic="t",
        version=1,
        oid=1,
        encoding="readable",
        identity=Identity.DEFAULT,
        columns=(key, *columns),
    )


def _column(name: str, kind: str, number: int) -> Column:
    scalar, array = kind.removesuffix("[]"), kind.endswith("[]")
    scalar, _, length = scalar.partition("(")
    known, _, own = scalar.partition(" ")
    return Column(
        name=name,
        attnum=number,
        type=(own or known) + "[]" * array,
        type_oid=0,
        kind=known,
        array=array,
        typmod=int(length.rstrip(")")) + 4 if length else -1,
    )


def document(plan: ViewPlan, table: TableSchema, texts: list[str | None]) -> dict[str, object]:
    """The document of one row that Postgres prints so."""
    store = sqlite3.connect(":memory:", isolation_level=None)
    rows = SqliteRows(store, plan.relations)
    state = EmbeddedState(rows, UnseenRows(store, plan.relations), plan)
    line = "\t".join(["1", *("\\N" if text is None else text.replace("\\", "\\\\") for text in texts)])
    key, row = compile_table(table, name="t", database="d", masks=NO_MASKS).snapshot_line(line.encode())
    reader = StateRows(table, plan.relations[table.table])
    concerned = state.apply([RowChange(table.table, reader.key(key), reader.row(orjson.loads(row)), f"{1:032x}")])
    (found,) = DocumentSource(plan).of(rows, concerned).values()
    assert isinstance(found, str), found
    made = orjson.loads(found)
    assert isinstance(made, dict)
    return made


WRITTEN: list[tuple[str, str, str]] = [
    ("bool", "t", "true"),
    ("int2", "-7", "-7"),
    ("int8", "9223372036854775807", "9223372036854775807"),
    ("numeric", "1.50", "1.50"),
    ("numeric", "NaN", '"NaN"'),
    ("float8", "-0", "-0"),
    ("float8", "1e+20", "1e+20"),
    ("float8", "-Infinity", '"-Infinity"'),
    ("float4", "0.1", "0.1"),
    ("float4", "1e+06", "1e+06"),
    ("float4", "123456.5", "123456.5"),
    ("float4", "1.234567e+06", "1.234567e+06"),
    ("float4", "1e+23", "1e+23"),
    ("float4", "1e-05", "1e-05"),
    ("float4", "3.4028235e+38", "3.4028235e+38"),
    ("float4", "1e-45", "1e-45"),
    ("float4", "7", "7"),
    ("float4", "-0", "-0"),
    ("float4", "NaN", '"NaN"'),
    ("float4", "Infinity", '"Infinity"'),
    ("float4[]", "{0.1,NULL,1e+06,NaN}", '[0.1,null,1e+06,"NaN"]'),
    ("oid", "4294967295", '"4294967295"'),
    ("oid[]", "{1,NULL}", '["1",null]'),
    ("date", "infinity", '"infinity"'),
    ("date", "0044-03-15 BC", '"0044-03-15 BC"'),
    ("time", "12:30:00.5", '"12:30:00.5"'),
    ("timestamp", "2024-02-29 23:59:59.5", '"2024-02-29T23:59:59.5"'),
    ("timestamp", "-infinity", '"-infinity"'),
    ("timestamptz", "2024-02-29 23:59:59.5+00", '"2024-02-29T23:59:59.5+00:00"'),
    ("timestamptz", "infinity", '"infinity"'),
    ("interval", "P1MT2H", '"P1MT2H"'),
    ("uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", '"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"'),
    ("text", 'say "x"\\', '"say \\"x\\"\\\\"'),
    ("bpchar(4)", "ab  ", '"ab  "'),
    ("enum mood", "mmm", '"mmm"'),
    ("enum mood[]", "{mmm,NULL}", '["mmm",null]'),
    ("bytea", "\\x00ff", '"\\\\x00ff"'),
    ("bytea[]", '{"\\\\x00ff"}', '["\\\\x00ff"]'),
    ("inet", "10.0.0.1/8", '"10.0.0.1/8"'),
    ("int4range", "[1,10)", '"[1,10)"'),
    ("tsvector", "'a':1 'b':2", "\"'a':1 'b':2\""),
    ("ltree", "top.science", '"top.science"'),
    ("xml", "<a>1</a>", '"<a>1</a>"'),
    ("json", '{"a" : 1.0}', '{"a" : 1.0}'),
    ("jsonb", '{"a": 1.0}', '{"a": 1.0}'),
    ("json[]", '{"{\\"a\\" : 1}",NULL,"null"}', '[{"a" : 1},null,null]'),
    ("int4[]", "{}", "[]"),
    ("int4[]", "{{1,2},{3,NULL}}", "[[1,2],[3,null]]"),
    ("int4[]", "[0:1]={1,2}", "[1,2]"),
    ("float8[]", "{NaN,-0,1.5}", '["NaN",-0,1.5]'),
    ("bool[]", "{t,f}", "[true,false]"),
    ("timestamptz[]", '{"2024-01-01 00:00:00+00",infinity}', '["2024-01-01T00:00:00+00:00","infinity"]'),
    ("other tsquery", "'a' & 'b'", "\"'a' & 'b'\""),
    ("other int4multirange", "{[1,3),[5,7)}", '"{[1,3),[5,7)}"'),
    ("other pg_lsn", "0/16B3748", '"0/16B3748"'),
    ("other pg_lsn[]", "{0/1,NULL}", '["0/1",null]'),
]


@pytest.mark.parametrize(("kind", "text", "json"), WRITTEN, ids=[f"{kind} {text[:20]}" for kind, text, _ in WRITTEN])
def test_h463_h464_json_is_what_postgres_writes(kind: str, text: str, json: str) -> None:
    table = shape({"v": kind})
    sql = """select id, v, to_json(v) as one, to_json(t) as row, json_build_object('v', v) as object,
                    json_build_array(v) as array, to_jsonb(v) as binary from t"""
    plan = planned(sql, [table])
    made = document(plan, table, [text])
    assert made["one"] == json
    assert made["row"] == f'{{"id":1,"v":{json}}}'
    assert made["object"] == f'{{"v" : {json}}}'
    assert made["array"] == f"[{json}]"
    binary = orjson.loads(str(made["binary"]))
    assert binary == orjson.loads(json)
    # The column itself stands as in its own table.
    key_row = compile_table(table, name="t", database="d", masks=NO_MASKS)
    line = "1\t" + text.replace("\\", "\\\\")
    assert made["v"] == orjson.loads(key_row.snapshot_line(line.encode())[1])["v"]
    assert document(plan, table, [None])["row"] == '{"id":1,"v":null}'


COMPOSITE = [
    ("select id, to_json(c) as x from t", "c", "a value of type addr as JSON"),
    ("select id, to_jsonb(c) as x from t", "c", "a value of type addr as JSON"),
    ("select id, row_to_json(c) as x from t", "c", "a value of type addr as JSON"),
    ("select id, array_to_json(cs) as x from t", "cs", "a value of type addr[] as JSON"),
    ("select id, json_build_object('c', c) as x from t", "c", "a value of type addr as JSON"),
    ("select id, jsonb_build_object('c', array[c]) as x from t", "array", "a value of type addr[] as JSON"),
    ("select id, json_build_array(id, cs) as x from t", "cs", "a value of type addr[] as JSON"),
    ("select id, to_json(t) as x from t", "t", "the column c of type addr as JSON"),
    (
        "select id, (select json_agg(q) from (select x.id, x.cs from t x) q where q.id = t.id) as x from t",
        "q",
        "the column cs of type addr[]",
    ),
    ("select id, (select json_agg(q) from t q where q.id = t.id) as x from t", "q", "the column c of type addr"),
    ("select id, (select jsonb_agg(q.c) from t q where q.id = t.id) as x from t", "q.c", "a value of type addr"),
    ("select id, (select json_object_agg(q.id, q.c) from t q where q.id = t.id) as x from t", "q.c", "a value of type"),
    ("select id, to_json((select array_agg(q) from t q where q.id = t.id)) as x from t", "(", "the column c of type"),
    ("select id, json_build_object(c, 1) as x from t", "c", "the name of a member"),
    ("select id, json_build_object(j, 1) as x from t", "j", "the name of a member"),
    ("select id, t::text as x from t", ":", "does not cast record to text"),
    ("select id, concat(t) as x from t", "t", "does not cast record to text"),
    ("select id, (select array_agg(q) from t q where q.id = t.id) as x from t", "(", "is a whole row"),
]


@pytest.mark.parametrize(("sql", "word", "reason"), COMPOSITE, ids=[sql[10:60] for sql, _, _ in COMPOSITE])
def test_h463_a_composite_within_json_is_refused(sql: str, word: str, reason: str) -> None:
    """The log has its text, ``(1,a)``, and not its attributes. Postgres writes an object."""
    with pytest.raises(ViewRefused) as refused:
        planned(sql, [shape({"c": "other addr", "cs": "other addr[]", "j": "json"})])
    assert refused.value.word == word
    assert reason in refused.value.message
    assert refused.value.hint
    assert refused.value.place is not None


@pytest.mark.parametrize("kind", ["other addr", "other public.tsquery", "other int2vector", "other geometry", "other"])
def test_h463_of_types_nobody_knows_json_is_refused(kind: str) -> None:
    with pytest.raises(ViewRefused, match="as JSON"):
        planned("select id, to_json(t) as x from t", [shape({"c": kind})])


def test_h463_what_would_do_is_the_text_of_a_composite() -> None:
    table = shape({"c": "other addr", "cs": "other addr[]"})
    sql = "select id, c, cs, json_build_object('id', id, 'c', c::text) as x, concat(c) as y from t"
    made = document(planned(sql, [table]), table, ['(1,"a b")', '{"(1,a)",NULL}'])
    assert made["x"] == '{"id" : 1, "c" : "(1,\\"a b\\")"}'
    assert (made["c"], made["cs"], made["y"]) == ('(1,"a b")', ["(1,a)", None], '(1,"a b")')


@pytest.mark.parametrize("kind", ["money", "timetz", "hstore", "bit", "point", "vector", "money[]"])
def test_h463_a_row_with_what_no_view_carries_is_refused(kind: str) -> None:
    """The name of the table brings the column into JSON as its own name does."""
    table = shape({"odd": kind})
    for sql in ("to_json(t)", "(select json_agg(q) from t q where q.id = t.id)", "count(t)"):
        with pytest.raises(ViewRefused, match="cannot carry the column odd of type"):
            planned(f"select id, {sql} as x from t group by id", [table])
    with pytest.raises(ViewRefused, match="cannot carry a column of type"):
        planned("with q as (select * from t) select id, to_json(q.odd) as x from q", [table])
    planned("with q as (select * from t) select id from q where exists (select * from t x where x.id = q.id)", [table])


@pytest.mark.parametrize("sql", ["select t.* from t", "with q as (select * from t) select * from q"])
def test_h463_a_star_passes_what_is_text_on_the_wire(sql: str) -> None:
    for kind, text, wire in (("money", "$1,234.11", "1234.11"), ("hstore", '"a"=>"1"', '{"a":"1"}')):
        table = shape({"odd": kind})
        assert document(planned(sql, [table]), table, [text])["odd"] == wire
    for kind in ("point", "vector", "sparsevec", "timetz[]"):
        with pytest.raises(ViewRefused, match="cannot carry the column odd of type"):
            planned(sql, [shape({"odd": kind})])


def test_h464_a_float4_stands_as_postgres_prints_it() -> None:
    table = shape({"w": "float4"})
    sql = "select id, w, w::text as said, concat(w, '!') as more, array[w] as list, coalesce(w, w) as same from t"
    for text, plain in (("1.234567e+06", 1234567.0), ("0.1", 0.1), ("NaN", "NaN"), ("-0", -0.0)):
        made = document(planned(sql, [table]), table, [text])
        assert (made["w"], made["list"], made["same"]) == (plain, [plain], plain)
        assert (made["said"], made["more"]) == (text, f"{text}!")


def test_h464_a_group_keeps_float4_values() -> None:
    """They go through the state of the group and come out as they went in."""
    plan = planned("select id, w from t", [shape({"w": "float4"})])
    (_, kind) = plan.outputs[1]
    keep, read = cell(kind), loaded(kind)
    assert keep is not None
    assert read is not None
    for text in ("0.1", "1e+06", "1e+23", "-0", "NaN", "-Infinity"):
        assert read(keep(text)) == text


@pytest.mark.parametrize("sql", ["w < 1", "w + 1", "w = w", "w::numeric", "w::float8", "sum(w)", "max(w)"])
def test_h464_nothing_is_computed_with_a_float4(sql: str) -> None:
    with pytest.raises(ViewRefused):
        planned(f"select id, {sql} as x from t group by id", [shape({"w": "float4"})])
