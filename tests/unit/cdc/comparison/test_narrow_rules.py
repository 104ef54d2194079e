"""Rules at their borders: what just is a difference on purpose, and what beside it is not."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from cdc.comparison.commit_window import CommitWindow, comparable
from cdc.comparison.compared_record import ComparedRecord, TableHistory
from cdc.comparison.differences import RecordDifference, differences, explained_by
from cdc.comparison.lossless import ABSENT, parse, show
from cdc.comparison.pairing import Told, paired
from cdc.comparison.rules import RULES
from cdc.comparison.verdict import Comparison, TableVerdict, judge
from cdc.position import SNAPSHOT_SEQ, Position
from cdc.schema import Identity
from tests.unit.cdc.comparison.test_rules import COLUMNS, column, facts, record

DAY_MS, DAY_US = 86_400_000, 86_400_000_000
MORE = (
    *COLUMNS,
    column("d", "date"),
    column("ts3", "timestamp", typmod=3),
    column("tz", "timestamptz"),
    column("v", "vector"),
    column("dom", "text", type_oid=16384),
    column("known", "text", type_oid=16383),
    column("ah", "hstore", array=True),
)


def explained(
    theirs: str,
    ours: str,
    *,
    op: str = "c",
    side: str = "after",
    encoding: str = "readable",
    known: TableHistory | None = None,
) -> list[list[str]]:
    history = known or facts()
    history = replace(history, schemas=(replace(history.schemas[0], columns=MORE),))
    pairs = [(record(theirs, op=op, side=side), record(ours, op=op, side=side))]
    return [explained_by(RULES, found) for found in differences(encoding, pairs, {"public.t": history})]


@pytest.mark.parametrize(
    ("name", "day", "unit"),
    [("d", 1, 1), ("ts3", DAY_MS, DAY_MS), ("ts", DAY_US, DAY_US), ("tz", DAY_US, DAY_US)],
)
def test_a_snapshot_shifts_days_before_and_behind_the_calendar(name: str, day: int, unit: int) -> None:
    for shifted, rule in ((-141_062, ["D6"]), (-141_061, []), (2_932_896, []), (2_932_897, ["D6"])):
        theirs, ours = f'{{"{name}":{shifted * day - 10 * unit}}}', f'{{"{name}":{shifted * unit}}}'
        assert explained(theirs, ours, op="r", encoding="debezium") == [rule], shifted
        assert explained(theirs, ours, op="c", encoding="debezium") == [[]], "a change is never shifted"


@pytest.mark.parametrize(
    ("ours", "rule"),
    [
        ("1582-12-31Z", ["D6"]), ("1583-01-01Z", []), ("0001-01-01Z", ["D6"]), ("-0043-03-15Z", ["D6"]),
        ("+10000-01-01Z", ["D6"]), ("infinity", ["D6"]), ("-infinity", ["D6"]),
    ],
)  # fmt: skip
def test_a_snapshot_shifts_dates_before_the_reform(ours: str, rule: list[str]) -> None:
    assert explained('{"d":"1990-01-01Z"}', f'{{"d":"{ours}"}}', op="r") == [rule]


def test_infinity_is_a_word_where_values_are_readable_alone() -> None:
    for name in ("d", "ts", "tz"):
        for word in ("infinity", "-infinity"):
            assert explained(f'{{"{name}":"x"}}', f'{{"{name}":"{word}"}}') == [["D6"]]
            assert explained(f'{{"{name}":"x"}}', f'{{"{name}":"{word}"}}', encoding="debezium") == [[]]
    assert explained('{"t":"x"}', '{"t":"infinity"}') == [[]]
    assert explained('{"d":"x"}', '{"d":true}', op="r") == [[]]


@pytest.mark.parametrize(
    ("name", "invented", "rule"),
    [
        ("dom", '""', ["D3"]), ("dom", "false", ["D3"]), ("dom", "0", ["D3"]), ("dom", '"x"', []), ("known", '""', []),
        ("nn", '"x"', ["D3"]), ("id", "0", []),
    ],
)  # fmt: skip
def test_an_old_row_by_key_has_no_invented_value(name: str, invented: str, rule: list[str]) -> None:
    theirs, ours = f'{{"{name}":{invented}}}', f'{{"{name}":null}}'
    assert explained(theirs, ours, op="d", side="before") == [rule]
    assert explained(theirs, ours, op="u", side="before") == [[]]
    by_index = facts(identity=Identity.INDEX)
    assert all("D3" not in names for names in explained(theirs, ours, op="d", side="before", known=by_index))


def test_a_null_is_no_default_in_the_old_row_of_a_delete_by_key() -> None:
    history = replace(facts(), defaults=frozenset(("t", "nn")))
    assert explained('{"t":"x"}', '{"t":null}', op="d", side="before", known=history) == [["D1"]]
    assert explained('{"nn":"x"}', '{"nn":null}', op="d", side="before", known=history) == [["D3"]]
    assert explained('{"nn":"x"}', '{"nn":null}', op="u", side="before", known=history) == [["D1"]]
    assert explained("{}", '{"t":null}', known=history) == [[]]
    assert explained('{"t":"x"}', '{"t":"y"}', known=history) == [[]]


LARGE = '"' + "x" * 99 + '"'


@pytest.mark.parametrize("name", ["num", "v"])
def test_only_a_large_value_stands_beside_a_null(name: str) -> None:
    assert len(LARGE) == 101
    assert explained(f'{{"{name}":null}}', f'{{"{name}":{LARGE}}}', op="u") == [["D18"]]
    assert explained(f'{{"{name}":null}}', f'{{"{name}":"{LARGE[2:]}}}', op="u") == [[]]
    assert explained(f'{{"{name}":null}}', f'{{"{name}":{LARGE}}}', op="c") == [[]]
    assert explained('{"t":null}', f'{{"t":{LARGE}}}', op="u") == [[]]


@pytest.mark.parametrize("op", ["c", "u", "d", "r"])
def test_a_placeholder_stands_in_changes_alone(op: str) -> None:
    placeholder = '{"t":"__debezium_unavailable_value"}'
    assert explained(placeholder, '{"t":"x"}', op=op) == [["D18"] if op in "cu" else []]


def test_members_of_an_hstore_have_no_order_in_arrays_either() -> None:
    one, two = r'"{\"a\":\"1\",\"b\":\"2\"}"', r'"{\"b\":\"2\",\"a\":\"1\"}"'
    assert explained(f'{{"h":{one}}}', f'{{"h":{two}}}') == [["D22"]]
    assert "D22" in explained(f'{{"ah":[{one}]}}', f'{{"ah":[{two}]}}')[0]
    assert "D22" not in explained(f'{{"ah":[{one}]}}', f'{{"ah":[{two},{two}]}}')[0]
    assert explained(f'{{"t":{one}}}', f'{{"t":{two}}}') == [[]]


def test_the_last_moment_of_a_day_is_a_time_of_its_own() -> None:
    zoned = facts()
    assert explained('{"tm":"00:00:00Z"}', '{"tm":"24:00:00Z"}', known=zoned) == [["D19"]]
    assert explained('{"tm":"00:00:00Z"}', '{"tm":"24:00:01Z"}') == [[]]
    assert explained('{"tm":"01:00:00Z"}', '{"tm":"24:00:00Z"}') == [[]]
    assert explained('{"tm":"00:00:00Z"}', '{"tm":"24:00:00Z"}', encoding="debezium") == [[]]


def headers(*pairs: tuple[str, str]) -> ComparedRecord:
    return ComparedRecord(table="public.t", key=parse('{"big":1}'), value=None, headers=pairs)


def by_index() -> TableHistory:
    found = facts(identity=Identity.INDEX)
    columns = tuple(replace(c, key_position={"big": 1}.get(c.name)) for c in COLUMNS)
    return replace(found, schemas=(replace(found.schemas[0], columns=columns),))


def test_a_key_in_a_header_is_that_of_the_identity_index() -> None:
    def names(theirs: ComparedRecord, ours: ComparedRecord) -> list[list[str]]:
        return [explained_by(RULES, d) for d in differences("readable", [(theirs, ours)], {"public.t": by_index()})]

    by_primary_key = headers(("__debezium.newkey", '{"id":1}'))
    assert names(by_primary_key, headers(("__debezium.newkey", '{"big":7}'))) == [["D9"]]
    assert names(by_primary_key, headers()) == [["D9"]], "a move that the other key does not make"
    assert names(by_primary_key, headers(("__debezium.newkey", '{"id":7}'))) == [[]]
    assert names(by_primary_key, headers(("__debezium.newkey", "no key"))) == [[]]
    assert names(headers(), headers(("surprise", '{"big":7}'))) == [[]]


def test_an_old_row_by_an_index_has_its_columns_alone() -> None:
    def names(theirs: str, ours: str, side: str) -> list[list[str]]:
        pair = record(theirs, op="u", side=side), record(ours, op="u", side=side)
        return [explained_by(RULES, d) for d in differences("readable", [pair], {"public.t": by_index()})]

    assert names('{"id":1}', '{"id":null}', "before") == [["D9"]]
    assert names('{"id":1}', '{"id":2}', "before") == [[]]
    assert names('{"big":1}', '{"big":null}', "before") == [[]]
    assert names('{"id":1}', '{"id":null}', "after") == [[]]


def test_headers_that_are_broken_are_compared_by_their_keys() -> None:
    """A key in them that holds a control character: all of the headers may differ."""
    found = RecordDifference(
        encoding="readable", path=("headers",), expected=parse('{"__debezium.newkey":"{\\"a\\":\\"x\\u0001\\"}"}'),
        got=parse('{"__debezium.newkey":"{\\"a\\":\\"x\\\\u0001\\"}","pos":"1"}'), theirs=headers(), ours=headers(),
    )  # fmt: skip
    assert explained_by(RULES, found) == ["D14"]
    assert explained_by(RULES, replace(found, got=parse('{"__debezium.newkey":"{\\"a\\":\\"y\\"}"}'))) == []
    calm = parse('{"__debezium.newkey":"{\\"a\\":\\"x\\"}"}')
    assert explained_by(RULES, replace(found, expected=calm, got=calm)) == []
    assert explained_by(RULES, replace(found, got=ABSENT)) == []
    assert explained_by(RULES, replace(found, expected=ABSENT)) == []


@pytest.mark.parametrize(
    ("theirs", "ours", "rule"),
    [
        ("first", "true", ["D24"]),
        ("last", "last_in_data_collection", ["D24"]),
        ("true", "false", []),
        ("x", "true", []),
    ],
)
def test_markers_of_a_snapshots_rows_may_be_others(theirs: str, ours: str, rule: list[str]) -> None:
    one, two = (
        ComparedRecord(
            table="public.t", key=None, value=parse(f'{{"source":{{"snapshot":"{marker}"}},"op":"r"}}'), headers=()
        )
        for marker in (theirs, ours)
    )
    assert [explained_by(RULES, d) for d in differences("readable", [(one, two)], {})] == [rule]


def test_values_are_shown_as_they_stand_in_json() -> None:
    text = '{"a":[1.50,null,"é"],"b":{"c":true}}'
    assert show(parse(text)) == text
    assert show(ABSENT) == "(absent)"


# -- which records are compared


def streamed(
    key: int, op: str, commit: int, xid: int, *, before: int | None = None, row: bool = False
) -> ComparedRecord:
    """A record of ours, at a position; ``row``: of a snapshot."""
    sequence = f'[\\"{commit - 1 if before is None else before}\\",\\"{commit}\\"]'
    source = f'{{"name":"one","snapshot":"{str(row).lower()}","sequence":"{sequence}","txId":{xid},"lsn":{commit}}}'
    place = Position(1, commit, SNAPSHOT_SEQ if row else 1).text()
    key_json = '{"__truncate":"t"}' if op == "t" else f'{{"id":{key}}}'
    return ComparedRecord(
        table="public.t", key=parse(key_json), headers=(("pos", place),), place=(0, commit),
        value=parse(f'{{"after":{{"id":{key}}},"source":{source},"op":"{op}"}}'),
    )  # fmt: skip


def tombstone(key: int) -> ComparedRecord:
    return ComparedRecord(table="public.t", key=parse(f'{{"id":{key}}}'), value=None, headers=(), place=(0, 0))


def kept(window: CommitWindow, theirs: list[ComparedRecord], ours: list[ComparedRecord]) -> tuple[list[str], list[str]]:
    one, two = window.cut(theirs, ours)
    return [show(r.key) for r in one], [show(r.key) for r in two]


def test_commits_between_the_marks_are_compared() -> None:
    changes = [streamed(n, "c", lsn, n) for n, lsn in ((1, 100), (2, 101), (3, 199), (4, 200))]
    one, two = kept(CommitWindow(begin=100, end=200, rows=False), changes, changes)
    assert (one, two) == (['{"id":2}', '{"id":3}'],) * 2


def test_a_transaction_of_theirs_alone_has_to_lie_near() -> None:
    window = CommitWindow(begin=100, end=200, rows=False)
    for before, near in ((99, False), (100, True), (199, True), (200, False)):
        one, _ = kept(window, [streamed(1, "c", before + 1, 7, before=before)], [])
        assert one == (['{"id":1}'] if near else []), before
    ours = [streamed(1, "c", 90, 7)]
    assert kept(window, [streamed(1, "c", 150, 7)], ours)[0] == [], "ours says that it is outside"


def test_a_tombstone_goes_where_its_delete_goes() -> None:
    window = CommitWindow(begin=100, end=200, rows=False)
    changes = [streamed(1, "d", 150, 1), tombstone(1), streamed(2, "d", 250, 2), tombstone(2), tombstone(3)]
    assert window.cut(changes, [changes[0], changes[2]])[0] == changes[:2]


def test_rows_changed_between_the_snapshots_are_left_out() -> None:
    rows = [streamed(n, "r", 48, 1, row=True) for n in (1, 2)]
    changed = streamed(2, "u", 100, 9)
    both = CommitWindow(begin=100, end=200, rows=True)
    assert kept(both, rows, [*rows, changed]) == (['{"id":1}'], ['{"id":1}'])
    assert kept(CommitWindow(begin=100, end=200, rows=False), rows, rows) == ([], [])
    assert kept(both, rows, [*rows, streamed(9, "t", 100, 9)]) == ([], []), "emptied meanwhile"
    assert kept(both, rows, [*rows, streamed(2, "u", 101, 9)])[0] == ['{"id":1}', '{"id":2}']


def test_what_two_captures_never_share_is_not_compared() -> None:
    def made(name: str, snapshot: str, number: int, op: str) -> ComparedRecord:
        numbers = f'"lsn":{number},"txId":{number},"sequence":"{number}","ts_ms":{number}'
        source = f'{{"name":"{name}","snapshot":{snapshot},{numbers}}}'
        value = (
            f'{{"after":{{"id":1}},"source":{source},"op":"{op}","ts_ms":{number},"ts_us":{number},"ts_ns":{number}}}'
        )
        return ComparedRecord(table="public.t", key=None, value=parse(value), headers=())

    one, two = comparable(made("one", '"true"', 1, "r"), "one"), comparable(made("two", '"true"', 2, "r"), "two")
    assert one == two
    one, two = comparable(made("one", "null", 1, "c"), "one"), comparable(made("two", '"false"', 1, "c"), "two")
    assert one == two
    assert comparable(made("one", '"false"', 1, "c"), "one") != comparable(made("one", '"false"', 2, "c"), "one")
    assert comparable(made("other", '"false"', 1, "c"), "one") != one
    assert comparable(tombstone(1), "one") == tombstone(1)


def test_rows_of_other_keys_pair_by_what_is_in_them() -> None:
    def row(key: str, after: str) -> ComparedRecord:
        value = parse(f'{{"after":{after},"source":{{"snapshot":"true","lsn":1,"txId":1}},"op":"r"}}')
        return ComparedRecord(table="public.t", key=parse(key), value=value, headers=())

    theirs = [row('{"id":0}', '{"id":0,"v":"a"}'), row('{"id":0}', '{"id":0,"v":"b"}')]
    ours = [row('{"id":2}', '{"id":2,"v":"b"}'), row('{"id":1}', '{"id":1,"v":"a"}')]
    pairs = [(one, two) for one, two in paired(Told(theirs), Told(ours)) if one is not None and two is not None]
    assert [(show(two.key)) for _, two in sorted(pairs, key=lambda pair: theirs.index(pair[0]))] == [
        '{"id":1}',
        '{"id":2}',
    ]


# -- the verdict


def test_a_verdict_counts_records_rules_and_faults() -> None:
    theirs = [
        record('{"id":1,"t":"default"}'),
        record('{"id":2,"t":"a"}', key='{"id":2}'),
        record('{"id":3}', key='{"id":3}'),
    ]
    ours = [record('{"id":1,"t":null}'), record('{"id":2,"t":"b"}', key='{"id":2}'), record('{"id":3}', key='{"id":3}')]
    verdict = judge("public.t", "readable", theirs, ours, {"public.t": facts()})
    assert verdict.document() == {
        "table": "public.t", "debezium_records": 3, "native_records": 3, "equal": 1, "explained": {"D1": 1},
        "undecided": 1, "unexplained": 1, "first": list(verdict.words),
    }  # fmt: skip
    (word,) = verdict.words
    assert "public.t" in word


def test_a_comparison_adds_up_its_tables() -> None:
    def of(table: str, theirs: int, ours: int, rules: dict[str, int], unexplained: int, undecided: int) -> TableVerdict:
        return TableVerdict(
            table=table, theirs=theirs, ours=ours, equal=1, by_rule=Counter(rules), unexplained=unexplained,
            undecided=undecided,
        )  # fmt: skip

    comparison = Comparison(
        encoding="readable", begin=10, end=20,
        verdicts=(of("a", 5, 4, {"D5": 1, "D1": 2}, 1, 2), of("b", 3, 2, {"D1": 3}, 4, 8)),
    )  # fmt: skip
    document = comparison.document()
    assert (document["encoding"], document["begin_lsn"], document["end_lsn"]) == ("readable", 10, 20)
    assert (document["records"], document["unexplained"], document["undecided"]) == (6, 5, 10)
    assert [(name, rule["differences"]) for name, rule in document["rules"].items()] == [("D1", 5), ("D5", 1)]
    assert [rule.name for rule, _ in comparison.reasons()] == ["D1", "D5"]
    assert [table["table"] for table in document["tables"]] == ["a", "b"]
