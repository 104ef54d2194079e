"""Each rule explains its difference and nothing beside it; a wrong value of ours stays unexplained."""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import replace
from pathlib import Path

import pytest

from cdc.comparison.compared_record import ComparedRecord, TableHistory
from cdc.comparison.differences import differences, explained_by, undecided
from cdc.comparison.lossless import parse
from cdc.comparison.rules import RULES
from cdc.position import Position
from cdc.schema import Column, Identity, TableSchema
from cdc.topic import TableName

LONG = "x" * 200


def column(name: str, kind: str, **more: object) -> Column:
    made: dict[str, object] = {"name": name, "attnum": 1, "type": kind, "type_oid": 25, "kind": kind, **more}
    return Column(**made)  # type: ignore[arg-type]


COLUMNS = (
    column("id", "int4", nullable=False, key_position=1),
    column("t", "text"),
    column("nn", "text", nullable=False),
    column("num", "numeric"),
    column("neg", "numeric", typmod=(4 << 16 | (-2 & 0x7FF)) + 4),
    column("nm", "name"),
    column("ts", "timestamp"),
    column("tm", "time"),
    column("f", "float8"),
    column("r", "float4"),
    column("o", "other"),
    column("a", "int4", array=True),
    column("ti", "time", array=True),
    column("da", "date", array=True),
    column("mo", "money", array=True),
    column("na", "numeric", array=True),
    column("at", "text", array=True),
    column("pa", "point", array=True),
    column("big", "int8"),
    column("h", "hstore"),
    column("g", "int4", generated=True),
)


def facts(*, identity: Identity = Identity.DEFAULT, deferrable_key: bool = False, leaf: bool = False) -> TableHistory:
    schema = TableSchema(
        table=TableName("public", "t"),
        topic="t",
        version=1,
        oid=1,
        encoding="readable",
        identity=identity,
        deferrable_key=deferrable_key,
        columns=COLUMNS,
    )
    return TableHistory(schemas=(schema,), defaults=frozenset(("t",)), primary_key=("id",), leaf=leaf)


def record(value: str | None, *, op: str = "c", key: str = '{"id":1}', side: str = "after") -> ComparedRecord:
    body = None
    if value is not None:
        body = parse(f'{{"{side}":{value},"source":{{"snapshot":"{"true" if op == "r" else "false"}"}},"op":"{op}"}}')
    return ComparedRecord(table="public.t", key=parse(key), value=body, headers=())


def names(
    theirs: ComparedRecord | None, ours: ComparedRecord | None, known: TableHistory | None = None
) -> list[list[str]]:
    found = differences("readable", [(theirs, ours)], {"public.t": known or facts()})
    return [explained_by(RULES, d) for d in found]


@pytest.mark.parametrize(
    ("rule", "theirs", "ours", "op", "side"),
    [
        ("D1", '{"t":"default"}', '{"t":null}', "c", "after"),
        ("D2", "{}", '{"o":"(1,2)"}', "c", "after"),
        ("D2", f'{{"o":"{b64encode(b"(1,2)").decode()}"}}', '{"o":"(1,2)"}', "c", "after"),
        ("D3", '{"nn":""}', '{"nn":null}', "d", "before"),
        ("D4", '{"num":"NAN"}', '{"num":"NaN"}', "c", "after"),
        ("D5", '{"nm":null}', '{"nm":"n"}', "c", "after"),
        ("D6", '{"ts":"+292278994-08-17Z"}', '{"ts":"infinity"}', "c", "after"),
        ("D6", '{"ts":"-0043-03-13T00:00:00Z"}', '{"ts":"-0043-03-15T00:00:00Z"}', "r", "after"),
        ("D7", '{"ti":["10:00:00Z"]}', '{"ti":["10:00:00.123456Z"]}', "c", "after"),
        ("D7", '{"a":null}', '{"a":[1,null]}', "c", "after"),
        ("D2", "{}", '{"pa":[{"x":1,"y":2},null]}', "c", "after"),
        ("D8", '{"neg":"' + "9" * 300 + '"}', '{"neg":"1200"}', "c", "after"),
        ("D12", "{}", '{"g":1}', "r", "after"),
        ("D18", '{"t":"__debezium_unavailable_value"}', '{"t":"whole"}', "u", "after"),
        ("D18", '{"num":null}', '{"num":"' + "1" * 200 + '"}', "u", "after"),
        ("D19", '{"tm":"00:00:00Z"}', '{"tm":"24:00:00Z"}', "c", "after"),
        ("D21", '{"f":1.0E10}', '{"f":10000000000}', "c", "after"),
        ("D21", '{"r":3.4028235E38}', '{"r":3.4028234e+38}', "c", "after"),
        ("D22", '{"h":"{\\"b\\":\\"1\\",\\"a\\":null}"}', '{"h":"{\\"a\\":null,\\"b\\":\\"1\\"}"}', "c", "after"),
    ],
)
def test_a_difference_on_purpose_has_one_rule(rule: str, theirs: str, ours: str, op: str, side: str) -> None:
    assert names(record(theirs, op=op, side=side), record(ours, op=op, side=side)) == [[rule]]


