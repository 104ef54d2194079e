"""What a view may not be is refused with the word, its place and what would do."""

from __future__ import annotations

import pytest

from cdc.record.schema import Column, Identity, TableSchema
from cdc.record.topic_names import TableName
from cdc.views.syntax import ViewRefused
from cdc.views.view_plan import planned


def table(name: str, columns: dict[str, str], *key: str) -> TableSchema:
    """A shape, by the kinds of its columns."""
    places = {column: place for place, column in enumerate(key, start=1)}
    return TableSchema(
        table=TableName("public", name),
        topic=name,
        version=1,
        oid=1,
        encoding="readable",
        identity=Identity.DEFAULT,
        columns=tuple(
            Column(name=c, attnum=i, type=kind, type_oid=0, kind=kind, key_position=places.get(c))
            for i, (c, kind) in enumerate(columns.items(), start=1)
        ),
    )


OTHER_ON_THE_WIRE = ("timetz", "vector", "halfvec", "sparsevec", "money")
"""Their values are not the text that Postgres prints."""
SHOP = (
    table("orders", {"id": "int8", "customer_id": "int4", "status": "text", "placed_at": "timestamptz"}, "id"),
    table("order_lines", {"id": "int8", "order_id": "int8", "qty": "int4", "weight": "float8"}, "id"),
    table("customers", {"id": "int4", "name": "text", "place": "point"}, "id"),
    table("odd", {"id": "int4"} | {f"a_{kind}": kind for kind in OTHER_ON_THE_WIRE}, "id"),
    table("notes", {"text": "text"}),
)

REFUSED = [
    ("select id, now() from orders", "now", "what answers otherwise each time"),
    ("select id, current_date as d from orders", "current_date", "what answers otherwise each time"),
    ("select o.id from orders o, customers c", "customers", "no equal columns tie c"),
    (
        "select o.id, l.qty from orders o join order_lines l on l.order_id = o.id",
        "order_lines",
        "is not among the columns",
    ),
    (
        "select o.id from orders o left join order_lines l on l.order_id = o.id",
        "order_lines",
        "l multiplies o",
    ),
    ("select id, status, lower(status) as s from orders", "lower", "depends on the collation"),
    ("select id, (select qty from order_lines l where l.order_id = o.id) as q from orders o", "(", "several rows"),
    ("select id, rank() over (order by id) as r from orders", "rank", "window functions"),
    ("select id from orders union select id from customers", "", "UNION"),
    ("with recursive t as (select 1) select id from orders", "with", "RECURSIVE"),
    ("select o.id from orders o full join customers c on c.id = o.customer_id", "full join", "FULL JOIN"),
    ("select id from invoices", "invoices", "is not captured"),
    ("select id, colour from orders", "colour", "there is no column colour"),
    ("select status from orders", "orders", "is not among the columns"),
    ("select text from notes", "notes", "has no key"),
    ("select id, place from customers", "place", "cannot carry a column of type point"),
    *((f"select id, a_{kind} from odd", f"a_{kind}", f"a column of type {kind}") for kind in OTHER_ON_THE_WIRE),
    ("select id, (select sum(weight) from order_lines l where l.order_id = o.id) as w from orders o", "sum", "floats"),
    ("select id from orders limit 3", "limit", "cannot be counted off"),
    ("select id, id from orders", "", "two columns are named id"),
    ("select id, status < 'm' as early from orders", "<", "order of text depends on its collation"),
    ("select id, my.slug(status) as s from orders", "my.slug", "calls no functions of the user's"),
    ("delete from orders", "", "a view is a SELECT"),
    ("select count(*) as n from orders group by status", "status", "is not among the view's"),
    ("select customer_id, count(*) as n from orders group by customer_id, status", "status", "is not among the view's"),
    ("select id + 0.5 as k, count(*) as n from orders group by 1", "+", "is not of type numeric"),
    ("select id, to_jsonb(o) as o, count(*) as n from orders o group by id", "o", "a whole row does not stand beside"),
    ("select status, sum(distinct id) as n from orders group by status", "sum", "sum(distinct …) of groups"),
    ("select o.id from orders o, generate_series(1, 3) n", "generate_series", "n multiplies o"),
    ("select n, count(*) as c from orders, unnest(array[1]) n group by n", "unnest", "no rows of this function"),
    ("select n, count(*) as c from orders, generate_series(id, 3.5) n group by n", "generate_series", "int8, numeric"),
    ("select sum(id) over (order by placed_at) as s, id from orders", "sum", "window functions"),
    ("select t.id from (select id from orders limit 3) t", "", "has a table of its own in FROM"),
    ("select to_jsonb(t) as t, id from (select id from orders) t", "t", "no whole rows of this query"),
    ("select status, array_agg(id) as n from orders group by status", "array_agg", "of groups needs an order"),
    ("select status, (array_agg(id))[1] as n from orders group by status", "array_agg", "the first is left open"),
    ("select status, (array_agg(id order by id))[2] as n from orders group by status", "array_agg", "part of an array"),
    ("select count(*) as n from orders group by 1", "count", "do not stand in GROUP BY"),
    ("select count(*) as n, sum(id) as s from orders group by -count(*)", "count", "do not stand in GROUP BY"),
    ("select count(*) filter (where count(*) > 1) as n from orders", "count", "do not stand in each other"),
]


