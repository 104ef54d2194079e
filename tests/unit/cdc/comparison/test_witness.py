"""What Debezium's values leave open is decided by the source's row, or by the record before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from cdc.comparison.compared_record import ComparedRecord, TableHistory
from cdc.comparison.lossless import Json, parse
from cdc.comparison.verdict import TableVerdict, judge
from cdc.comparison.witness import Place
from cdc.schema import Identity
from tests.unit.cdc.comparison.test_rules import facts

HIDDEN = "__debezium_unavailable_value"


class Source:
    """Rows by id."""

    def __init__(self, **rows: str) -> None:
        self._rows = rows

    def rows(self, records: Sequence[ComparedRecord]) -> Mapping[Place, Json]:
        return {r.place: parse(self._rows[i]) for r in records for i in self._rows if f"{r.key}".find(f"'{i[1:]}'") > 0}


def of(offset: int, op: str, text: str, *, key: str = '{"id":1}') -> ComparedRecord:
    body = f'{{"after":{{"id":1,"t":{text}}},"source":{{"txId":{offset},"lsn":{offset}}},"op":"{op}"}}'
    return ComparedRecord(table="public.t", key=parse(key), value=parse(body), headers=(), place=(0, offset))


def judged(
    theirs: Sequence[ComparedRecord],
    ours: Sequence[ComparedRecord],
    source: Source | None = None,
    known: TableHistory | None = None,
) -> TableVerdict:
    return judge("public.t", "readable", theirs, ours, {"public.t": known or facts()}, source)


@pytest.mark.parametrize(
    ("second", "unexplained"), [('"long"', 0), ('"another"', 1), ("null", 1)], ids=["same", "another", "null"]
)
def test_an_unchanged_value_is_that_of_the_record_before(second: str, unexplained: int) -> None:
    theirs = [of(1, "c", '"long"'), of(2, "u", f'"{HIDDEN}"')]
    found = judged(theirs, [of(1, "c", '"long"'), of(2, "u", second)])
    assert (found.unexplained, found.undecided) == (unexplained, 0)


@pytest.mark.parametrize(
    ("source", "unexplained", "left"),
    [
        (Source(_1='{"id":1,"t":"long"}'), 0, 0),
        (Source(_1='{"id":1,"t":"another"}'), 1, 0),
        (Source(_1='{"id":1}'), 0, 1),
        (Source(_1=f'{{"id":1,"t":"{HIDDEN}"}}'), 0, 1),
        (Source(_1="null"), 0, 1),
        (Source(), 0, 1),
        (None, 0, 1),
    ],
    ids=["same", "another", "no such column", "not readable", "gone", "changed since", "no witness"],
)
def test_the_first_of_a_key_is_compared_with_the_source(source: Source | None, unexplained: int, left: int) -> None:
    found = judged([of(2, "u", f'"{HIDDEN}"')], [of(2, "u", '"long"')], source)
    assert (found.unexplained, found.undecided) == (unexplained, left)


@pytest.mark.parametrize(("row", "unexplained"), [('{"id":1,"t":"b"}', 0), ('{"id":1,"t":"a"}', 1)])
def test_netted_records_end_as_the_source(row: str, unexplained: int) -> None:
    theirs = [of(1, "c", '"a"'), of(2, "u", '"b"')]
    found = judged(theirs, [of(2, "u", '"b"')], Source(_1=row), facts(deferrable_key=True))
    assert (found.unexplained, found.undecided) == (unexplained, 0)


def test_the_record_before_judges_unchanged_values_alone() -> None:
    """A column that became NULL: what it was says nothing of it."""
    first = of(1, "c", '"long"')
    found = judged([first, of(2, "u", '"default"')], [first, of(2, "u", "null")])
    assert (found.by_rule["D1"], found.unexplained, found.undecided) == (1, 0, 1)


def test_a_placeholder_of_ours_is_left_to_the_source() -> None:
    """The record before has the value; that ours lacks it here is what the source decides."""
    records = [of(1, "c", '"long"'), of(2, "u", f'"{HIDDEN}"')]
    found = judged(records, records)
    assert (found.by_rule["D18"], found.unexplained, found.undecided) == (1, 0, 1)
    found = judged(records, records, Source(_1='{"id":1,"t":"long"}'))
    assert (found.unexplained, found.undecided) == (1, 0)


@pytest.mark.parametrize(("row", "unexplained"), [('{"id":1,"t":"c"}', 0), ('{"id":1,"t":"a"}', 1)])
def test_an_order_that_netting_changed_ends_as_the_source(row: str, unexplained: int) -> None:
    """The last record of the key counts, not the one that is out of order."""
    theirs = [of(1, "u", '"a"'), of(2, "u", '"b"'), of(3, "u", '"c"')]
    ours = [replace(theirs[1], place=(0, 1)), replace(theirs[0], place=(0, 2)), theirs[2]]
    found = judged(theirs, ours, Source(_1=row), facts(deferrable_key=True))
    assert (found.by_rule["D20"], found.unexplained, found.undecided) == (1 - unexplained, unexplained, 0)


class Asked(Source):
    """Remembers for which records it was asked."""

    def __init__(self, **rows: str) -> None:
        super().__init__(**rows)
        self.places: list[Place] = []

    def rows(self, records: Sequence[ComparedRecord]) -> Mapping[Place, Json]:
        self.places += [record.place for record in records]
        return super().rows(records)


def test_only_what_is_open_is_asked_of_the_source() -> None:
    theirs = [of(1, "c", '"a"'), of(2, "u", f'"{HIDDEN}"', key='{"id":2}'), of(3, "d", '"a"', key='{"id":3}')]
    ours = [of(1, "c", '"b"'), of(2, "u", '"long"', key='{"id":2}'), of(3, "d", '"a"', key='{"id":3}')]
    source = Asked(_1='{"id":1,"t":"a"}', _2='{"id":1,"t":"long"}')
    found = judged(theirs, ours, source)
    assert source.places == [(0, 2)]
    assert (found.equal, found.unexplained, found.undecided) == (1, 1, 0)
    asked = Asked()
    assert judged(theirs[:1], theirs[:1], asked).equal == 1
    assert asked.places == []


def moved(op: str, lsn: int, key: str, *, xid: int = 1) -> ComparedRecord:
    after = "null" if op == "d" else '{"id":2,"t":"a"}'
    body = f'{{"after":{after},"source":{{"txId":{xid},"lsn":{lsn}}},"op":"{op}"}}'
    return ComparedRecord(table="public.t", key=parse(key), value=parse(body), headers=(), place=(0, lsn))


@pytest.mark.parametrize(
    ("ours", "unexplained"),
    [
        ([moved("u", 5, '{"t":"k"}')], 0),
        ([moved("u", 6, '{"t":"k"}')], 3),
        ([moved("u", 5, '{"t":"k"}', xid=2)], 3),
        ([], 2),
    ],
    ids=["the same change", "another change of its transaction", "another transaction", "none"],
)
def test_a_move_of_one_key_stands_beside_the_others_change(ours: list[ComparedRecord], unexplained: int) -> None:
    """By the primary key a row moves: a delete and an insert. By the identity index it stays: an update."""
    theirs = [moved("d", 5, '{"id":1}'), moved("c", 5, '{"id":2}')]
    assert judged(theirs, ours, known=facts(identity=Identity.INDEX)).unexplained == unexplained
    assert judged(ours, theirs, known=facts(identity=Identity.INDEX)).unexplained == unexplained
