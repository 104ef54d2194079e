"""Conditions: what parses shows and reads back; what is none is refused."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.record.row_condition import (
    MOST_CHARACTERS,
    MOST_DEPTH,
    SIGNS,
    All,
    Among,
    Between,
    ColumnName,
    Compared,
    Condition,
    Either,
    Like,
    NoCondition,
    Not,
    Null,
    NumberLiteral,
    Text,
    Truth,
    Value,
    columns,
    parse,
    show,
)

any_text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
# Characters with a meaning of their own, far oftener than chance gives them.
texts = st.one_of(any_text, st.text(st.sampled_from("'\"\\%_aZ;-( )"), max_size=6))
names = st.one_of(st.sampled_from(["id", "Name", "or", "null", 'a"b', "é", "a b"]), texts.filter(bool))
column = st.builds(ColumnName, names)
numbers = st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**20), max_value=10**20, places=3)
value: st.SearchStrategy[Value] = st.one_of(
    column,
    st.builds(Text, texts),
    st.builds(NumberLiteral, numbers),
    st.builds(NumberLiteral, st.integers(-(2**63), 2**63).map(Decimal)),
    st.builds(Truth, st.booleans()),
)
compared = st.one_of(
    st.builds(Compared, column, st.sampled_from(SIGNS), value),
    st.builds(Compared, value, st.sampled_from(SIGNS), column),
)
tests = st.one_of(
    column,
    compared,
    st.builds(Among, column, st.lists(value, min_size=1, max_size=3).map(tuple), st.booleans()),
    st.builds(Between, column, value, value, st.booleans()),
    st.builds(Like, column, st.builds(Text, texts), st.booleans(), st.booleans()),
    st.builds(Null, column, st.booleans()),
)
conditions: st.SearchStrategy[Condition] = st.recursive(
    tests,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(All, st.lists(inner, min_size=2, max_size=3).map(tuple)),
        st.builds(Either, st.lists(inner, min_size=2, max_size=3).map(tuple)),
    ),
    max_leaves=12,
)


@given(conditions)
def test_a_condition_shows_as_text_that_reads_back(condition: Condition) -> None:
    assert parse(show(condition)) == condition


@given(st.one_of(st.text(max_size=40), st.text(alphabet="ab1'\"().,=<>-; notinlkeulbdw", max_size=60)))
def test_any_text_is_a_condition_or_refused(text: str) -> None:
    """Whatever the text, nothing else is raised; what parses is the same after it was shown."""
    try:
        found = parse(text)
    except NoCondition:
        return
    assert parse(show(found)) == found
    assert columns(found)


ACCEPTED = {
    "id = 3": Compared(ColumnName("id"), "=", NumberLiteral(Decimal(3))),
    "3 != ID": Compared(NumberLiteral(Decimal(3)), "<>", ColumnName("id")),
    '"Id" >= -1.5e2': Compared(ColumnName("Id"), ">=", NumberLiteral(Decimal("-150"))),
    "active": ColumnName("active"),
    "not active": Not(ColumnName("active")),
    "active = true": Compared(ColumnName("active"), "=", Truth(True)),
    "note = 'it''s'": Compared(ColumnName("note"), "=", Text("it's")),
    "a is null or b is not null and c": Either(
        (Null(ColumnName("a")), All((Null(ColumnName("b"), True), ColumnName("c"))))
    ),
    "(a or b)\n and\tc": All((Either((ColumnName("a"), ColumnName("b"))), ColumnName("c"))),
    "a not in (1, 'x', b)": Among(ColumnName("a"), (NumberLiteral(Decimal(1)), Text("x"), ColumnName("b")), True),
    "a BETWEEN 1 AND 2 AND b": All(
        (Between(ColumnName("a"), NumberLiteral(Decimal(1)), NumberLiteral(Decimal(2))), ColumnName("b"))
    ),
    "a not ilike 'x%'": Like(ColumnName("a"), Text("x%"), True, True),
}


@pytest.mark.parametrize("text", ACCEPTED)
def test_the_grammar_takes(text: str) -> None:
    assert parse(text) == ACCEPTED[text]


REFUSED = [
    "",
    "id = 3) or (id = 4",
    "id = 3; drop table t",
    "note::int = 5",
    "cast(note as int) = 5",
    "nextval('s') > 0",
    "pg_drop_replication_slot('x') is null",
    "id = (select 1)",
    "id in (select 1)",
    "id % 3 = 0",
    "part.id > 5",
    "id = 3 -- rest",
    "id = 3 /* rest */",
    "a = 'x",
    '"a = 1',
    "a = $$x$$",
    "a = E'x'",
    "a = U&'x'",
    "a = b'1'",
    "a = 'x' 'y'",
    "1 = 1",
    "true",
    "a = 1 or",
    "a in ()",
    "a is 3",
    "a like b",
    "a not",
    "a = 1e9999",
    "a\0 = 1",
    "(" * 60 + "a" + ")" * 60,
    "not " * 60 + "a",
    "a = '" + "x" * MOST_CHARACTERS + "'",
]


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: repr(text[:30]))
def test_h111_the_grammar_refuses(text: str) -> None:
    with pytest.raises(NoCondition):
        parse(text)


@given(conditions)
def test_all_columns_are_named(condition: Condition) -> None:
    shown = show(condition)
    assert all(show(ColumnName(name)) in shown for name in columns(condition))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("a = b", {"a", "b"}),
        ("1 = b", {"b"}),
        ("a in (1, b, c)", {"a", "b", "c"}),
        ("a between b and c", {"a", "b", "c"}),
        ("a like 'x'", {"a"}),
        ("a is null", {"a"}),
        ("not a = 1", {"a"}),
        ("a = 1 and b = 2 or c = 3", {"a", "b", "c"}),
        ('(A) and "B"', {"a", "B"}),
    ],
)
def test_h111_each_part_names_its_columns(text: str, named: set[str]) -> None:
    assert columns(parse(text)) == named


def test_the_limits_are_the_last_that_is_taken() -> None:
    long = "a = '" + "x" * (MOST_CHARACTERS - 6) + "'"
    assert len(long) == MOST_CHARACTERS
    assert columns(parse(long)) == {"a"}
    with pytest.raises(NoCondition, match="characters"):
        parse(long + " ")
    deep = "(" * (MOST_DEPTH - 1) + "a" + ")" * (MOST_DEPTH - 1)
    assert parse(deep) == ColumnName("a")
    with pytest.raises(NoCondition, match="nested"):
        parse(f"({deep})")
    beside = " and ".join(["(a)"] * (2 * MOST_DEPTH))
    assert len(parse(beside).conditions) == 2 * MOST_DEPTH  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a = \0 1", "NUL"),
        ("a = )", "stands where a column or a value should"),
        ("a in 1", "stands where \\( should"),
        ("a between 1 or 2", "stands where and should"),
        ("a = 1 " + "x" * 30, "^x{30} follows"),
        ("a = 1 " + "x" * 31, "^x{30}\u2026 follows"),
    ],
)
def test_a_refusal_says_what_stands_where(text: str, why: str) -> None:
    with pytest.raises(NoCondition, match=why):
        parse(text)


def test_names_are_folded_as_postgres_folds_them() -> None:
    assert columns(parse("AZ = \u00c9z")) == {"az", "\u00c9z"}
    assert parse("a <= 1") == Compared(ColumnName("a"), "<=", NumberLiteral(Decimal(1)))
    assert parse("a < 1") == Compared(ColumnName("a"), "<", NumberLiteral(Decimal(1)))
    assert parse("a = false") == Compared(ColumnName("a"), "=", Truth(False))
    assert parse("a in (1)") == Among(ColumnName("a"), (NumberLiteral(Decimal(1)),))
    assert not parse("a like 'x'").negated  # type: ignore[union-attr]