@pytest.mark.parametrize(
    ("theirs", "ours", "op"),
    [
        ('{"t":"a"}', '{"t":"b"}', "c"),
        ('{"nn":"a"}', '{"nn":null}', "c"),
        ('{"num":"1"}', '{"num":null}', "u"),
        ('{"num":"1.0"}', '{"num":"NaN"}', "c"),
        ('{"nm":"a"}', '{"nm":"b"}', "c"),
        ('{"ts":"2020-01-01T00:00:00Z"}', '{"ts":"2020-01-02T00:00:00Z"}', "r"),
        ('{"ts":"-0043-03-13T00:00:00Z"}', '{"ts":"-0043-03-15T00:00:00Z"}', "c"),
        ('{"a":[1]}', '{"a":[2]}', "c"),
        ('{"f":1.5}', '{"f":1.25}', "c"),
        ('{"f":0.0}', '{"f":-0.0}', "c"),
        ('{"num":null}', '{"num":"1"}', "u"),
        ('{"t":"x"}', "{}", "c"),
        ('{"o":"KDEsMik="}', '{"o":"(1,3)"}', "c"),
        ('{"h":"{\\"a\\":\\"1\\"}"}', '{"h":"{\\"a\\":\\"2\\"}"}', "c"),
        ('{"id":1,"t":"x"}', '{"t":"x","id":1}', "c"),
        ('{"num":"POSITIVE_INFINITY"}', '{"num":"-Infinity"}', "c"),
        ('{"t":"00:00:00Z"}', '{"t":"24:00:00Z"}', "c"),
        ('{"big":9007199254740993}', '{"big":9007199254740992}', "c"),
        ('{"big":9007199254740993}', '{"big":9007199254740992.0}', "c"),
        ('{"id":1}', '{"id":1.0}', "c"),
        ('{"t":"NAN"}', '{"t":"NaN"}', "c"),
        ('{"r":1.5}', '{"r":1e39}', "c"),
        ('{"h":"{\\"a\\":\\"1\\"}"}', '{"h":"{\\"a\\":"}', "c"),
        ('{"h":"{\\"a\\":\\"1\\"}"}', '{"h":""}', "c"),
    ],
)
def test_a_wrong_value_is_explained_by_none(theirs: str, ours: str, op: str) -> None:
    assert names(record(theirs, op=op), record(ours, op=op)) == [[]]


def test_a_record_that_one_side_lacks_is_explained_by_its_table() -> None:
    row = record("{}", op="d", side="before")
    assert names(row, None) == [[]]
    assert names(None, row) == [[]]
    assert names(None, row, facts(deferrable_key=True)) == [["D20"]]
    assert names(row, None, facts(leaf=True)) == [[]]
    assert names(record("{}", op="r"), None, facts(leaf=True)) == [["D13"]]
    assert names(row, None, facts(identity=Identity.INDEX)) == [["D9"]]
    assert names(None, record("null", op="t")) == [["D23"]]
    assert names(record("null", op="t"), None) == [[]]


def test_headers_and_fields_of_our_own_are_named() -> None:
    def with_headers(*pairs: tuple[str, str]) -> ComparedRecord:
        return ComparedRecord(table="public.t", key=parse('{"id":1}'), value=None, headers=pairs)

    theirs = with_headers(("__debezium.context.taskId", "0"), ("__debezium.newkey", '{"id":"a\nb"}'))
    ours = with_headers(("pos", "0"), ("op", "d"), ("ver", "1"), ("__debezium.newkey", '{"id":"a\\nb"}'))
    assert set(map(tuple, names(theirs, ours))) == {("D14",)}
    assert names(with_headers(("__debezium.newkey", '{"id":1}')), with_headers()) == [[]]
    assert names(with_headers(), with_headers(("surprise", "1"))) == [[]]
    source = '{"version":"3.7.0.Final","lsn":1}'
    own = '{"version":"0.1.0","lsn":1,"epoch":1,"commit_lsn":2,"tx_seq":1}'
    one, two = (
        ComparedRecord(table="public.t", key=None, value=parse(f'{{"source":{text},"op":"c"}}'), headers=())
        for text in (source, own)
    )
    assert names(one, two) == [["D15"]] * 4


