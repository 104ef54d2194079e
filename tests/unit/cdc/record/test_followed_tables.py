"""Which captured tables the stream says nothing of, or not of all their rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from cdc.record.server_facts import PublicationFacts
from cdc.record.state import FormState, SnapshotTableState
from cdc.record.tables_aside import NAME_CHILDREN, OPERATIONS, captured_oids, not_followed
from cdc.record.topic_names import TableName

T, U = TableName("public", "t"), TableName("public", "u")
OIDS = {"public.t": 10, "public.u": 20}


def publication(*tables: TableName, operations: frozenset[str] = OPERATIONS) -> PublicationFacts:
    return PublicationFacts(publication="p", operations=operations, via_root=True, tables=frozenset(tables))


def said(
    tables: Iterable[str],
    oids: Mapping[str, int],
    relations: Mapping[int, TableName],
    sent: PublicationFacts | None,
    children: Mapping[int, Sequence[TableName]] = MappingProxyType({}),
) -> dict[str, str]:
    return {table: one.why for table, one in not_followed(tables, oids, relations, sent, children).items()}


def test_h96_a_published_table_is_no_fault() -> None:
    assert said(OIDS, OIDS, {10: T, 20: U}, publication(T, U)) == {}
    assert said(OIDS, {}, {}, publication()) == {}, "of a table that nobody has seen nothing is known"
    assert said(OIDS, OIDS, {10: T}, None) == {}, "that the publication is gone is told otherwise"


def test_y10_a_dropped_table_is_said_and_loses_nothing() -> None:
    found = not_followed(OIDS, OIDS, {10: T}, publication(T), {})
    assert found.keys() == {"public.u"}
    assert found["public.u"].why == "public.u is gone from the source: its topic and its rows in the stores stay"
    assert found["public.u"].fix.startswith('take it out of [source] tables, or add it to exclude: "public.u"')
    assert not found["public.u"].lacking, "it is not set aside: no change of it is missing"


def test_w3_a_child_that_came_later_is_said_and_the_parent_flows() -> None:
    child = TableName("old", "c")
    (found,) = not_followed(["public.t"], OIDS, {10: T}, publication(T), {10: [child]}).values()
    assert found.why == "public.t has rows in tables that inherit from it and are not captured: old.c"
    assert (found.fix, found.lacking) == (NAME_CHILDREN, False)


def test_h96_what_is_out_renamed_or_made_anew_is_said() -> None:
    renamed = TableName("public", "v")
    assert said(["public.t"], OIDS, {10: T, 20: U}, publication(U)) == {
        "public.t": "public.t is not in the publication p: it is not followed"
    }
    assert said(["public.t"], OIDS, {11: T}, publication(U)) == {
        "public.t": "public.t was made anew, and is not in the publication p: it is not followed"
    }
    assert said(["public.t"], OIDS, {10: renamed}, publication(renamed)) == {
        "public.t": "public.t was renamed to public.v, and is not followed under that name"
    }


def test_h96_a_publication_without_an_operation_is_a_fault() -> None:
    found = said(OIDS, OIDS, {10: T, 20: U}, publication(T, U, operations=frozenset(("insert", "delete"))))
    assert found["public.u"] == "public.u is not followed: the publication p leaves out truncate, update"
    assert len(found) == 2


def test_the_watch_knows_better_than_the_first_snapshot() -> None:
    plan = SnapshotTableState(
        table="public.t", schema="public", name="t", topic="t", oid=10, version=1, generation=1, chunks=1
    )
    form = FormState(table="public.t", oid=11, columns=[], leaves=[], publication="*")
    assert captured_oids({plan.key(): plan.to_json()}) == {"public.t": 10}
    assert captured_oids({plan.key(): plan.to_json(), form.key(): form.to_json()}) == {"public.t": 11}
