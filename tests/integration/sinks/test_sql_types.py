"""Postgres' own types in a warehouse that is Postgres, and stores whose columns are text from before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from cdc.record.progress import Watermark
from cdc.record.schema import TableSchema
from sinks.contract.kinds import beside, open_generations, spec_for
from sinks.contract.sink_spec import SinkSpec, open_sink
from tests.contract.conftest import postgres_url
from tests.contract.stores import live
from tests.contract.topics import Shapes, Topic, at, batch, column, numeric, shape
from tests.single_rows import canonical_row, plain_row

OWN = shape(
    column("id", "int8", key=1),
    column("doc", "jsonb"),
    column("raw", "json"),
    column("u", "uuid"),
    column("ip", "inet"),
    column("net", "cidr"),
    column("mac", "macaddr"),
    column("mac8", "macaddr8"),
    column("t", "time"),
    column("tz", "timetz"),
    column("n", "numeric"),
    numeric("n50", 50, 3),
    column("by", "bytea"),
    column("us", "uuid", array=True),
    column("ips", "inet", array=True),
    column("docs", "jsonb", array=True),
    column("ts", "time", array=True),
    column("ns", "numeric", array=True),
    table="own",
)
ROW: dict[str, Any] = {
    "id": 1,
    "doc": '{"a": {"b": [1, 2.50]}}',
    "raw": '{"b":1,  "a":1e400, "b":2}',
    "u": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    "ip": "10.0.0.1",
    "net": "10.0.0.0/8",
    "mac": "08:00:2b:01:02:03",
    "mac8": "08:00:2b:01:02:03:04:05",
    "t": "13:51:30.1Z",
    "tz": "11:51:30.123789Z",
    "n": "10.1000",
    "n50": "9" * 47 + ".125",
    "by": "AQL/",
    "us": ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", None],
    "ips": ["::1/64", "10.0.0.1"],
    "docs": ['{"a": 1}', "null", None],
    "ts": ["24:00:00Z", None],
    "ns": ["1.10", "NaN", None],
}
ROWS = [
    ROW,
    {**{name: None for name in ROW}, "id": 2},
    {**ROW, "id": 3, "ip": "2001:db8::1/32", "n": "-Infinity", "t": "24:00:00Z", "us": [], "n50": "NaN"},
    {**ROW, "id": 4, "ips": [["10.0.0.1"], ["10.0.0.2"]], "doc": "null", "raw": '"\\ud800\\u0000"', "by": ""},
]
TYPES = {
    "doc": "jsonb",
    "raw": "json",
    "u": "uuid",
    "ip": "inet",
    "net": "cidr",
    "mac": "macaddr",
    "mac8": "macaddr8",
    "t": "time without time zone",
    "tz": "time with time zone",
    "n": "numeric",
    "n50": "numeric",
    "by": "bytea",
    "us": "uuid[]",
    "ips": "inet[]",
    "docs": "jsonb[]",
    "ts": "time without time zone[]",
    "ns": "numeric[]",
}
FORMAT = (
    "select attname, format_type(atttypid, atttypmod) from pg_attribute where attrelid = %s::regclass and attnum > 0"
)


@pytest.fixture
def spec(database: str) -> Iterator[SinkSpec]:
    yield spec_for("sql", prefix="shop", options={"url": postgres_url(conninfo_to_dict(database))})


def asked(database: str, query: str, *values: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(database, autocommit=True) as reader:
        done = reader.execute(query.encode(), values or None)
        return done.fetchall() if done.description else []


def types(database: str, table: str = "public_own") -> dict[str, str]:
    return {name: kind for name, kind in asked(database, FORMAT, table) if name in TYPES or name == "v"}


def canonical(row: dict[str, Any], schema: TableSchema = OWN) -> bytes:
    return canonical_row(orjson.dumps(plain_row(row, schema)), schema)


@pytest.mark.parametrize("generic", [False, True], ids=["copied", "generic"])
def test_postgres_keeps_the_types_of_the_source(spec: SinkSpec, database: str, generic: bool) -> None:
    sink, topic = open_sink(SinkSpec(**{**_parts(spec), "options": {**spec.options, "generic": generic}})), Topic(OWN)
    done = sink.sink.apply(batch(*(topic.upsert(row, at(row["id"])) for row in ROWS)), Shapes(OWN))
    assert (done.applied, done.refused) == (4, ())
    assert live(sink, OWN) == {str(row["id"]): canonical(row) for row in ROWS}
    sink.sink.show()
    assert types(database) == TYPES
    query = "select doc -> 'a' -> 'b' ->> 1, ip <<= net, t > '13:00', n + 1, us[1] = u from public_own where id = 1"
    assert [str(one) for one in asked(database, query)[0]] == ["2.50", "True", "True", "11.1000", "True"]
    assert asked(database, "select id from public_own where _exact is not null order by id") == [(4,)]
    one = sink.reader.get(OWN, "4")
    assert one is not None and one.row is not None
    assert canonical_row(one.row, OWN) == canonical(ROWS[3])
    sink.close()


def _parts(spec: SinkSpec) -> dict[str, Any]:
    return {name: getattr(spec, name) for name in spec.__dataclass_fields__}


def test_a_store_with_text_columns_goes_on_until_rebuilt(spec: SinkSpec, database: str) -> None:
    """The layout of versions before: text wherever a type was none of SQL's standard."""
    old = ", ".join(f"{name} text{'[]' if name[-1] == 's' else ''}" for name in TYPES if name != "by")
    asked(
        database,
        f'create table public_own (id bigint, {old}, by bytea, _key text collate "C" primary key, '
        '_pos varchar(32) collate "C" not null, _deleted boolean not null, _deleted_at timestamptz, _exact text)',
    )
    asked(database, "grant select on public_own to public")
    before = types(database)
    first, topic = open_sink(spec), Topic(OWN)
    for row in ROWS:
        assert first.sink.apply(batch(topic.upsert(row, at(row["id"]))), Shapes(OWN)).refused == ()
    first.commit(Watermark(epoch=1, lsn=4, offsets={}))
    assert live(first, OWN) == {str(row["id"]): canonical(row) for row in ROWS}
    assert types(database) == before
    assert set(before.values()) == {"text", "text[]", "bytea"}
    second = open_sink(beside(spec, 2))
    second.sink.apply(batch(*topic.events), Shapes(OWN))
    second.commit(Watermark(epoch=1, lsn=5, offsets={}))
    second.close()
    generations = open_generations(spec)
    generations.keep(1, [OWN])
    generations.switch(2, [OWN])
    assert types(database) == TYPES
    assert live(open_sink(spec), OWN) == {str(row["id"]): canonical(row) for row in ROWS}
    generations.switch(1, [OWN])
    assert types(database) == before
    generations.close()


