"""Which tables the settings mean, and what stands in the way of each: over made-up catalogs."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.process.errors import ConfigError
from cdc.record.topic_names import TableName
from connectors.postgres.encoding.encoder import Resolved, Type, missing, resolve
from connectors.postgres.server.table_problems import CatalogRelation, LeafRelation, problems_of, topic_problems
from connectors.postgres.server.table_selection import Pattern, select, takes
from tests.faults.steps import Steps

OIDS = iter(range(20_000, 90_000))


def relation(name: str, schema: str = "public", **changes: Any) -> CatalogRelation:
    """A table with the primary key ``id``, unless changed."""
    usual: dict[str, Any] = {
        "oid": next(OIDS), "schema": schema, "name": name, "kind": "r", "persistence": "p", "identity": "d",
        "has_columns": True, "ancestors": [], "primary_key": ["id"], "primary_key_deferrable": False,
        "identity_index": [], "unique_index_name": None, "unique_index_nullable": [],
    }  # fmt: skip
    return CatalogRelation(**(usual | changes))


def leaf(name: str, identity: str = "d", **changes: Any) -> LeafRelation:
    usual: dict[str, Any] = {"kind": "r", "persistence": "p", "identity": identity, "has_identity_key": True}
    return LeafRelation(oid=next(OIDS), schema="public", name=name, **(usual | changes))


def names(chosen: list[CatalogRelation]) -> list[str]:
    return [str(r.table) for r in chosen]


def messages(found: CatalogRelation, leaves: tuple[LeafRelation, ...] = (), *access: Any) -> list[str]:
    return [problem.message for problem in problems_of(found, leaves, access)]


def hints(found: CatalogRelation, leaves: tuple[LeafRelation, ...] = ()) -> list[str]:
    return [problem.hint for problem in problems_of(found, leaves, ())]


# Patterns


def test_h142_a_name_with_a_dot_is_found_by_its_text() -> None:
    quoted = '"my.schema"."t"'
    assert names(select([relation("t", "my.schema")], [quoted], [])[0]) == ["my.schema.t"]
    assert takes("my.schema.t", [quoted], [])
    assert not takes("my.schema.t", ["my.schema.*"], [quoted])
    assert takes("my.schema.t", ["my.schema.t"], [])
    assert not takes("my.schema.u", [quoted], [])


def test_h143_an_entry_that_matches_nothing_hides_no_other() -> None:
    said: list[str] = []
    tables = [relation("orders"), relation("items", "shop")]
    found, _ = select(
        tables, ["public.gone", "public.orders", "shop.*"], [], missing=lambda error: said.append(error.message)
    )
    assert names(found) == ["public.orders", "shop.items"]
    assert said == ["the table public.gone does not exist"]
    with pytest.raises(ConfigError, match=r"public\.gone does not exist"):
        select(tables, ["public.gone", "public.orders"], [])


def test_names_and_wildcards() -> None:
    tables = [relation("orders"), relation("order_items"), relation("customers"), relation("orders", "shop")]
    assert names(select(tables, ["public.orders"], [])[0]) == ["public.orders"]
    assert names(select(tables, ["public.order*"], [])[0]) == ["public.order_items", "public.orders"]
    assert names(select(tables, ["*.orders"], ["shop.*"])[0]) == ["public.orders"]
    assert names(select(tables, ["public.*", "public.orders"], ["public.customers"])[0]) == (
        ["public.order_items", "public.orders"]
    )


def test_a_quoted_name_is_that_name_and_no_pattern() -> None:
    tables = [relation("b.c", "a"), relation("c", "a.b"), relation("*"), relation('q"t')]
    assert names(select(tables, ["a.b.c"], [])[0]) == ["a.b.c", "a.b.c"]
    assert [r.table for r in select(tables, ['"a.b"."c"'], [])[0]] == [TableName("a.b", "c")]
    assert names(select(tables, ['"public"."*"'], [])[0]) == ["public.*"]
    assert names(select(tables, ['"public"."q""t"'], [])[0]) == ['public.q"t']


schema_names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)


@given(schema_names, schema_names)
def test_every_table_can_be_named_in_quotes(schema: str, table: str) -> None:
    quoted = '"{}"."{}"'.format(schema.replace('"', '""'), table.replace('"', '""'))
    pattern = Pattern.parse(quoted)
    assert pattern.takes(TableName(schema, table))
    assert not pattern.takes(TableName(schema, table + "x"))


@pytest.mark.parametrize(
    ("entry", "exclude", "message", "hint"),
    [
        ("orders", (), '"orders" names no schema', '"public.orders"'),
        ("public.order", (), "the table public.order does not exist", 'did you mean "public.orders"?'),
        ("shop.*", (), '"shop.*" meets no table', "check schema and database"),
        ("public.orders", ("public.*",), '[source] exclude leaves nothing of "public.orders"', "take the entry out"),
    ],
)
def test_an_entry_that_meets_nothing_is_refused(entry: str, exclude: tuple[str, ...], message: str, hint: str) -> None:
    with pytest.raises(ConfigError) as raised:
        select([relation("orders")], [entry], exclude)
    assert message in raised.value.message
    assert hint in raised.value.hint


def test_h45_partitions_come_under_their_topmost_captured_table() -> None:
    root = relation("p", kind="p")
    middle = relation("p_eu", kind="p", ancestors=[root.oid])
    bottom = relation("p_eu_1", ancestors=[middle.oid, root.oid])
    tree = [root, middle, bottom]
    assert names(select(tree, ["public.*"], [])[0]) == ["public.p"]
    assert names(select(tree, ["public.*"], ["public.p"])[0]) == ["public.p_eu"]
    assert names(select(tree, ["public.p_eu_1"], [])[0]) == ["public.p_eu_1"]


def test_h50_a_wildcard_leaves_out_aloud_what_no_slot_delivers() -> None:
    tables = [
        relation("orders"), relation("cache", persistence="u"), relation("far", kind="f"), relation("v", kind="v"),
        relation("m", kind="m"), relation("zero", has_columns=False),
    ]  # fmt: skip
    chosen, left_out = select(tables, ["public.*"], [])
    assert names(chosen) == ["public.orders"]
    assert {(out.table.table, out.reason) for out in left_out} == {
        ("cache", "it is unlogged"), ("far", "it is a foreign table"), ("zero", "it has no columns")
    }  # fmt: skip
    assert names(select(tables, ["public.*", "public.cache"], [])[0]) == ["public.cache", "public.orders"]


# Problems


def test_a_usual_table_has_none() -> None:
    assert messages(relation("orders")) == []
    assert messages(relation("orders", identity="f")) == []
    assert messages(relation("orders", identity="i", identity_index=["b", "a"])) == []


def test_h42_a_table_without_a_key_is_refused_with_the_sql() -> None:
    assert messages(relation("t", primary_key=[])) == ["public.t has no key, and a compacted topic needs one"]
    (hint,) = hints(relation("t", primary_key=[]))
    assert hint.startswith('alter table "public"."t" add column id bigint generated always as identity primary key;')
    assert hints(relation("t", primary_key=[], unique_index_name='u"x')) == [
        'alter table "public"."t" replica identity using index "u""x";'
    ]
    assert messages(relation("t", primary_key=[], identity="f")) != []


def test_h42_replica_identity_nothing_breaks_the_application() -> None:
    assert "its updates and deletes fail" in messages(relation("t", identity="n"))[0]
    assert hints(relation("t", identity="n")) == ['alter table "public"."t" replica identity default;']


def test_h42_a_lost_identity_index_is_noticed() -> None:
    assert "is gone" in messages(relation("t", identity="i"))[0]


def test_h41_a_deferrable_key_needs_whole_old_rows() -> None:
    table = relation("t", primary_key_deferrable=True)
    assert "deferrable" in messages(table)[0]
    assert hints(table) == ['alter table "public"."t" replica identity full;']
    assert messages(relation("t", primary_key_deferrable=True, identity="f")) == []


def test_h45_partitions_must_have_the_identity_of_their_root() -> None:
    root = relation("p", kind="p")
    assert messages(root, (leaf("p_1"), leaf("p_2"))) == []
    (problem,) = problems_of(root, (leaf("p_1"), leaf("p_2", "f")), ())
    assert "public.p_2 has another replica identity" in problem.message
    assert problem.hint == 'alter table "public"."p_2" replica identity default;'
    full = relation("p", kind="p", identity="f")
    assert hints(full, (leaf("p_1"),)) == ['alter table "public"."p_1" replica identity full;']


@pytest.mark.parametrize(
    ("table", "leaves", "part"),
    [
        (relation("v", kind="v"), (), "is a view"),
        (relation("m", kind="m"), (), "is a materialized view"),
        (relation("f", kind="f"), (), "is a foreign table"),
        (relation("u", persistence="u"), (), "is unlogged"),
        (relation("z", has_columns=False), (), "has no columns"),
        (relation("p", kind="p"), (leaf("p_f", kind="f"),), "public.p_f, a partition of public.p, is a foreign table"),
        (relation("p", kind="p"), (leaf("p_u", persistence="u"),), "is unlogged"),
    ],
)
def test_h50_what_no_slot_delivers_is_refused_by_name(
    table: CatalogRelation, leaves: tuple[LeafRelation, ...], part: str
) -> None:
    (message,) = messages(table, leaves)
    assert part in message


def test_h27_rights_and_row_security() -> None:
    table = relation("t")

    def rights(**changes: Any) -> Any:
        usual = {"oid": table.oid, "usage": True, "unreadable": [], "partly": True, "hidden": False, "role": "cdc"}
        return SimpleNamespace(**(usual | changes))

    assert messages(table, (), rights()) == []
    for change, hint in (
        ({"usage": False}, 'grant usage on schema "public" to "cdc";'),
        ({"unreadable": ["a", "b"], "partly": False}, 'grant select on "public"."t" to "cdc";'),
        (
            {"unreadable": ["a", "b"]},
            'grant select ("a", "b") on "public"."t" to "cdc";   '
            "or leave them out of the publication, by a column list",
        ),
        ({"hidden": True}, 'alter role "cdc" bypassrls;'),
    ):
        (problem,) = problems_of(table, (), [rights(**change)])
        assert problem.hint == hint


def test_h83_two_tables_with_one_topic_both_hear_of_it() -> None:
    one, other, fine = TableName("s", "a b"), TableName("s", "a_b"), TableName("s", "c")
    found = topic_problems("shop", [(one, "shop.s.a_b"), (other, "shop.s.a_b"), (fine, "shop.s.c")])
    assert set(found) == {one, other}
    assert "would share the topic" in found[one][0].message
    reserved = topic_problems("shop", [(TableName("x", "y"), "shop.state")])
    assert "reserved" in reserved[TableName("x", "y")][0].message


# Kinds


def type_(oid: int, name: str, **changes: Any) -> Type:
    usual: dict[str, Any] = {
        "schema": "pg_catalog", "kind": "b", "base": 0, "typmod": -1, "element": 0, "extension": None
    }  # fmt: skip
    return Type(oid=oid, name=name, **(usual | changes))


TYPES = {
    t.oid: t
    for t in (
        type_(23, "int4"), type_(1007, "_int4", element=23), type_(1114, "timestamp"),
        type_(1, "posint", schema="public", kind="d", base=23),
        type_(2, "ts3", schema="public", kind="d", base=1114, typmod=3),
        type_(3, "ts33", schema="public", kind="d", base=2),
        type_(4, "_posint", schema="public", element=1),
        type_(5, "ints", schema="public", kind="d", base=1007),
        type_(6, "_ints", schema="public", element=5),
        type_(7, "mood", schema="public", kind="e"),
        type_(8, "pair", schema="public", kind="c"),
        type_(9, "hstore", schema="public", extension="hstore"),
        type_(10, "hstore", schema="mine", kind="c"),
        type_(11, "tsquery"),
    )
}  # fmt: skip


@pytest.mark.parametrize(
    ("oid", "typmod", "resolved"),
    [
        (23, -1, Resolved("int4", False, -1)),
        (1, -1, Resolved("int4", False, -1)),
        (3, -1, Resolved("timestamp", False, 3)),
        (1007, -1, Resolved("int4", True, -1)),
        (4, -1, Resolved("int4", True, -1)),
        (5, -1, Resolved("int4", True, -1)),
        (6, -1, Resolved("other", True, -1)),
        (7, -1, Resolved("enum", False, -1)),
        (8, -1, Resolved("other", False, -1)),
        (9, -1, Resolved("hstore", False, -1)),
        (10, -1, Resolved("other", False, -1)),
        (11, -1, Resolved("other", False, -1)),
        (99, 7, Resolved("other", False, 7)),
    ],
)
def test_h35_types_resolve_through_domains_and_arrays(oid: int, typmod: int, resolved: Resolved) -> None:
    assert resolve(oid, typmod, TYPES) == resolved


def test_types_are_read_until_nothing_is_missing() -> None:
    known = {3: TYPES[3]}
    assert missing({3, 7}, known) == {7, 2}
    assert missing({3}, TYPES) == set()


@pytest.mark.parametrize("name", ["public." + "a" * 126, "public." + "ab" * 63])
def test_h94_a_pattern_of_many_stars_takes_few_steps(name: str) -> None:
    expression = Pattern.parse("public." + "*a" * 20 + "*c").expression
    assert Steps(expression).match(name, whole=True)[1] < 22 * len(name)


@given(st.text("ab*", max_size=7), st.text("ab", max_size=9))
def test_a_pattern_takes_what_its_stars_may_stand_for(text: str, name: str) -> None:
    wanted = re.fullmatch(".*".join(map(re.escape, f"s.{text}".split("*"))), f"s.{name}") is not None
    assert Pattern.parse(f"s.{text}*").takes(TableName("s", name + "c")) or not wanted
    assert (Pattern.parse(f"s.*{text}").expression.fullmatch(f"s.{name}") is not None) == (
        re.fullmatch(".*".join(map(re.escape, f"s.*{text}".split("*"))), f"s.{name}") is not None
    )
