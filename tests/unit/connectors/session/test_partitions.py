"""Partitions that come and go between two looks, as the stream's announcements tell of them (H145)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from cdc.topic import TableName
from connectors.session.partitions import PartitionLink, Partitions

TABLE = TableName("public", "parted")
HERE = PartitionLink(True, {"11": 700}, {"11": 700}, 90)
GONE = PartitionLink(False, {}, {}, 91)
ANEW = PartitionLink(True, {"11": 705}, {"11": 705}, 92)
MADE = PartitionLink(True, {"11": 705}, {}, 93)


class World:
    """A catalog that says one thing after the other, and what is noted."""

    def __init__(self, *found: PartitionLink | None) -> None:
        self.found = list(found)
        self.asked: list[tuple[str, int]] = []
        self.seen: dict[str, int] = {}
        self.waits = 0

    def link(self, oid: int, leaf_oid: int) -> PartitionLink | None:
        assert (oid, leaf_oid) == (10, 11)
        return self.found.pop(0)

    def saw_partitions(self, table: TableName, links: Mapping[str, int]) -> None:
        self.seen |= links

    def ask_again(self, table: TableName, reason: str, *, after_lsn: int = 0) -> None:
        self.asked.append((f"{table} {reason}", after_lsn))

    def visible(self, xid: int, patience_s: float) -> bool:
        self.waits += 1
        return True

    def came(self) -> None:
        Partitions(self.link, self, visible=self.visible, xid=lambda: 703).came(TABLE, 10, 11)
        assert not self.found, "the catalog was asked less often"


def test_h145_one_that_is_there_is_noted_for_the_watch() -> None:
    world = World(HERE)
    world.came()
    assert (world.seen, world.asked, world.waits) == ({"11": 700}, [], 0)


def test_h145_one_that_a_subtransaction_made_was_no_partition_before() -> None:
    world = World(MADE)
    world.came()
    assert (world.seen, world.asked, world.waits) == ({"11": 705}, [], 0)


def test_h145_one_that_the_transaction_made_itself_is_looked_for_once_it_is_visible() -> None:
    world = World(GONE, HERE)
    world.came()
    assert (world.seen, world.asked, world.waits) == ({"11": 700}, [], 1)


@pytest.mark.parametrize(
    ("found", "asked"),
    [(GONE, ("public.parted had a partition that is gone", 91)),
     (ANEW, ("public.parted had a partition detached for a while", 92))],
)  # fmt: skip
def test_h145_one_that_is_gone_has_its_table_read_behind_all_that_it_can_have_brought(
    found: PartitionLink, asked: tuple[str, int]
) -> None:
    world = World(found, found)
    world.came()
    assert (world.seen, world.asked) == ({}, [asked])


def test_h145_a_relation_beside_a_table_without_partitions_is_none_of_its() -> None:
    world = World(None)
    world.came()
    assert (world.seen, world.asked) == ({}, [])