def _array(kind: str) -> Any:
    return column("v", kind, array=True)


RETYPED: list[tuple[Any, Any, Any, Any, str]] = [
    (column("v", "uuid"), column("v", "text"), ROW["u"], "b", "text"),
    (column("v", "inet"), column("v", "text"), "10.0.0.1", "b", "text"),
    (column("v", "inet"), column("v", "cidr"), "10.0.0.1", "10.0.0.0/8", "text"),
    (column("v", "time"), column("v", "varchar"), "13:51:30.1Z", "b", "text"),
    (column("v", "timetz"), column("v", "text"), "13:51:30.1Z", "b", "text"),
    (column("v", "json"), column("v", "jsonb"), '{"a":1, "a":2}', '{"b": 1}', "json"),
    (column("v", "jsonb"), column("v", "json"), '{"a": 2}', '{"b":1, "b":2}', "text"),
    (column("v", "int4"), column("v", "numeric"), 7, "1e0".replace("1e0", "1.50"), "numeric"),
    (numeric("v", 6, 2), column("v", "numeric"), "7.25", "1" * 60, "numeric"),
    (column("v", "int4"), column("v", "uuid"), 7, ROW["u"], "text"),
    (_array("uuid"), _array("text"), [ROW["u"], None], ["b"], "text[]"),
    (_array("uuid"), column("v", "text"), [ROW["u"]], "b", "text"),
    (_array("int4"), _array("numeric"), [7], ["1.50"], "numeric[]"),
]


@pytest.mark.parametrize(
    ("before", "after", "old", "new", "kind"),
    RETYPED,
    ids=[f"{b.kind} to {a.kind} {n}" for n, (b, a, *_) in enumerate(RETYPED)],
)
def test_a_native_column_follows_its_source(
    spec: SinkSpec, database: str, before: Any, after: Any, old: Any, new: Any, kind: str
) -> None:
    key = column("id", "int8", key=1)
    one, two = shape(key, before, table="own"), shape(key, after, table="own", version=2)
    sink = open_sink(spec)
    first, second = {"id": 1, "v": old}, {"id": 2, "v": new}
    assert sink.sink.apply(batch(Topic(one).upsert(first, at(1))), Shapes(one)).refused == ()
    assert sink.sink.apply(batch(Topic(two).upsert(second, at(2))), Shapes(one, two)).refused == ()
    late = Topic(one).upsert({"id": 3, "v": old}, at(3))
    assert open_sink(spec).sink.apply(batch(late), Shapes(one, two)).refused == ()
    found = live(sink, two)
    assert found["2"] == canonical(second, two)
    assert types(database)["v"] == kind
    if not after.array and after.kind in ("text", "varchar", "cidr") and not before.array:
        assert found["1"] == canonical(first, two)


