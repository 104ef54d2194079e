"""Partitions that no look has compared yet are noted until one has (H148)."""

from __future__ import annotations

from cdc.state import FormState, PartitionsState, SnapshotTableState, find_all
from cdc.testing import MemoryCompactedTopic
from connectors.session.partition_notes import PartitionNotes

TABLE = "public.parted"


def form(**links: int) -> tuple[bytes, bytes]:
    one = FormState(table=TABLE, oid=10, columns=[], leaves=[], publication="all", links=links)
    return one.key(), one.to_json()


def notes(state: MemoryCompactedTopic) -> PartitionNotes:
    return PartitionNotes(state, state.read())


def noted(state: MemoryCompactedTopic) -> dict[str, dict[str, int]]:
    return {one.table: one.links for one in find_all(state.read(), PartitionsState)}


def test_h148_a_new_partition_is_noted_until_a_look_compares_it() -> None:
    state = MemoryCompactedTopic()
    state.write([form(p11=700)])
    first = notes(state)
    first.saw(TABLE, {"p11": 700})
    assert (first.new, noted(state)) == ({TABLE: {"p11": 700}}, {}), "a look knows it"
    first.saw(TABLE, {"p12": 705})
    assert noted(state) == {TABLE: {"p11": 700, "p12": 705}}
    # A capture that died takes it up.
    second = notes(state)
    assert second.new == {TABLE: {"p11": 700, "p12": 705}}
    compared = second.new
    second.saw(TABLE, {"p13": 710})
    second.settle(compared)
    assert second.new == {TABLE: {"p13": 710}} == noted(state)
    second.settle(second.new)
    assert (second.new, noted(state)) == ({}, {})


def test_h148_one_that_was_attached_again_is_new() -> None:
    state = MemoryCompactedTopic()
    plan = SnapshotTableState(
        table=TABLE,
        schema="public",
        name="parted",
        topic="t",
        oid=10,
        version=1,
        generation=1,
        chunks=1,
        links={"p11": 7},
    )
    state.write([(plan.key(), plan.to_json())])
    found = notes(state)
    found.saw(TABLE, {"p11": 7})
    assert noted(state) == {}, "the first snapshot saw it"
    found.saw(TABLE, {"p11": 9})
    assert noted(state) == {TABLE: {"p11": 9}} == found.new
    found.settle(found.new)
    found.saw(TABLE, {"p11": 9})
    assert noted(state) == {}
