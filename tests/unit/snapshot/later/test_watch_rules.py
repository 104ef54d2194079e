"""What the catalog watch makes of two looks at one table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.record.schema import Column, Identity, TableSchema
from cdc.record.state import FormState, SnapshotTableState
from cdc.record.topic_names import TableName
from snapshot.later.watch_rules import RereadReason, form_of_plan, gone_forms, need

BEFORE = FormState(
    table="public.t",
    oid=10,
    columns=[[1, "id", 23, -1, False], [2, "at", 1114, 3, False]],
    leaves=[[10, "public", "t", 100]],
    publication="*",
)


def leaf(oid: int, filenode: int = 0) -> list[object]:
    return [oid, "public", f"p{oid}", filenode or oid]


def test_nothing_is_asked_for_what_events_tell_or_none_publish() -> None:
    assert need(BEFORE, BEFORE) is None
    plain = replace(BEFORE, columns=[*BEFORE.columns, [3, "new", 23, -1, False]])
    assert need(BEFORE, plain) is None
    assert need(BEFORE, replace(BEFORE, columns=BEFORE.columns[:1])) is None
    assert need(BEFORE, replace(BEFORE, oid=11, publication="")) is None


def test_h468_a_table_that_is_gone_is_noted_once() -> None:
    other = replace(BEFORE, table="public.other")
    (gone,) = gone_forms({"public.t": BEFORE, "public.other": other}, {"public.other"})
    assert gone == replace(BEFORE, publication="")
    assert gone_forms({"public.t": gone, "public.other": other}, {"public.other"}) == []
    anew = need(gone, replace(BEFORE, oid=11))
    assert anew is not None and anew.added, "what came back is read"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"leaves": [[10, "public", "t", 101]]}, "was rewritten or truncated"),
        ({"oid": 11}, "was dropped and made anew"),
        ({"publication": "1 2"}, "is published with other columns or rows"),
        ({"columns": [[1, "id", 23, -1, False], [2, "at", 1114, 6, False]]}, "has another type of the column at"),
        ({"columns": [[1, "id", 20, -1, False], [2, "at", 1114, 3, False]]}, "has another type of the column id"),
        ({"columns": [[1, "id", 23, -1, False], [3, "at", 1114, 3, False]]}, "has another column at than before"),
        ({"columns": [[1, "id", 23, -1, False], [2, "then", 1114, 3, False]]}, "has its column at renamed to then"),
        (
            {"columns": [*BEFORE.columns, [3, "n", 23, -1, True]]},
            "has a new column n, which older rows have a value for",
        ),
    ],
)
def test_h85_h37_what_no_event_tells_is_asked_for(change: dict[str, object], reason: str) -> None:
    found = need(BEFORE, replace(BEFORE, **change))  # type: ignore[arg-type]
    assert found == RereadReason(reason, unsent="oid" in change or "publication" in change)


def test_h85_a_new_file_with_the_same_columns_has_the_same_rows() -> None:
    known = replace(BEFORE, born={"1": 700, "2": 701})
    moved = replace(known, leaves=[[10, "public", "t", 101]])
    rewritten = RereadReason("was rewritten or truncated")
    assert need(known, moved) is None
    assert need(known, replace(moved, born={"1": 700, "2": 702})) == rewritten
    assert need(known, replace(moved, born={"1": 700})) == rewritten
    assert need(known, replace(moved, born={})) == rewritten, "of a partition, or not read with the file"
    assert need(BEFORE, moved) == rewritten, "not known from before"
    assert need(BEFORE, replace(BEFORE, leaves=moved.leaves)) == rewritten


def test_h86_partitions_come_and_go() -> None:
    before = replace(BEFORE, leaves=[leaf(11), leaf(12)])
    assert need(before, replace(before, leaves=[leaf(11)])) == RereadReason("lost a partition with its rows")
    grown = replace(before, leaves=[leaf(11), leaf(12), leaf(13), leaf(14)])
    assert need(before, grown, [14]) == RereadReason("got a partition that has rows", leaves=("public.p13",))
    assert need(before, grown, [13, 14]) is None
    assert need(before, replace(before, leaves=[leaf(11, 99), leaf(12)])) == RereadReason("was rewritten or truncated")


def test_h145_a_partition_between_two_looks_shows_by_its_changes() -> None:
    before = replace(BEFORE, leaves=[leaf(11)], links={"11": 700})
    gone = RereadReason("had a partition that is gone", unsent=True)
    detached = RereadReason("had a partition detached for a while", unsent=True)
    assert need(before, before, streamed={"11": 700}) is None
    assert need(before, before, streamed={"12": 701}) == gone
    back = replace(before, leaves=[leaf(11), leaf(12)], links={"11": 700, "12": 703})
    assert need(before, back, streamed={"12": 701}) == detached, "its rows alone would leave what was deleted meanwhile"
    assert need(before, back, streamed={"12": 703}) == RereadReason(
        "got a partition that has rows", leaves=("public.p12",)
    )
    again = replace(before, links={"11": 702})
    assert need(before, again, streamed={"11": 702}) == detached, "it left before it brought the change"
    assert need(replace(before, entries="1"), replace(before, entries="2"), streamed={"12": 701}) == gone


def test_h73_a_table_added_to_the_publication_needs_its_barrier() -> None:
    assert need(replace(BEFORE, publication=""), BEFORE) == RereadReason(
        "came into the publication", added=True, unsent=True
    )


def test_the_first_snapshots_plan_tells_what_the_table_was() -> None:
    columns = (Column(name="id", attnum=1, type="integer", type_oid=23, kind="int4", key_position=0),)
    shape = TableSchema(
        table=TableName("public", "t"),
        topic="s.public.t",
        version=1,
        oid=10,
        encoding="readable",
        identity=Identity.DEFAULT,
        deferrable_key=False,
        columns=columns,
    )
    plan = SnapshotTableState(
        table="public.t",
        schema="public",
        name="t",
        topic="s.public.t",
        oid=10,
        version=1,
        generation=1,
        chunks=1,
        leaves=[{"oid": 10, "schema": "public", "name": "t", "filenode": 100}],
        publication="*",
    )
    left = form_of_plan(plan, shape)
    assert need(left, replace(BEFORE, columns=[[1, "id", 23, -1, False]])) is None
    rewritten = replace(BEFORE, columns=[[1, "id", 23, -1, False]], leaves=[[10, "public", "t", 101]])
    assert need(left, rewritten) == RereadReason("was rewritten or truncated")
    marked = replace(plan, entries="7/800", types={"e5.glad": 900}, links={"11": 901})
    seen = form_of_plan(marked, shape)
    now = replace(seen, columns=[[1, "id", 23, -1, False]])
    assert need(seen, now) is None
    assert need(seen, replace(now, publication="* {filter}")) == RereadReason(
        "is published with other columns or rows", unsent=True
    )
    assert need(seen, replace(now, entries="7/950")) == RereadReason(
        "may have been unpublished for a while", republished=True, unsent=True
    )
    assert need(seen, replace(now, types={"e5.glad": 950})) == RereadReason("has values of an enum that was altered")
    assert need(seen, replace(now, links={"11": 950})) == RereadReason(
        "had a partition detached for a while", unsent=True
    )


def test_h96_a_publication_changed_back_has_other_entries() -> None:
    before = replace(BEFORE, entries="7/800 9/801")
    assert need(before, before) is None
    again = need(before, replace(before, entries="7/800 9/950"))
    assert again == RereadReason("may have been unpublished for a while", republished=True, unsent=True)
    assert need(BEFORE, before) is None, "nothing is known of the entries from before"
    filtered = replace(before, publication="* {filter}", entries="7/800 9/950")
    assert need(before, filtered) == RereadReason("is published with other columns or rows", unsent=True)


def test_h139_a_partition_that_was_attached_again_is_noticed() -> None:
    before = replace(BEFORE, leaves=[leaf(11), leaf(12)], links={"11": 700, "12": 701})
    assert need(before, before) is None
    again = replace(before, links={"11": 700, "12": 950})
    assert need(before, again) == RereadReason("had a partition detached for a while", unsent=True)
    gone = replace(before, leaves=[leaf(11)], links={"11": 700})
    assert need(before, gone) == RereadReason("lost a partition with its rows")
    assert need(gone, before, [12]) is None, "a new one that is empty"
    assert need(replace(before, links={}), before) is None, "nothing is known of them from before"


@pytest.mark.parametrize(
    ("types", "kind"),
    [
        ({"e50.51": 710, "c60.1": 701, "d70.0": 702}, "an enum"),
        ({"e50.51": 700, "c60.1": 711, "d70.0": 702}, "a composite type"),
        ({"e50.51": 700, "c60.1": 701, "c60.2": 711, "d70.0": 702}, "a composite type"),
        ({"e50.51": 700, "c60.1": 701, "d70.0": 712}, "a domain"),
    ],
)
def test_h98_a_type_that_was_altered_makes_its_tables_be_read(types: dict[str, int], kind: str) -> None:
    before = replace(BEFORE, types={"e50.51": 700, "c60.1": 701, "d70.0": 702})
    assert need(before, replace(before, types=types)) == RereadReason(f"has values of {kind} that was altered")


def test_h98_a_new_label_or_a_new_type_changes_no_row() -> None:
    before = replace(BEFORE, types={"e50.51": 700})
    assert need(before, replace(before, types={"e50.51": 700, "e50.52": 710, "c60.1": 711})) is None
    assert need(before, replace(before, types={})) is None
    assert need(BEFORE, before) is None


def announced(*names: str, oid: int = 10) -> TableSchema:
    """A shape of the table as the stream brought it; a name that the catalog does not have has no number."""
    numbers = {"id": 1, "at": 2, "seen": 2}
    columns = [
        Column(name=name, attnum=numbers.get(name, 0), type="int", type_oid=23, kind="int4", nullable=True)
        for name in names
    ]
    return TableSchema(
        table=TableName("public", "t"),
        topic="shop.public.t",
        version=5,
        encoding="readable",
        oid=oid,
        identity=Identity.DEFAULT,
        deferrable_key=False,
        columns=tuple(columns),
    )


@pytest.mark.parametrize("names", [("id", "b2"), ("at", "id"), ("b2",), ("id", "b2", "more")])
def test_h146_a_column_that_had_another_name_for_a_while(names: tuple[str, ...]) -> None:
    found = need(BEFORE, BEFORE, announced=[announced("id", "at"), announced(*names)])
    assert found is not None
    assert found.reason.startswith("had a column under the name")


def test_h146_a_column_added_meanwhile_hides_no_renaming() -> None:
    grown = replace(BEFORE, columns=[*BEFORE.columns, [3, "new", 23, -1, False]])
    found = need(BEFORE, grown, announced=[announced("id", "seen")])
    assert found == RereadReason("had a column under the name seen for a while")


def test_h146_a_dropped_column_or_another_table_is_no_renaming() -> None:
    grown = replace(BEFORE, columns=[*BEFORE.columns, [3, "new", 23, -1, False]])
    assert need(BEFORE, grown, announced=[announced("id", "at")]) is None
    assert need(BEFORE, BEFORE, announced=[announced("id", "b2", oid=11)]) is None