def test_a_value_of_an_older_shape_goes_to_exact(spec: SinkSpec, database: str) -> None:
    key = column("id", "int8", key=1)
    one, two = shape(key, column("v", "text"), table="own"), shape(key, column("v", "uuid"), table="own", version=2)
    sink, shapes = open_sink(spec), Shapes(one, two)
    rows = [Topic(two).upsert({"id": 1, "v": ROW["u"]}, at(1)), Topic(one).upsert({"id": 2, "v": "17"}, at(2))]
    assert sink.sink.apply(batch(rows), shapes).refused == ()
    assert live(sink, two) == {"1": canonical({"id": 1, "v": ROW["u"]}, two), "2": canonical({"id": 2, "v": "17"}, two)}
    assert asked(database, "select v, _exact from public_own where id = 2") == [(None, '{"v":"17"}')]


@pytest.mark.parametrize("kind", ["json", "jsonb"])
@pytest.mark.parametrize("array", [False, True], ids=["one", "array"])
def test_h456_text_of_an_older_shape_need_not_be_json(spec: SinkSpec, database: str, kind: str, array: bool) -> None:
    """A store made anew reads rows from before ``alter column v type json using ...``. None is refused."""
    key = column("id", "int8", key=1)
    one = shape(key, column("v", "text", array=array), table="own")
    two = shape(key, column("v", kind, array=array), table="own", version=2)
    texts = ["hello", "", "{'a': 1}", '{"a": 1}', "1e200000", "NaN", '"\\u0000"', "[1,]"]
    topic, shapes = Topic(one), Shapes(one, two)
    rows = {str(n): {"id": n, "v": [text, None] if array else text} for n, text in enumerate(texts)}
    sink = open_sink(spec)
    done = sink.sink.apply(batch(*(topic.upsert(row, at(1)) for row in rows.values())), shapes)
    assert (done.applied, done.refused) == (len(texts), ())
    sink.sink.show()
    native = asked(database, "select id from public_own where v is not null order by id")
    assert native == [(3,), (6,)] if kind == "json" else native == [(3,)]
    exact = asked(database, "select id, _exact::json ->> 'v' from public_own where _exact is not null order by id")
    said = [str(text) if not array else orjson.dumps([text, None]).decode() for text in texts]
    assert exact == [(number, said[number]) for number in range(len(texts)) if (number,) not in native]
    sink.close()


def test_h456_json_of_an_older_shape_has_numbers_beyond_jsonb(spec: SinkSpec, database: str) -> None:
    key = column("id", "int8", key=1)
    one, two = shape(key, column("v", "json"), table="own"), shape(key, column("v", "jsonb"), table="own", version=2)
    topic, texts = Topic(one), ["1e200000", "1e400", "[0.5]"]
    sink = open_sink(spec)
    events = batch(*(topic.upsert({"id": n, "v": text}, at(1)) for n, text in enumerate(texts)))
    assert sink.sink.apply(events, Shapes(one, two)).refused == ()
    sink.sink.show()
    assert asked(database, "select id from public_own where v is not null order by id") == [(1,), (2,)]
    sink.close()


def test_h455_bytes_are_none_of_an_older_text(spec: SinkSpec, database: str) -> None:
    key = column("id", "int8", key=1)
    one, two = shape(key, column("v", "text"), table="own"), shape(key, column("v", "bytea"), table="own", version=2)
    topic, texts = Topic(one), ["abcd", "ab cd"]
    sink = open_sink(spec)
    events = batch(*(topic.upsert({"id": n, "v": text}, at(1)) for n, text in enumerate(texts)))
    assert sink.sink.apply(events, Shapes(one, two)).refused == ()
    sink.sink.show()
    found = asked(database, "select v, _exact::json ->> 'v' from public_own order by id")
    assert found == [(None, "abcd"), (None, "ab cd")]
    sink.close()
