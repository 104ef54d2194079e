"""Masked columns in views: carried, tied by equal HMACs, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.process.errors import ConfigError
from cdc.record.schema import DroppedColumn, Mask, TableSchema
from cdc.views.syntax import ViewRefused
from cdc.views.view_plan import planned
from cdc.views.view_records import StateRows
from tests.unit.cdc.views.test_refused_views import table


def masked(shape: TableSchema, **rules: str) -> TableSchema:
    columns = [
        replace(c, mask=Mask(rule=rules[c.name], type=c.type, type_oid=0, kind=c.kind), type="text", kind="text")
        if c.name in rules
        else c
        for c in shape.columns
    ]
    return replace(shape, columns=tuple(columns))


ONE, OTHER = "hmac:0011223344556677", "hmac:8899aabbccddeeff"
TABLES = (
    masked(table("people", {"mail": "text", "name": "text", "note": "text"}, "mail"), mail=ONE, note="truncate:5"),
    masked(table("orders", {"id": "int8", "mail": "text", "ref": "text"}, "id"), mail=ONE, ref=OTHER),
    table("plain", {"id": "int8", "mail": "text"}, "id"),
)

GOOD = [
    "select mail, note, name from people",
    "select o.id, p.name, p.note from orders o left join people p on p.mail = o.mail",
    "select o.id, p.name from orders o join people p using (mail)",
    "select p.mail, (select json_agg(json_build_object('id', o.id, 'mail', o.mail) order by o.id)"
    " from orders o where o.mail = p.mail) as orders from people p",
    "select p.mail, row_to_json(p) as doc from people p",
    "select mail, count(*) as n from orders group by mail",
    "select q.mail, q.name from (select mail, name from people) q",
    "select p.mail, p.name from people p where exists (select 1 from orders o where o.mail = p.mail)",
    "select p.mail, p.name from people p where p.mail in (select o.mail from orders o)",
    "select q.mail, q.doc from (select mail, row_to_json(p) as doc from people p) q",
    "select q.mail, json_build_array(q.doc, q.name) as x"
    " from (select mail, name, json_build_object('note', note) as doc from people) q",
    "select p.mail, array[p.note, p.name] as x from people p",
    "select o.id, (select p.note from people p where p.mail = o.mail) as note from orders o",
]

REFUSED = [
    ("select mail, lower(note) || name as x from people", "note"),
    ("select mail, note || name as x from people", "note"),
    ("select mail, length(note) as n from people", "note"),
    ("select mail from people where note = 'short'", "note"),
    ("select mail from people where mail = 'a@b.c'", "mail"),
    ("select mail from people where mail in ('a@b.c', 'd')", "mail"),
    ("select mail from people where note is null", "note"),
    ("select mail from people where mail <> note", "mail"),
    ("select mail, case when note = name then 1 end as x from people", "note"),
    ("select mail, coalesce(note, name) as x from people", "note"),
    ("select o.id, p.name from orders o join people p on p.mail = o.ref", "p.mail"),
    ("select o.id, p.name from orders o join people p on p.note = o.mail", "p.note"),
    ("select o.id, l.mail from orders o join plain l on l.mail = o.mail and l.id = o.id", "o.mail"),
    ("select name, max(note) as x from people group by name", "note"),
    ("select name, count(note) as n from people group by name", "note"),
    ("select note, count(*) as n from people group by note", "note"),
    ("select note, count(*) as n from people group by 1", "note"),
    ("select p.mail, (select json_agg(o.id order by o.mail) from orders o where o.mail = p.mail) as x from people p",
     "o.mail"),
    ("select q.mail, upper(q.note) as x from (select mail, note from people) q", "note"),
    ("select p.mail, (select json_agg(o.id) from orders o where o.mail = p.mail and o.ref like 'a%') as x"
     " from people p", "o.ref"),
]  # fmt: skip

WITHIN = [
    # What a query below carries is computed with above it.
    "select q.mail, q.doc ->> 'note' as x from (select mail, row_to_json(p) as doc from people p) q",
    "select q.mail, q.doc::text || 'x' as x from (select mail, json_build_object('n', note) as doc from people p) q",
    "select q.mail from (select mail, to_json(note) as x from people) q where q.x is not null",
    "select p.mail, (row_to_json(p))::text || 'x' as x from people p",
    "select p.mail, row_to_json(p) ->> 'name' as x from people p",
    "select p.mail, json_build_object(p.note, 1) as x from people p",
    "select p.mail, json_array_length(json_build_array(p.note)) as x from people p",
    "select p.mail from people p where row_to_json(p)::text like '%a%'",
    "select o.id, (select p.note from people p where p.mail = o.mail) || 'x' as note from orders o",
    "select o.id from orders o where (select p.note from people p where p.mail = o.mail) = 'x'",
    "select o.id from orders o where o.mail in (select p.note from people p)",
    "select o.id from orders o where 'x' in (select p.note from people p)",
    "select o.id, 'x' in (select p.note from people p where p.mail = o.mail) as y from orders o",
    "select o.id from orders o where not ('x' in (select p.note from people p where p.mail = o.mail))",
    "select o.id from orders o where 'x' in (select p.note from people p where p.mail = o.mail limit 1)",
    "select o.id from orders o where 'x' not in (select p.note from people p where p.mail = o.mail)",
    "select name, json_agg(note order by note) as x from people group by name",
    "select name, json_agg(name) filter (where note = 'x') as x from people group by name",
    "select name, string_agg(note, ',') as x from people group by name",
    "select name, count(distinct mail) as n from people group by name",
    "select name, json_agg(distinct note) as n from people group by name",
    "select distinct on (note) mail, note from people",
    "select mail, name from people order by note limit 3",
]

NOTED = "(select p.mail from people p where p.mail = o.mail and {})"
TIED = [
    # A side of a comparison that ties is looked into, too.
    f"select o.id from orders o where o.mail = {NOTED.format('p.note = $$secret$$')}",
    f"select o.id, o.mail = {NOTED.format('p.note = $$x$$')} as y from orders o",
    f"select o.id, coalesce(o.mail = {NOTED.format('length(p.note) > 3')}, false) as y from orders o",
    f"select o.id, json_build_array(o.mail = {NOTED.format('p.note like $$a%$$')}) as y from orders o",
    "select p.mail from people p where p.mail = (select o.mail from orders o where o.mail = p.mail and o.ref like 'a%'"
    " order by o.ref limit 1)",
    "select p.mail from people p where p.mail = (select o.mail from orders o where o.mail = p.mail and"
    " length(o.ref) > 3)",
    f"select o.id from orders o where {NOTED.format('p.note = $$x$$')} in (select q.mail from people q)",
]


@pytest.mark.parametrize("sql", GOOD)
def test_a_masked_column_is_carried_and_tied(sql: str) -> None:
    planned(sql, TABLES, collation="C")


@pytest.mark.parametrize(("sql", "word"), REFUSED)
def test_other_expressions_over_a_masked_column_are_refused(sql: str, word: str) -> None:
    with pytest.raises(ViewRefused, match="is masked, and a view computes nothing of it") as refused:
        planned(sql, TABLES, collation="C")
    assert refused.value.word == word
    assert refused.value.place is not None


@pytest.mark.parametrize(("sql", "word"), REFUSED[:3])
def test_the_same_over_plain_columns_is_a_view(sql: str, word: str) -> None:
    planned(sql, [table("people", {"mail": "text", "name": "text", "note": "text"}, "mail")], collation="C")


@pytest.mark.parametrize("sql", WITHIN)
def test_h294_a_value_that_carries_a_masked_one_is_refused(sql: str) -> None:
    with pytest.raises(ViewRefused) as refused:
        planned(sql, TABLES, collation="C")
    assert "is masked, and a view computes nothing of it" in refused.value.reason, refused.value.reason


@pytest.mark.parametrize("sql", TIED)
def test_h330_a_side_that_ties_is_looked_into(sql: str) -> None:
    with pytest.raises(ViewRefused) as refused:
        planned(sql, TABLES, collation="C")
    assert "is masked, and a view computes nothing of it" in refused.value.reason, refused.value.reason
    assert refused.value.word in ("p.note", "o.ref")


def of_types(kind: str, other: str) -> tuple[TableSchema, TableSchema]:
    one, two = table("a", {"id": "int8", "k": kind}, "id"), table("b", {"k": other, "v": "text"}, "k")
    return masked(one, k=ONE), masked(two, k=ONE)


JOINED = "select a.id, b.v from a left join b on b.k = a.k"


@pytest.mark.parametrize("kinds", ["int4 int8", "text varchar", "uuid uuid", "date date", "bool bool"])
def test_hmacs_of_values_with_one_text_tie_and_group(kinds: str) -> None:
    one, other = kinds.split()
    planned(JOINED, of_types(one, other), collation="C")
    planned("select k, count(*) as n from a group by k", of_types(one, other), collation="C")


@pytest.mark.parametrize(
    "kinds", ["numeric numeric", "citext citext", "bpchar text", "bpchar bpchar", "date timestamp", "int4 numeric",
              "text uuid", "float8 float8", "timestamptz timestamptz", "int4 text"],
)  # fmt: skip
def test_h332_hmacs_of_values_with_several_texts_do_not_tie(kinds: str) -> None:
    """1.0 is 1.00, and their HMACs differ. So do those of a date and of the same day as a timestamp."""
    with pytest.raises(ViewRefused, match="is masked, and a view computes nothing of it"):
        planned(JOINED, of_types(*kinds.split()), collation="C")


@pytest.mark.parametrize("kind", ["numeric", "citext", "bpchar", "jsonb", "interval"])
def test_h332_hmacs_of_values_with_several_texts_do_not_group(kind: str) -> None:
    for sql in (
        "select k, count(*) as n from a group by k",
        "select q.k from (select distinct k from a) q",
        "select b.k, (select json_agg(q.k) from (select distinct a.k from a where a.k = b.k) q) as x from b",
    ):
        with pytest.raises(ViewRefused, match="is masked, and a view computes nothing of it"):
            planned(sql, of_types(kind, kind), collation="C")


def test_h332_hmacs_of_arrays_do_not_tie() -> None:
    one, other = of_types("text", "text")
    lists = [replace(c, mask=replace(c.mask, array=True)) if c.mask is not None else c for c in one.columns]
    with pytest.raises(ViewRefused, match="is masked, and a view computes nothing of it"):
        planned(JOINED, (replace(one, columns=tuple(lists)), other), collation="C")


@pytest.mark.parametrize("rule", ["truncate:4", ONE, "drop", ""])
def test_h331_a_mask_that_changed_after_the_plan_stops_the_view(rule: str) -> None:
    plain = table("people", {"mail": "text", "name": "text", "note": "text"}, "mail")
    before = masked(plain, note="truncate:3")
    relation = planned("select mail, note from people", [before], collation="C").relations[plain.table]
    newer = replace(masked(plain, note=rule) if rule not in ("", "drop") else plain, version=2)
    if rule == "drop":
        gone = DroppedColumn(name="note", attnum=3, type_oid=0)
        newer = replace(newer, columns=newer.columns[:2], dropped=(gone,))
    with pytest.raises(ConfigError, match=r"the mask of note of public.people changed after the view was planned"):
        StateRows(newer, relation)
    StateRows(replace(before, version=2), relation)
    StateRows(plain, relation)  # from before the plan


def test_h331_rows_from_a_mask_that_was_removed_say_so() -> None:
    """A start would not help: they stay in the topic until it is compacted."""
    plain = replace(table("people", {"mail": "text", "name": "text", "note": "text"}, "mail"), version=2)
    relation = planned("select mail, upper(note) as x from people", [plain], collation="C").relations[plain.table]
    with pytest.raises(ConfigError, match="has rows from when note was masked") as refused:
        StateRows(replace(masked(plain, note="truncate:3"), version=1), relation)
    assert "compaction" in (refused.value.hint or "")


def test_h295_a_mask_that_came_after_the_plan_stops_the_view() -> None:
    """It would compute over masked values until somebody started it again, and says what it left behind then."""
    plain = table("people", {"mail": "text", "name": "text", "note": "text"}, "mail")
    plan = planned("select mail, upper(note) as x from people", [plain], collation="C")
    relation = plan.relations[plain.table]
    StateRows(plain, relation)
    StateRows(masked(plain, name="truncate:3"), relation)
    with pytest.raises(ConfigError, match=r"note of .* was masked after the view was planned"):
        StateRows(masked(plain, note="truncate:3"), relation)
    carried = planned("select mail, note from people", [masked(plain, note="truncate:3")], collation="C")
    StateRows(masked(plain, note="truncate:4"), carried.relations[plain.table])
    with pytest.raises(ViewRefused) as refused:
        planned(plan.sql, [masked(plain, note="truncate:3")], collation="C")
    assert "still has what it computed" in (refused.value.hint or "")
