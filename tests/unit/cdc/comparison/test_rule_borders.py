"""Differences just beside each one on purpose: of another type, another place, another side of the record."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace

import pytest

from cdc.comparison.compared_record import ComparedRecord, TableHistory
from cdc.comparison.differences import RecordDifference, differences, explained_by, undecided
from cdc.comparison.lossless import Object, parse
from cdc.comparison.rules import RULES
from cdc.schema import Column, Identity
from tests.unit.cdc.comparison.test_narrow_rules import MORE, by_index, headers
from tests.unit.cdc.comparison.test_rules import LONG, column, facts, record

ROW = '{"id":1}'


def scaled(name: str, scale: int) -> Column:
    return column(name, "numeric", typmod=(400 << 16 | (scale & 0x7FF)) + 4)


def history(*more: Column, known: TableHistory | None = None) -> TableHistory:
    found = known or facts()
    return replace(found, schemas=(replace(found.schemas[0], columns=(*MORE, *more)),))


def found_in(
    theirs: str, ours: str, *more: Column, op: str = "c", side: str = "after", known: TableHistory | None = None
) -> list[RecordDifference]:
    pair = record(theirs, op=op, side=side), record(ours, op=op, side=side)
    return list(differences("readable", [pair], {"public.t": history(*more, known=known)}))


def by(theirs: str, ours: str, *more: Column, op: str = "c", side: str = "after") -> list[str]:
    """The rules that explain the one difference."""
    (found,) = found_in(theirs, ours, *more, op=op, side=side)
    return explained_by(RULES, found)


OTHER_ARRAY = column("oa", "other", array=True)
BASE64 = b64encode(b"{a,b}").decode()


@pytest.mark.parametrize(
    ("theirs", "ours", "rules"),
    [
        ("{}", '{"o":null}', ["D2"]),
        ("{}", '{"o":1}', []),
        ("{}", '{"o":[1]}', []),
        ("{}", '{"a":1}', []),
        ("{}", '{"a":[1]}', ["D2"]),
        ("{}", '{"go":"x"}', ["D12"]),
        ('{"g":1}', '{"g":2}', []),
        ('{"a":"KDEsMik="}', '{"a":"(1,2)"}', []),
        (f'{{"oa":"{BASE64}"}}', '{"oa":["a","b"]}', ["D2"]),
    ],
)
def test_a_value_that_debezium_leaves_out_is_of_a_type_it_lacks(theirs: str, ours: str, rules: list[str]) -> None:
    assert by(theirs, ours, OTHER_ARRAY, column("go", "other", generated=True)) == rules


def test_h180_an_array_in_base64_says_nothing_of_its_elements() -> None:
    (found,) = found_in(f'{{"oa":"{BASE64}"}}', '{"oa":["a","c"]}', OTHER_ARRAY)
    assert undecided(RULES, found) is True
    (scalar,) = found_in(f'{{"o":"{BASE64}"}}', '{"o":"{a,b}"}')
    assert undecided(RULES, scalar) is False


def test_a_table_keyed_by_an_index_has_no_default_for_a_null() -> None:
    (found,) = found_in('{"t":"default"}', '{"t":null}', known=facts(identity=Identity.INDEX))
    assert explained_by(RULES, found) == []


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("{}", '{"nn":null}'), ('{"nn":"x"}', '{"nn":"y"}'), ('{"unheard":"x"}', '{"unheard":null}')],
)
def test_a_value_is_invented_where_ours_is_null_beside_it(theirs: str, ours: str) -> None:
    assert by(theirs, ours, op="d", side="before") == []


def test_a_key_is_no_old_row() -> None:
    theirs, ours = (record(ROW, op="d", side="before", key=key) for key in ('{"nn":""}', '{"nn":null}'))
    (found,) = differences("readable", [(theirs, ours)], {"public.t": facts()})
    assert explained_by(RULES, found) == []


def test_a_name_is_text() -> None:
    assert by('{"nm":""}', '{"nm":"n"}') == ["D5"]
    assert by('{"nm":null}', '{"nm":1}') == []


def test_of_two_truncates_the_key_alone_may_differ() -> None:
    ours = record("null", op="t", key='{"__truncate":"t"}')
    theirs = record("null", op="t", key="null")
    assert [explained_by(RULES, d) for d in differences("readable", [(theirs, ours)], {})] == [["D23"]]
    other = replace(ours, value=parse('{"after":1,"source":{"snapshot":"false"},"op":"t"}'))
    assert [explained_by(RULES, d) for d in differences("readable", [(ours, other)], {})] == [[]]


@pytest.mark.parametrize(("digits", "rules"), [(0, ["D6"]), (3, ["D6"]), (4, []), (6, [])])
def test_a_snapshot_shifts_days_in_the_unit_of_their_precision(digits: int, rules: list[str]) -> None:
    """Up to three digits a timestamp is in milliseconds, else in microseconds: then this is a day of 1978."""
    year_10000_ms = 2_932_897 * 86_400_000
    theirs, ours = (record(f'{{"x":{number}}}', op="r") for number in (0, year_10000_ms))
    known = history(column("x", "timestamp", typmod=digits))
    (found,) = differences("debezium", [(theirs, ours)], {"public.t": known})
    assert explained_by(RULES, found) == rules


def test_the_last_moment_of_a_day_has_a_zone_too() -> None:
    assert by('{"tz24":"00:00:00Z"}', '{"tz24":"24:00:00Z"}', column("tz24", "timetz")) == ["D19"]


INEXACT = (
    *("time", "timetz", "timestamp", "timestamptz", "date", "interval"),
    *("money", "name", "other", "xml", "varbit"),
)


@pytest.mark.parametrize("kind", INEXACT)
def test_h180_elements_of_these_types_are_inexact(kind: str) -> None:
    (found,) = found_in('{"x":["a"]}', '{"x":["b"]}', column("x", kind, array=True))
    assert explained_by(RULES, found) == ["D7"]
    assert undecided(RULES, found) is True
    assert by('{"x":["a"]}', '{"x":"b"}', column("x", kind, array=True)) == []
    assert by('{"x":"a"}', '{"x":["b"]}', column("x", kind)) == []


@pytest.mark.parametrize(
    ("theirs", "ours", "op", "rules"),
    [
        ("{}", '{"ti":["10:00:00Z"]}', "c", ["D2"]),
        ('{"fa":[[1.0E10]]}', '{"fa":[[10000000000]]}', "c", ["D21"]),
        ('{"ti":["__debezium_unavailable_value"]}', '{"ti":["10:00:00Z","11:00:00Z"]}', "u", ["D18"]),
        (f'{{"oa":"{BASE64}"}}', '{"oa":["a","b"]}', "c", ["D2"]),
    ],
)
def test_h180_an_array_that_another_rule_explains_is_its(theirs: str, ours: str, op: str, rules: list[str]) -> None:
    assert by(theirs, ours, OTHER_ARRAY, column("fa", "float8", array=True), op=op) == rules


@pytest.mark.parametrize(
    ("scale", "digits", "rules"), [(-2, 47, ["D8"]), (-2, 46, []), (-1, 47, ["D8"]), (0, 300, []), (1, 300, [])]
)
def test_digits_are_too_many_where_the_scale_is_negative(scale: int, digits: int, rules: list[str]) -> None:
    """More than eight times as long as ours, with its quotes."""
    assert by(f'{{"ns":"{"9" * digits}"}}', '{"ns":"1200"}', scaled("ns", scale)) == rules


@pytest.mark.parametrize(
    ("theirs", "open_"), [("1200." + "0" * 300, False), ("1300." + "0" * 300, True), ("A" * 300, True)]
)
def test_a_value_of_negative_scale_is_open_unless_it_is_ours(theirs: str, open_: bool) -> None:
    (found,) = found_in(f'{{"ns":"{theirs}"}}', '{"ns":"1200"}', scaled("ns", -2))
    assert explained_by(RULES, found) == ["D8"]
    assert undecided(RULES, found) is open_


UUIDS = column("ua", "uuid", array=True)
HIDDEN = "__debezium_unavailable_value"


@pytest.mark.parametrize(
    ("theirs", "ours", "rules"),
    [
        ('{"ua":["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]}', '{"ua":["00000000-0000-0000-0000-000000000001"]}', ["D18"]),
        (f'{{"h":"{{\\"{HIDDEN}\\":\\"{HIDDEN}\\"}}"}}', '{"h":"{}"}', ["D18"]),
        (f'{{"unheard":"{HIDDEN}"}}', '{"unheard":"x"}', []),
        ('{"num":"1"}', f'{{"num":"{LONG}"}}', []),
        ('{"at":null}', f'{{"at":["{LONG}"]}}', ["D18"]),
        ('{"t":null}', f'{{"t":"{LONG}"}}', []),
    ],
)
def test_h38_an_unchanged_value_has_a_placeholder_of_its_type(theirs: str, ours: str, rules: list[str]) -> None:
    assert by(theirs, ours, UUIDS, op="u") == rules


@pytest.mark.parametrize("kind", ["numeric", "bytea", "json", "jsonb", "hstore", "vector", "halfvec", "sparsevec"])
def test_h38_large_types_without_placeholder_come_as_null(kind: str) -> None:
    assert by('{"x":null}', f'{{"x":"{LONG}"}}', column("x", kind), op="u") == ["D18"]


def test_netting_moves_whole_records_and_no_values() -> None:
    (found,) = found_in('{"big":1}', '{"big":2}', known=facts(deferrable_key=True))
    assert explained_by(RULES, found) == []
    assert explained_by(RULES, replace(found, path=("order",))) == ["D20"]
    assert explained_by(RULES, replace(found, path=("partition",))) == []


@pytest.mark.parametrize("kind", ["float4", "float8", "point", "circle", "line", "vector", "halfvec", "sparsevec"])
def test_floats_of_these_types_are_printed_otherwise(kind: str) -> None:
    assert by('{"x":[1.0E10]}', '{"x":[10000000000]}', column("x", kind)) == ["D21"]
    assert by('{"x":[1.0E10]}', '{"x":[10000000001]}', column("x", kind)) == []


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ('{"f":3.4028235E38}', '{"f":3.4028234e+38}'),
        ('{"r":null}', '{"r":1.5}'),
        ('{"r":1.5}', '{"r":null}'),
        ('{"num":1.0E10}', '{"num":10000000000}'),
    ],
)
def test_only_a_float4_has_single_precision(theirs: str, ours: str) -> None:
    assert by(theirs, ours) == []


ONE, TWO, OTHER = (text.replace('"', '\\"') for text in ('{"a":"1","b":"2"}', '{"b":"2","a":"1"}', '{"a":"3"}'))


@pytest.mark.parametrize(
    ("theirs", "ours", "rules"),
    [
        (f'["{ONE}","{OTHER}"]', f'["{TWO}","{OTHER}"]', ["D22"]),
        (f'["{ONE}","{OTHER}"]', f'["{TWO}","{ONE}"]', []),
        ('["a"]', '"a"', []),
        ('"a"', '["a"]', []),
    ],
)
def test_every_hstore_of_an_array_has_the_same_members(theirs: str, ours: str, rules: list[str]) -> None:
    assert by(f'{{"ah":{theirs}}}', f'{{"ah":{ours}}}') == rules


@pytest.mark.parametrize("marker", ["first", "first_in_data_collection", "last_in_data_collection", "last"])
def test_a_marker_of_a_snapshots_row_is_one_of_five(marker: str) -> None:
    one, two = (
        replace(record(ROW, op="r"), value=parse(f'{{"source":{{"snapshot":"{word}"}},"op":"r"}}'))
        for word in ("true", marker)
    )
    (found,) = differences("readable", [(one, two)], {})
    assert explained_by(RULES, found) == ["D24"]
    assert by('{"t":"true"}', f'{{"t":"{marker}"}}') == []


# -- tables keyed by an identity index


def keyed(theirs: str, ours: str, after: str = '{"id":1,"big":7}') -> list[list[str]]:
    one, two = (
        ComparedRecord(table="public.t", key=parse(key), value=parse(f'{{"op":"c","after":{after}}}'), headers=())
        for key in (theirs, ours)
    )
    return [explained_by(RULES, d) for d in differences("readable", [(one, two)], {"public.t": by_index()})]


@pytest.mark.parametrize(
    ("theirs", "ours", "rules"),
    [
        ('{"id":1}', '{"big":7}', [["D9"], ["D9"]]),
        ('{"id":1}', '{"unheard":7}', [["D9"], []]),
        ('{"unheard":1}', "{}", [[]]),
        ('{"id":1}', '{"id":2}', [[]]),
    ],
)
def test_a_key_is_of_the_indexs_columns_alone(theirs: str, ours: str, rules: list[list[str]]) -> None:
    assert keyed(theirs, ours) == rules


def test_a_key_is_free_where_debeziums_row_lacks_its_column() -> None:
    assert keyed('{"id":1}', '{"big":9}', after='{"id":1}') == [["D9"], ["D9"]]
    assert keyed('{"id":1}', '{"big":9}') == [["D9"], []]


def test_an_old_row_by_an_index_lacks_known_columns_alone() -> None:
    pair = (record('{"unheard":1}', op="u", side="before"), record('{"unheard":null}', op="u", side="before"))
    (found,) = differences("readable", [pair], {"public.t": by_index()})
    assert explained_by(RULES, found) == []


def test_one_of_the_records_beside_has_to_be_of_the_same_row() -> None:
    (made,) = differences("readable", [(record(ROW, op="c"), None)], {"public.t": facts(identity=Identity.INDEX)})
    beside = (record('{"id":2}', op="u"), record(ROW, op="u"))
    assert explained_by(RULES, replace(made, beside=beside)) == ["D9"]
    assert explained_by(RULES, replace(made, beside=beside[:1])) == []


@pytest.mark.parametrize(
    ("theirs", "ours", "leaf", "rules"),
    [("r", None, True, ["D13"]), ("r", None, False, []), (None, "r", True, []), ("c", None, True, [])],
)
def test_only_a_snapshots_row_of_a_partition_may_be_theirs_alone(
    theirs: str | None, ours: str | None, leaf: bool, rules: list[str]
) -> None:
    pair = record(ROW, op=theirs) if theirs else None, record(ROW, op=ours) if ours else None
    assert [explained_by(RULES, d) for d in differences("readable", [pair], {"public.t": facts(leaf=leaf)})] == [rules]


# -- headers and fields of our own


def by_headers(
    theirs: Sequence[tuple[str, str]], ours: Sequence[tuple[str, str]], known: TableHistory | None = None
) -> list[list[str]]:
    pair = headers(*theirs), headers(*ours)
    return [explained_by(RULES, d) for d in differences("readable", [pair], {"public.t": known} if known else {})]


@pytest.mark.parametrize(
    ("ours", "rules"),
    [
        (("seen_lsn", "7"), ["D14"]), (("seen_lsn", "x"), []), (("ver", "7"), ["D14"]), (("ver", "x"), []),
        (("op", "d"), ["D14"]), (("surprise", "d"), []), (("pos", "any"), ["D14"]),
    ],
)  # fmt: skip
def test_a_tombstone_has_headers_of_ours(ours: tuple[str, str], rules: list[str]) -> None:
    """Of an unknown table: every version may be one."""
    assert by_headers([], [ours]) == [rules]


def test_only_a_tombstone_says_in_a_header_when_it_was_seen() -> None:
    row = record(ROW)
    (found,) = differences("readable", [(row, replace(row, headers=(("seen_lsn", "7"),)))], {})
    assert explained_by(RULES, found) == []


RAW, ESCAPED, KEY = '{"id":"a\nb"}', '{"id":"a\\nb"}', '{"id":"c"}'
NEW, OLD = "__debezium.newkey", "__debezium.oldkey"


@pytest.mark.parametrize(
    ("theirs", "ours", "rules"),
    [
        ([(NEW, RAW)], [(NEW, ESCAPED)], [["D14"]]),
        ([("other", RAW)], [("other", ESCAPED)], [[]]),
        ([(NEW, RAW), (OLD, KEY)], [(OLD, KEY), (NEW, ESCAPED)], [["D14"]]),
        ([(NEW, RAW), (OLD, RAW)], [(OLD, KEY), (NEW, ESCAPED)], [[]]),
        ([(NEW, KEY), (OLD, ROW)], [(OLD, ROW), (NEW, KEY)], [[]]),
    ],
)
def test_keys_in_headers_differ_by_their_escapes_alone(
    theirs: list[tuple[str, str]], ours: list[tuple[str, str]], rules: list[list[str]]
) -> None:
    assert by_headers(theirs, ours, by_index()) == rules


@pytest.mark.parametrize(
    ("theirs", "ours", "rules"),
    [
        ('{"source":null,"op":"c"}', '{"source":{"version":"1"},"op":"c"}', [[]]),
        ('{"after":{"version":"1"},"op":"c"}', '{"after":{"version":"2"},"op":"c"}', [[]]),
        ('{"source":{"version":{"a":"1"}}}', '{"source":{"version":{"a":"2"}}}', [[]]),
        ('{"source":{"version":"1"}}', '{"source":{"version":"2"}}', [["D15"]]),
        ('{"source":{}}', '{"source":{"other":7}}', [[]]),
        ('{"source":{}}', '{"source":{"reselected":{"columns":["t"],"seen_lsn":7}}}', [["D15"]]),
        ('{"source":{}}', '{"source":{"reselected":{"columns":["t","none"],"seen_lsn":7}}}', [[]]),
        ('{"source":{}}', '{"source":{"reselected":{"columns":"t","seen_lsn":7}}}', [[]]),
        ('{"source":{}}', '{"source":{"reselected":{"columns":["t"],"seen_lsn":"7"}}}', [[]]),
    ],
)
def test_fields_of_our_own_stand_in_source_and_are_what_they_say(
    theirs: str, ours: str, rules: list[list[str]]
) -> None:
    one, two = (ComparedRecord(table="public.t", key=None, value=parse(text), headers=()) for text in (theirs, ours))
    assert [explained_by(RULES, d) for d in differences("readable", [(one, two)], {"public.t": facts()})] == rules


@pytest.mark.parametrize(("columns", "rules"), [('["any"]', ["D15"]), ("[1]", [])])
def test_v25_any_column_may_be_one_of_an_unknown_table(columns: str, rules: list[str]) -> None:
    own = Object((("reselected", parse(f'{{"columns":{columns},"seen_lsn":7}}')),))
    one, two = (
        ComparedRecord(table="public.t", key=None, value=Object((("source", source),)), headers=())
        for source in (Object(()), own)
    )
    assert [explained_by(RULES, d) for d in differences("readable", [(one, two)], {})] == [rules]