@pytest.mark.parametrize(("sql", "word", "reason"), REFUSED, ids=[reason for _, _, reason in REFUSED])
def test_a_view_outside_of_the_class_is_refused(sql: str, word: str, reason: str) -> None:
    with pytest.raises(ViewRefused) as refused:
        planned(sql, SHOP)
    assert refused.value.word == word
    assert reason in refused.value.message


def test_h526_numbers_of_thousands_of_digits() -> None:
    many = 5000 * "0"
    plan = planned(f"select id, 1{many} as a, {many}7000000000 as b, '-{many}7'::int as c from orders", SHOP)
    assert [str(kind) for _, kind in plan.outputs] == ["int8", "numeric", "int8", "int4"]
    with pytest.raises(ViewRefused, match="integer out of range"):
        planned(f"select id, '1{many}'::int as n from orders", SHOP)


def test_a_refusal_names_line_and_column() -> None:
    with pytest.raises(ViewRefused) as refused:
        planned("select o.id,\n       random() as r\n  from orders o", SHOP)
    assert refused.value.place == (2, 8)
    assert refused.value.message.startswith("line 2, column 8: 'random'")
    assert refused.value.hint


def test_what_postgres_cannot_read_is_refused_at_its_place() -> None:
    with pytest.raises(ViewRefused) as refused:
        planned("select id from from orders", SHOP)
    assert refused.value.place == (1, 16)


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("select 'abc\ndef\nghi", "unterminated quoted string"),
        ('select "abc\nd from orders', "unterminated quoted identifier"),
        ("select $$ab\n" + 9_000 * "c", "unterminated dollar-quoted string"),
        ('select id from "no\npe"', "the table no pe is not captured"),
        ('select id, "a\nb" from orders', "there is no column a b"),
        ('select id, status::"x\ny" as y from orders', "does not cast to x y"),
    ],
)
def test_h550_a_refusal_is_one_line(sql: str, words: str) -> None:
    with pytest.raises(ViewRefused) as refused:
        planned(sql, SHOP)
    assert words in refused.value.message
    assert "\n" not in refused.value.message
    assert len(refused.value.message) < 300


def test_h550_a_text_does_not_end_at_a_nul() -> None:
    for sql in ("select id from orders\0", "select id from orders\0 where id = 1", "select id\0 from orders"):
        with pytest.raises(ViewRefused, match="a NUL stands in the text") as refused:
            planned(sql, SHOP)
        assert refused.value.place == (1, sql.index("\0") + 1)
        assert refused.value.hint


def test_a_plan_names_root_key_ties_and_indexes() -> None:
    plan = planned(
        "select o.id as order_id, (select count(*) from order_lines l where l.order_id = o.id) as n from orders o", SHOP
    )
    assert plan.root.table == TableName("public", "orders")
    assert plan.key == (("id", "order_id"),)
    assert [(o.alias, o.tie.columns) for o in plan.occurrences if o.tie is not None] == [("l", ("order_id",))]
    assert plan.relations[TableName("public", "order_lines")].indexed == (("order_id",),)
    assert [str(kind) for _, kind in plan.outputs] == ["int8", "int8"]


@pytest.mark.parametrize("name", ["hll_add_agg", "approx_count_distinct", "kll_sketch_agg_int", "percentile_approx"])
def test_e12_a_sketch_over_a_table_is_refused(name: str) -> None:
    """Spark's names, and those of Postgres's extensions."""
    with pytest.raises(ViewRefused) as refused:
        planned(f"select status,\n  {name}(customer_id) as n from orders group by status", SHOP)
    said = refused.value
    assert said.message == f"line 2, column 3: '{name}': a view has no sketches: a row that is deleted cannot leave one"
    assert "count(distinct x)" in said.hint
    assert "history" in said.hint
