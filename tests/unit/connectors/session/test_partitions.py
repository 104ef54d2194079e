"""Partitions as the stream's announcements tell of them (H145, H147)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from cdc.record.schema import Column, Identity, TableSchema
from cdc.record.tables_aside import CannotFollow, Cause
from cdc.record.topic_names import TableName
from connectors.postgres.protocol.messages import Relation, RelationColumn
from connectors.session.partitions import PartitionLink, Partitions, tells_key

TABLE = TableName("public", "parted")


def parted(identity: Identity = Identity.DEFAULT, *key: str) -> TableSchema:
    keys = key or ("id",)
    columns = tuple(
        Column(
            name=name,
            attnum=number,
            type="integer",
            type_oid=23,
            kind="int4",
            array=False,
            typmod=-1,
            nullable=False,
            key_position=keys.index(name) if name in keys else None,
            generated=False,
        )
        for number, name in enumerate(("id", "k"), 1)
    )
    return TableSchema(
        table=TABLE,
        topic="shop.public.parted",
        version=1,
        oid=10,
        encoding="readable",
        identity=identity,
        deferrable_key=False,
        columns=columns,
    )


def leaf(identity: Identity = Identity.DEFAULT, *flagged: str) -> Relation:
    columns = tuple(
        RelationColumn(name=n, type_oid=23, typmod=-1, in_key=n in (flagged or ("id",))) for n in ("id", "k")
    )
    return Relation(relation_oid=11, schema="public", table="leaf", identity=identity, columns=columns)


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

    def visible(self, xid: int, timeout_s: float) -> bool:
        self.waits += 1
        return True

    def came(self) -> None:
        self.partitions().came(parted(), leaf(), 703)
        assert not self.found, "the catalog was asked less often"

    def partitions(self, *, watched: bool = True) -> Partitions:
        return Partitions(self.link, self, visible=self.visible, watched=watched)


def test_h145_one_that_is_there_is_noted_for_the_watch() -> None:
    world = World(HERE)
    world.came()
    assert (world.seen, world.asked, world.waits) == ({"11": 700}, [], 0)


def test_h145_one_made_by_a_subtransaction_was_no_partition() -> None:
    world = World(MADE)
    world.came()
    assert (world.seen, world.asked, world.waits) == ({"11": 705}, [], 0)


def test_h145_one_made_in_the_transaction_is_judged_once_visible() -> None:
    world = World(GONE, HERE)
    world.came()
    assert (world.seen, world.asked, world.waits) == ({"11": 700}, [], 1)


@pytest.mark.parametrize(
    ("found", "asked"),
    [(GONE, ("public.parted had a partition that is gone", 91)),
     (ANEW, ("public.parted had a partition detached for a while", 92))],
)  # fmt: skip
def test_h145_one_that_is_gone_has_its_table_read_again(found: PartitionLink, asked: tuple[str, int]) -> None:
    world = World(found, found)
    world.came()
    assert (world.seen, world.asked) == ({}, [asked])


def test_h145_a_table_without_partitions_has_no_foreign_ones() -> None:
    world = World(None)
    world.came()
    assert (world.seen, world.asked) == ({}, [])


def test_h145_only_what_follows_a_table_at_once_is_its_partition() -> None:
    world = World(HERE)
    partitions = world.partitions()
    partitions.behind(leaf(), 703)
    partitions.announced(9, None)
    partitions.behind(leaf(), 703)
    assert world.seen == {}
    partitions.announced(10, parted())
    partitions.behind(leaf(), 703)
    partitions.behind(leaf(), 703)
    assert (world.seen, world.found) == ({"11": 700}, [])


def test_h145_an_unread_tables_partitions_are_judged_once_read() -> None:
    world = World(GONE, GONE, HERE)
    partitions = world.partitions()
    partitions.kept(10)
    partitions.behind(leaf(), 701)
    assert not world.asked
    partitions.readable(10, parted())
    assert world.asked == [("public.parted had a partition that is gone", 91)]
    partitions.kept(10)
    partitions.behind(leaf(), 702)
    partitions.readable(10, None)
    partitions.readable(10, parted())
    assert world.seen == {}, "one that is not followed is read again anyway"
    # What is decoded meanwhile changes nothing of what the stream has announced last.
    partitions.announced(10, parted())
    partitions.readable(8, parted())
    partitions.behind(leaf(), 703)
    assert world.seen == {"11": 700}


@pytest.mark.parametrize(
    ("root", "identity", "flagged", "tells"),
    [(Identity.DEFAULT, Identity.DEFAULT, ("id",), True), (Identity.DEFAULT, Identity.INDEX, ("k",), False),
     (Identity.DEFAULT, Identity.INDEX, ("id", "k"), True), (Identity.DEFAULT, Identity.FULL, ("id", "k"), True),
     (Identity.INDEX, Identity.DEFAULT, ("k",), False), (Identity.DEFAULT, Identity.NOTHING, (), True),
     (Identity.FULL, Identity.DEFAULT, ("id",), False), (Identity.FULL, Identity.FULL, ("id", "k"), True)],
)  # fmt: skip
def test_h147_a_partition_has_to_tell_of_which_row_it_speaks(
    root: Identity, identity: Identity, flagged: tuple[str, ...], tells: bool
) -> None:
    assert tells_key(parted(root), identity, flagged) is tells


@pytest.mark.parametrize("watched", [True, False])
def test_h147_other_old_keys_of_a_partition_set_a_table_aside(watched: bool) -> None:
    with pytest.raises(CannotFollow, match=r"public\.leaf has another replica identity than public\.parted") as error:
        World(HERE).partitions(watched=watched).came(parted(), leaf(Identity.INDEX, "k"), 703)
    assert (error.value.tables, error.value.cause) == ((TABLE,), Cause.CHANGED)


def test_h147_a_relation_that_is_no_partition_sets_nothing_aside() -> None:
    world = World(None)
    world.partitions().came(parted(), leaf(Identity.INDEX, "k"), 703)
    gone = World(GONE, GONE)
    gone.partitions().came(parted(), leaf(Identity.INDEX, "k"), 703)
    assert (len(gone.asked), world.asked) == (1, [])
