"""Which captured tables the stream says nothing of, though they are there."""

from __future__ import annotations

from cdc.checks.facts import PublicationFacts
from cdc.following import OPERATIONS, captured_oids, not_followed
from cdc.state import FormState, SnapshotTableState
from cdc.topic import TableName

T, U = TableName("public", "t"), TableName("public", "u")
OIDS = {"public.t": 10, "public.u": 20}


def publication(*tables: TableName, operations: frozenset[str] = OPERATIONS) -> PublicationFacts:
    return PublicationFacts(publication="p", operations=operations, via_root=True, tables=frozenset(tables))


def test_h96_a_published_or_dropped_table_is_no_fault() -> None:
    assert not_followed(OIDS, OIDS, {10: T, 20: U}, publication(T, U)) == {}
    assert not_followed(OIDS, OIDS, {10: T}, publication(T)) == {}
    assert not_followed(OIDS, {}, {}, publication()) == {}
    assert not_followed(OIDS, OIDS, {10: T}, None) == {}, "that the publication is gone is told otherwise"


def test_h96_what_is_out_renamed_or_made_anew_is_said() -> None:
    renamed = TableName("public", "v")
    assert not_followed(["public.t"], OIDS, {10: T, 20: U}, publication(U)) == {
        "public.t": "public.t is not in the publication p: it is not followed"
    }
    assert not_followed(["public.t"], OIDS, {11: T}, publication(U)) == {
        "public.t": "public.t was made anew, and is not in the publication p: it is not followed"
    }
    assert not_followed(["public.t"], OIDS, {10: renamed}, publication(renamed)) == {
        "public.t": "public.t was renamed to public.v, and is not followed under that name"
    }


def test_h96_a_publication_without_an_operation_is_a_fault() -> None:
    found = not_followed(OIDS, OIDS, {10: T, 20: U}, publication(T, U, operations=frozenset(("insert", "delete"))))
    assert found["public.u"] == "public.u is not followed: the publication p leaves out truncate, update"
    assert len(found) == 2


def test_the_watch_knows_better_than_the_first_snapshot() -> None:
    plan = SnapshotTableState(
        table="public.t", schema="public", name="t", topic="t", oid=10, version=1, generation=1, chunks=1
    )
    form = FormState(table="public.t", oid=11, columns=[], leaves=[], publication="*")
    assert captured_oids({plan.key(): plan.to_json()}) == {"public.t": 10}
    assert captured_oids({plan.key(): plan.to_json(), form.key(): form.to_json()}) == {"public.t": 11}
