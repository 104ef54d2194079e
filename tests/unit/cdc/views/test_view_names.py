"""Names mean what they mean to Postgres: a query of WITH sees those of its place in the text, and never itself."""

from __future__ import annotations

import pytest

from cdc.views.syntax import ViewRefused
from cdc.views.view_plan import ViewPlan, planned
from tests.unit.cdc.views.test_refused_views import table

TABLES = (
    table("a", {"id": "int4", "x": "text"}, "id"),
    table("b", {"id": "int4", "a_id": "int4", "y": "text"}, "id"),
    table("c", {"id": "int4", "b_id": "int4", "z": "text"}, "id"),
)


def _read(plan: ViewPlan) -> list[str]:
    return [occurrence.table.table for occurrence in plan.occurrences]


SEEN = [
    ("with a as (select * from a) select id, x from a", ["a"], ["id", "x"]),
    ("with a as (select * from public.a) select id from a", ["a"], ["id"]),
    ("with a as (select id, y from b) select id, y from a", ["b"], ["id", "y"]),
    ("with a as (select * from b) select id, x from public.a", ["a"], ["id", "x"]),
    # A later query sees the earlier one under the table's name, and the earlier one does not see it.
    ("with b as (select * from a), a as (select id, x as w from b) select id, w from a", ["a"], ["id", "w"]),
    # Within a nested WITH the name is that of the query around, not of the nested one itself.
    ("with a as (select id, y from b) select id, y from (with a as (select id, y from a) select * from a) q",
     ["b"], ["id", "y"]),
    # A query keeps the names of its own place where another one of that name is nearer to its use.
    ("with b as (select id, x from a), q as (select id, x from b)"
     " select id, x from (with b as (select * from c) select id, x from q) p", ["a"], ["id", "x"]),
    # The nested WITH is over behind its SELECT.
    ("select id, (with b as (select * from c) select count(*) from b where b.b_id = a.id) as n,"
     " (select count(*) from b where b.a_id = a.id) as m from a", ["a", "c", "b"], ["id", "n", "m"]),
    # A query of a WITH in a subquery sees the tables around that subquery.
    ("select id, (with q as (select b.id from b where b.a_id = a.id) select count(*) from q) as n from a",
     ["a", "b"], ["id", "n"]),
    # The alias of a subquery hides no table, and is the nearest of its name.
    ("select a.id, a.x from (select * from a) a", ["a"], ["id", "x"]),
    ("select id, (select count(*) from (select * from b) a where a.a_id = b.id) as n from a b",
     ["a", "b"], ["id", "n"]),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "read", "outputs"), SEEN, ids=[sql[:60] for sql, _, _ in SEEN])
def test_h465_names_have_the_meaning_of_postgres(sql: str, read: list[str], outputs: list[str]) -> None:
    plan = planned(sql, TABLES)
    assert sorted(_read(plan)) == sorted(read)
    assert [name for name, _ in plan.outputs] == outputs


REFUSED = [
    ("with q as (select * from b), q as (select * from a) select id from q", "q", "two queries named q"),
    ("with q as (select * from p), p as (select * from a) select id from q", "p", "p is not captured"),
    ("with q as (select * from q) select id from q", "q", "q is not captured"),
    ("with q as (select b.id from b where b.a_id = a.id) select a.id from a join q on q.id = a.id",
     "a.id", "no table a"),
    ("select id from (with recursive q as (select id from a) select * from q) p", "with", "RECURSIVE"),
    ("with recursive a as (select id from a) select id from a", "with", "RECURSIVE"),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "word", "reason"), REFUSED, ids=[sql[:60] for sql, _, _ in REFUSED])
def test_h465_a_name_out_of_reach_is_refused(sql: str, word: str, reason: str) -> None:
    with pytest.raises(ViewRefused) as refused:
        planned(sql, TABLES)
    assert (refused.value.word, reason in refused.value.message) == (word, True), refused.value.message


def _chain(length: int) -> str:
    links = ", ".join(f"q{n} as (select * from q{n - 1})" for n in range(1, length))
    return f"with q0 as (select * from a), {links} select id from q{length - 1}"


DEEP = [
    "select id, " + " || ".join(["x"] * 300) + " as y from a",
    "select id, " + "coalesce(" * 150 + "x" + ")" * 150 + " as y from a",
    "select a.id from a " + " ".join(f"left join a a{n} on a{n}.id = a.id" for n in range(20)),
    "select a.id from a " + " ".join(f"join a a{n} on a{n}.id = a.id" for n in range(60)),
    _chain(400),
]


@pytest.mark.parametrize("sql", DEEP, ids=[sql[:30] for sql in DEEP])
def test_h465_a_text_that_is_too_deep_is_refused(sql: str) -> None:
    """Each ended in a traceback: of Python's recursion, of its nested loops, or of the grammar's tree."""
    with pytest.raises(ViewRefused, match="nested too deeply") as refused:
        planned(sql, TABLES)
    assert refused.value.hint


def test_h465_a_from_of_twenty_tables_is_kept() -> None:
    plan = planned("select a.id from a " + " ".join(f"left join a a{n} on a{n}.id = a.id" for n in range(19)), TABLES)
    assert len(plan.occurrences) == 20
    planned(_chain(50), TABLES)
