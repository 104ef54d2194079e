"""What Debezium's values leave open is decided by the source's row, or by the record before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from cdc.comparison.compared_record import ComparedRecord, TableHistory
from cdc.comparison.lossless import Json, parse
from cdc.comparison.verdict import TableVerdict, judge
from cdc.comparison.witness import Place
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
        (Source(), 0, 1),
        (None, 0, 1),
    ],
    ids=["same", "another", "changed since", "no witness"],
)
def test_the_first_of_a_key_is_compared_with_the_source(source: Source | None, unexplained: int, left: int) -> None:
    found = judged([of(2, "u", f'"{HIDDEN}"')], [of(2, "u", '"long"')], source)
    assert (found.unexplained, found.undecided) == (unexplained, left)


@pytest.mark.parametrize(("row", "unexplained"), [('{"id":1,"t":"b"}', 0), ('{"id":1,"t":"a"}', 1)])
def test_netted_records_end_as_the_source(row: str, unexplained: int) -> None:
    theirs = [of(1, "c", '"a"'), of(2, "u", '"b"')]
    found = judged(theirs, [of(2, "u", '"b"')], Source(_1=row), facts(deferrable_key=True))
    assert (found.unexplained, found.undecided) == (unexplained, 0)