@pytest.mark.parametrize(
    ("member", "explained"),
    [
        ('"seen_lsn":7', ["D15"]),
        ('"seen_lsn":"7"', []),
        ('"reselected":{"columns":["a"],"seen_lsn":7}', ["D15"]),
        ('"reselected":{"columns":["none of the table"],"seen_lsn":7}', []),
        ('"reselected":{"columns":[],"seen_lsn":7}', []),
        ('"reselected":{"columns":["a"]}', []),
        ('"reselected":["a"]', []),
    ],
)
def test_v25_what_was_read_later_may_be_said(member: str, explained: list[str]) -> None:
    one, two = (
        ComparedRecord(table="public.t", key=None, value=parse(f'{{"source":{{"lsn":1{text}}},"op":"u"}}'), headers=())
        for text in ("", f",{member}")
    )
    assert names(one, two) == [explained]


def test_every_rule_is_one_of_the_manuals() -> None:
    manual = Path(__file__).parents[4] / "connectors" / "debezium" / "README.md"
    listed = re.findall(r"^\| (D\d+) \|", manual.read_text(encoding="utf-8"), re.MULTILINE)
    assert {rule.name for rule in RULES} <= set(listed)


@pytest.mark.parametrize(
    ("rule", "theirs", "ours", "right", "op"),
    [
        ("D1", '{"t":"default"}', '{"t":null}', '"x"', "c"),
        ("D2", "{}", '{"o":"(1,2)"}', '"(1,3)"', "c"),
        ("D5", '{"nm":null}', '{"nm":"n"}', '"m"', "c"),
        ("D6", '{"ts":"+292278994-08-17Z"}', '{"ts":"infinity"}', '"2020-01-01T00:00:00Z"', "c"),
        ("D7", '{"a":null}', '{"a":[1,null]}', "[1,2]", "c"),
        ("D7", '{"a":[null,null]}', '{"a":[[1,2],[3,4]]}', "[[1,2],[4,3]]", "c"),
        ("D2", "{}", '{"pa":[{"x":1,"y":2}]}', '[{"x":1,"y":3}]', "c"),
        ("D7", '{"da":["2020-01-01Z"]}', '{"da":["2021-01-01Z"]}', '["2020-01-01Z"]', "c"),
        ("D7", '{"mo":["1.00"]}', '{"mo":["2.00"]}', '["1.00"]', "c"),
        ("D8", '{"neg":"' + "9" * 300 + '"}', '{"neg":"1200"}', '"1300"', "c"),
        ("D12", "{}", '{"g":1}', "2", "r"),
        ("D18", '{"t":"__debezium_unavailable_value"}', '{"t":null}', '"whole"', "u"),
        ("D18", '{"t":"__debezium_unavailable_value"}', '{"t":"another"}', '"whole"', "u"),
        ("D18", '{"num":null}', '{"num":"' + "1" * 200 + '"}', '"1"', "u"),
        ("D19", '{"tm":"00:00:00Z"}', '{"tm":"24:00:00Z"}', '"00:00:00Z"', "c"),
    ],
)
def test_the_source_decides_where_debezium_does_not(rule: str, theirs: str, ours: str, right: str, op: str) -> None:
    (found,) = differences("readable", [(record(theirs, op=op), record(ours, op=op))], {"public.t": facts()})
    assert undecided(RULES, found)
    assert explained_by(RULES, found) == [rule]
    wrong = replace(found, source=parse(right))
    assert not undecided(RULES, wrong)
    assert explained_by(RULES, wrong) == []
    assert explained_by(RULES, replace(found, source=found.got)) == [rule]


@pytest.mark.parametrize(
    ("theirs", "ours", "rule"),
    [
        ('{"ti":["10:00:00.123Z",null]}', '{"ti":["10:00:00.123456Z",null]}', "D7"),
        ('{"ti":[49890123000]}', '{"ti":[49890123456]}', "D7"),
        ('{"a":[null,null]}', '{"a":[[1,2],[3,4]]}', "D7"),
        ('{"at":["[Ljava.lang.String;@3232a36b"]}', '{"at":[["a","b"]]}', "D7"),
        ('{"a":null}', '{"a":[1,null]}', "D7"),
        ('{"na":null}', '{"na":["NaN","1.0"]}', "D7"),
        ('{"a":null}', '{"a":[1,2]}', ""),
        ('{"a":[null]}', '{"a":[[1,2],[3,4]]}', ""),
        ('{"a":[1,2]}', '{"a":[[1,2]]}', ""),
        ('{"a":[1,3]}', '{"a":[1,null,3]}', ""),
        ('{"a":[1,null,3]}', '{"a":[null,1,3]}', ""),
        ('{"a":[1,null,3]}', '{"a":[1,null,4]}', ""),
        ('{"a":[1,null,3]}', '{"a":[3,null,1]}', ""),
        ('{"a":[1,2]}', '{"a":[1,null]}', ""),
        ('{"a":[1,2]}', '{"a":[2,1]}', ""),
        ('{"a":[1,2]}', '{"a":[1,2.0]}', ""),
        ('{"na":["1.0",null]}', '{"na":["1.00",null]}', ""),
    ],
)
def test_h180_an_array_is_compared_element_by_element(theirs: str, ours: str, rule: str) -> None:
    (found,) = differences("readable", [(record(theirs), record(ours))], {"public.t": facts()})
    assert explained_by(RULES, found) == ([rule] if rule else [])
    # Whatever Debezium lost: only the source says what stood there.
    assert undecided(RULES, found) is bool(rule)


