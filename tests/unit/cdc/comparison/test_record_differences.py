"""The places where two records differ, and what a difference says of itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.comparison.compared_record import ComparedRecord
from cdc.comparison.differences import RecordDifference, differences, explained_by, undecided
from cdc.comparison.lossless import Json, parse
from cdc.comparison.rules import RULES
from tests.unit.cdc.comparison.test_rules import facts, record

HIDDEN = "__debezium_unavailable_value"


def made(key: str | None, value: str | None, *headers: tuple[str, str]) -> ComparedRecord:
    def read(text: str | None) -> Json:
        return None if text is None else parse(text)

    return ComparedRecord(table="public.t", key=read(key), value=read(value), headers=headers)


def differing(one: ComparedRecord | None, two: ComparedRecord | None) -> list[RecordDifference]:
    return list(differences("readable", [(one, two)], {"public.t": facts()}))


@pytest.mark.parametrize(
    ("one", "two", "paths"),
    [
        (made('{"id":1}', None), made('{"id":2}', None), ["key.id"]),
        (made(None, None), made('{"id":1}', None), ["key"]),
        (made('{"id":1}', None), made('"text"', None), ["key"]),
        (made(None, '{"a":1}'), made(None, None), ["value"]),
        (made(None, '{"a":1,"b":2}'), made(None, '{"b":2,"a":1}'), ["value"]),
        (made(None, '{"a":1,"b":2}'), made(None, '{"a":2,"c":3}'), ["value.a", "value.b", "value.c"]),
        (made(None, None), made(None, None, ("pos", "1")), ["headers.pos"]),
        (made(None, None), None, [""]),
    ],
)
def test_the_path_of_a_difference_is_the_narrowest(
    one: ComparedRecord, two: ComparedRecord | None, paths: list[str]
) -> None:
    assert [".".join(found.path) for found in differing(one, two)] == paths
    assert sorted(".".join(found.path) for found in differing(two, one)) == paths


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        (f'{{"after":{{"t":"{HIDDEN}"}}}}', [("value", "after", "t")]),
        (f'{{"after":"{HIDDEN}"}}', [("value", "after")]),
        (f'{{"before":{{"t":"{HIDDEN}"}}}}', []),
        (f'{{"note":"{HIDDEN}"}}', []),
        ('{"after":{"t":"x"}}', []),
    ],
)
def test_h38_a_placeholder_of_both_in_the_row_lacks_a_value(text: str, paths: list[tuple[str, ...]]) -> None:
    assert [found.path for found in differing(made(None, text), made(None, text))] == paths


@pytest.mark.parametrize(
    ("one", "two", "column"),
    [
        (made('{"id":1}', None), made('{"id":2}', None), "id"),
        (made('{"id":1}', None), made(None, None), None),
        (made(None, '{"before":{"t":"a"}}'), made(None, '{"before":{"t":"b"}}'), "t"),
        (made(None, '{"source":{"t":"a"}}'), made(None, '{"source":{"t":"b"}}'), None),
        (made(None, '{"t":"a"}'), made(None, '{"t":"b"}'), None),
        (made(None, None), None, None),
    ],
)
def test_a_column_is_one_of_a_key_or_a_row(one: ComparedRecord, two: ComparedRecord | None, column: str | None) -> None:
    (found,) = differing(one, two)
    assert found.in_row is (column is not None)
    assert (found.column.name if found.column else None, found.table) == (column, "public.t")


def test_long_values_are_cut_in_words() -> None:
    (found,) = differing(record(f'{{"t":"{"a" * 400}"}}'), record('{"t":"b"}'))
    assert str(found) == f'public.t c {{"id":1}} value.after.t: Debezium "{"a" * 299} | ours "b"'


def test_the_source_decides_only_where_debeziums_value_does_not() -> None:
    """A float that is printed otherwise is right by its bits, whatever the row has by now."""
    (found,) = differing(record('{"f":1.0E10}'), record('{"f":10000000000}'))
    assert undecided(RULES, found) is False
    assert explained_by(RULES, replace(found, source=parse("2.5"))) == ["D21"]


@pytest.mark.parametrize(
    ("theirs", "ours", "rule", "open_"),
    [
        ('{"t":"default"}', '{"t":null}', "D1", False),
        ('{"nm":null}', '{"nm":"n"}', "D5", True),
    ],
)
def test_an_old_rows_null_claims_nothing(theirs: str, ours: str, rule: str, open_: bool) -> None:
    (found,) = differing(record(theirs, op="u", side="before"), record(ours, op="u", side="before"))
    assert explained_by(RULES, found) == [rule]
    assert undecided(RULES, found) is open_
