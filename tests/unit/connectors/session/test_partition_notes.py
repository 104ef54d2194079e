"""Partitions that no look has compared yet are noted until one has (H148)."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from cdc.record.state import FormState, PartitionsState, SnapshotTableState, find_all
from connectors.session.partitions import PartitionNotes
from tests.memory_log import MemoryCompactedTopic

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


class SlowTopic(MemoryCompactedTopic):
    """Its brokers take a write only when they are let. ``begun``: one waits."""

    def __init__(self) -> None:
        super().__init__()
        self.let = threading.Semaphore(0)
        self.begun = threading.Event()

    def write(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        self.begun.set()
        assert self.let.acquire(timeout=30)
        super().write(records)


def test_h150_a_known_partition_waits_for_no_looks_write() -> None:
    """The stream announces a partition in each transaction of it."""
    state = SlowTopic()
    state.let.release()
    state.write([form(p11=700)])
    found = notes(state)
    state.let.release()
    found.saw(TABLE, {"p12": 705})
    state.begun.clear()
    with ThreadPoolExecutor(2) as threads:
        look = threads.submit(found.settle, {TABLE: {"p12": 705}})
        assert state.begun.wait(30)
        threads.submit(found.saw, TABLE, {"p11": 700}).result(10)
        threads.submit(found.saw, TABLE, {"p12": 705}).result(10)
        state.let.release()
        look.result(30)
    assert (noted(state), found.new) == ({}, {TABLE: {"p11": 700}})


def test_h150_a_new_partitions_note_stands_behind_a_looks_write() -> None:
    state = SlowTopic()
    found = notes(state)
    state.let.release()
    found.saw(TABLE, {"p12": 705})
    state.begun.clear()
    with ThreadPoolExecutor(2) as threads:
        look = threads.submit(found.settle, {TABLE: {"p12": 705}})
        assert state.begun.wait(30)
        stream = threads.submit(found.saw, TABLE, {"p13": 710})
        state.let.release(2)
        look.result(30)
        stream.result(30)
    assert noted(state) == {TABLE: {"p13": 710}} == found.new