@pytest.mark.parametrize(
    ("theirs", "ours", "explained"),
    [
        ('"op":"c","after":{"id":1,"big":7}', '"op":"c","after":{"id":1,"big":7}', True),
        ('"op":"c","after":{"id":1,"big":7}', '"op":"c","after":{"id":1,"big":8}', False),
        ('"op":"c","after":{"id":1,"big":8}', '"op":"c","after":{"id":1,"big":8}', False),
    ],
)
def test_a_key_by_an_index_is_that_of_the_row(theirs: str, ours: str, explained: bool) -> None:
    indexed = facts(identity=Identity.INDEX)
    columns = tuple(replace(c, key_position={"big": 1}.get(c.name)) for c in COLUMNS)
    indexed = replace(indexed, schemas=(replace(indexed.schemas[0], columns=columns),))
    one = ComparedRecord(table="public.t", key=parse('{"id":1}'), value=parse(f"{{{theirs}}}"), headers=())
    two = ComparedRecord(table="public.t", key=parse('{"big":7}'), value=parse(f"{{{ours}}}"), headers=())
    found = differences("readable", [(one, two)], {"public.t": indexed})
    assert all(explained_by(RULES, d) == ["D9"] for d in found) is explained


def test_a_record_of_another_key_needs_one_of_the_same_change() -> None:
    indexed = facts(identity=Identity.INDEX)
    (gone,) = differences("readable", [(record('{"id":1}', op="d", side="before"), None)], {"public.t": indexed})
    assert explained_by(RULES, replace(gone, beside=(record('{"id":2}', op="u"),))) == ["D9"]
    assert explained_by(RULES, replace(gone, beside=())) == []
    (made,) = differences("readable", [(record('{"id":1,"t":"a"}', op="c"), None)], {"public.t": indexed})
    assert explained_by(RULES, replace(made, beside=(record('{"id":1,"t":"a"}', op="u"),))) == ["D9"]
    assert explained_by(RULES, replace(made, beside=(record('{"id":1,"t":"b"}', op="u"),))) == []


@pytest.mark.parametrize(
    ("name", "got", "explained"),
    [("op", "u", False), ("op", "c", True), ("ver", "x", False), ("ver", "2", False), ("ver", "1", True)],
)
def test_a_header_of_ours_says_what_the_record_is(name: str, got: str, explained: bool) -> None:
    one = ComparedRecord(table="public.t", key=None, value=parse('{"source":{},"op":"c"}'), headers=())
    two = replace(one, headers=((name, got),))
    (found,) = differences("readable", [(one, two)], {"public.t": facts()})
    assert bool(explained_by(RULES, found)) is explained


def test_pos_is_the_position_of_the_source() -> None:
    source = '{"source":{"epoch":1,"commit_lsn":2,"tx_seq":3},"op":"c"}'
    one = ComparedRecord(table="public.t", key=None, value=parse(source), headers=())
    for position, explained in ((Position(1, 2, 3), True), (Position(1, 2, 4), False)):
        (found,) = differences("readable", [(one, replace(one, headers=(("pos", position.text()),)))], {})
        assert bool(explained_by(RULES, found)) is explained
    bare = replace(one, value=parse('{"source":{"epoch":1,"commit_lsn":2.0,"tx_seq":3},"op":"c"}'))
    (found,) = differences("readable", [(bare, replace(bare, headers=(("pos", Position(1, 2, 3).text()),)))], {})
    assert explained_by(RULES, found) == []


def test_h180_a_tombstone_alone_needs_a_move_of_the_other_key() -> None:
    indexed = facts(identity=Identity.INDEX)
    (gone,) = differences("readable", [(record(None), None)], {"public.t": indexed})
    assert explained_by(RULES, replace(gone, beside=(record('{"id":2}', op="u"),))) == ["D9"]
    assert explained_by(RULES, replace(gone, beside=(record('{"id":2}', op="d"),))) == []


def test_an_old_row_that_is_whole_has_no_invented_value() -> None:
    theirs, ours = record('{"nn":"x"}', op="d", side="before"), record('{"nn":null}', op="d", side="before")
    assert names(theirs, ours) == [["D3"]]
    assert names(theirs, ours, facts(identity=Identity.FULL)) == [[]]
