"""A comparison counts what is equal, and shows its first faults."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from cdc.comparison.compared_record import ComparedRecord
from cdc.comparison.lossless import parse
from cdc.comparison.verdict import Comparison, TableVerdict, judge
from tests.unit.cdc.comparison.test_rules import facts


def row(text: str, offset: int = 0, key: int = 1) -> ComparedRecord:
    source = f'{{"version":"3.7.0.Final","lsn":{offset}}}'
    value = parse(f'{{"after":{text},"source":{source},"op":"c"}}')
    return ComparedRecord(table="public.t", key=parse(f'{{"id":{key}}}'), value=value, headers=(), place=(0, offset))


HEADERS = (("op", "c"), ("ver", "1"))


def own(record: ComparedRecord, version: str) -> ComparedRecord:
    source = parse(f'{{"version":"{version}","lsn":{record.place[1]}}}')
    assert record.value is not None
    return replace(record, value=record.value.replaced({"source": source}))  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("ours", "equal", "rules"),
    [
        (row('{"f":1.0E10}'), 1, {}),
        (replace(row('{"f":1.0E10}'), headers=HEADERS), 1, {"D14": 2}),
        (own(row('{"f":1.0E10}'), "0.2.0"), 1, {"D15": 1}),
        (replace(own(row('{"f":1.0E10}'), "0.2.0"), headers=HEADERS), 1, {"D14": 2, "D15": 1}),
        (row('{"f":10000000000}'), 0, {"D21": 1}),
        (replace(row('{"f":10000000000}'), headers=HEADERS), 0, {"D14": 2, "D21": 1}),
    ],
)
def test_records_that_differ_in_our_own_fields_alone_are_equal(
    ours: ComparedRecord, equal: int, rules: dict[str, int]
) -> None:
    found = judge("public.t", "readable", [row('{"f":1.0E10}')], [ours], {"public.t": facts()})
    assert (found.equal, found.by_rule, found.unexplained) == (equal, Counter(rules), 0)


def test_an_order_that_no_rule_explains_is_unexplained() -> None:
    theirs = [row("{}", 1), replace(row("{}", 2), place=(0, 2))]
    ours = [replace(theirs[1], place=(0, 1)), replace(theirs[0], place=(0, 2))]
    found = judge("public.t", "readable", theirs, ours, {})
    assert (found.equal, found.unexplained) == (2, 1)
    assert found.words == ('public.t c {"id":1} order: Debezium 1 | ours 2',)


def test_the_first_twenty_faults_are_shown_and_all_are_counted() -> None:
    theirs = [row('{"t":"a"}', number, number) for number in range(25)]
    ours = [row('{"t":"b"}', number, number) for number in range(25)]
    found = judge("public.t", "readable", theirs, ours, {"public.t": facts()})
    assert found.unexplained == 25
    assert [word.partition(" value")[0] for word in found.words] == [f'public.t c {{"id":{n}}}' for n in range(20)]


def test_a_document_says_why_each_rule_is_one() -> None:
    verdict = TableVerdict(table="a", theirs=1, ours=1, equal=0, by_rule=Counter({"D4": 1}), unexplained=0)
    document = Comparison(encoding="readable", begin=1, end=2, verdicts=(verdict,)).document()
    assert document["rules"] == {"D4": {"reason": "special numerics are words", "differences": 1}}
    assert (document["undecided"], document["tables"][0]["undecided"]) == (0, 0)
