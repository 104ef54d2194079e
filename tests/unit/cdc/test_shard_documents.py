"""The state topics of several shards, read as one pipeline's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from cdc.epochs import EpochsState, KeyedAnewState, epoch_of
from cdc.errors import ConfigError
from cdc.shard_documents import (
    MovedTable,
    ShardState,
    merged,
    moved_tables,
    noted_shards,
    require_undivided,
    require_unmoved,
    tables_of,
)
from cdc.state import Document, FormState, RequestState, SlotState, SnapshotState, TopicsState, requests_of
from cdc.testing import MemoryCompactedTopic
from cdc.verification.known_pipeline import known_of
from cdc.wal_witness import WalWitness

SLOT = SlotState(
    epoch=1, system_identifier="7", timeline=1, database="app", database_oid=5, slot="s", publication="p",
    consistent_point=80,
)  # fmt: skip
WHOLE = SnapshotState(epoch=1, state="complete", consistent_point=80, last_cut_lsn=90, rows=3, size_bytes=10)


def topics(*tables: str) -> TopicsState:
    made = {f"shop.{table}": {"id": table, "partitions": 1} for table in tables}
    return TopicsState(cluster_id="c", topics=made, tables={table: f"shop.{table}" for table in tables})


def form(table: str, oid: int) -> FormState:
    return FormState(table=table, oid=oid, columns=[], leaves=[], publication="")


def documents(*some: Document) -> dict[bytes, bytes]:
    return {one.key(): one.to_json() for one in some}


def test_h113_the_note_of_shards_stands_under_its_key() -> None:
    noted = ShardState(shard="sales")
    assert (noted.key(), noted.to_json()) == (b'{"what":"shard","shard":"sales"}', b'{"format":1,"shard":"sales"}')


def test_h405_two_shards_that_are_noted_at_once_are_both_noted() -> None:
    """Each by a record of its own, whatever it had read before."""
    topic = MemoryCompactedTopic()
    for shard in ("sales", "rest"):
        note = ShardState(shard=shard)
        topic.write([(note.key(), note.to_json())])
    assert noted_shards(topic.read()) == ["rest", "sales"]


def test_all_shards_together_have_every_table() -> None:
    request = RequestState(id="snapshot:public.b", table="public.b", after_lsn=8, reason="why")
    found = merged({"one": documents(topics("public.a")), "two": documents(topics("public.b"), request)})
    known = TopicsState.find(found)
    assert known == topics("public.a", "public.b")
    assert requests_of(found) == [request]


def test_a_shard_without_topics_hides_the_heads() -> None:
    """A store that read the tables of one shard alone would claim what it does not know."""
    found = merged({"one": documents(topics("public.a"), SLOT, WHOLE), "two": {}})
    assert (TopicsState.find(found), SlotState.find(found)) == (None, None)
    snapshot = SnapshotState.find(found)
    assert snapshot is not None
    assert snapshot.state == "running"
    assert merged({"one": {}, "two": {}}) == {}


def test_the_snapshot_is_as_far_as_the_last_shard() -> None:
    late = replace(WHOLE, consistent_point=70, last_cut_lsn=120, tables=["public.b"])
    found = SnapshotState.find(merged({"one": documents(WHOLE), "two": documents(late)}))
    assert found == replace(late, rows=6, size_bytes=20)
    running = replace(WHOLE, state="running")
    found = SnapshotState.find(merged({"one": documents(WHOLE), "two": documents(running)}))
    assert found is not None
    assert found.state == "running"


def test_h403_the_epoch_is_the_least() -> None:
    second = EpochsState().begin({"shop.public.b": {0: 7}}, "x", {"shop.public.b": "id"})
    one = documents(topics("public.a"), SLOT, WHOLE)
    two = documents(topics("public.b"), replace(SLOT, epoch=2, consistent_point=60), replace(WHOLE, epoch=2), second)
    found = merged({"one": one, "two": two})
    assert (epoch_of(found, "postgres"), known_of(found, "postgres").epoch) == (1, 1)
    epochs = EpochsState.find(found)
    assert epochs is not None
    assert (epochs.latest, epochs.ids, epochs.behind(1)) == (1, {}, {"shop.public.b": {0: 7}})
    slot = SlotState.find(found)
    assert slot is not None
    assert slot.consistent_point == 60


def test_h408_an_epoch_of_all_has_no_identity() -> None:
    """One of them all would be another one with another order, or another number, of shards."""
    first, second = (EpochsState().begin({f"shop.{t}": {0: 7}}, identity) for t, identity in (("a", "x"), ("b", "y")))
    found = EpochsState.find(merged({"one": documents(first), "two": documents(second)}))
    assert found is not None
    assert (found.latest, found.ids) == (2, {})
    assert found.epoch("shop.a", 0, 6) == found.epoch("shop.b", 0, 6) == 1


def test_h408_a_key_that_changed_in_a_former_epoch_of_its_shard() -> None:
    """The least epoch of all is one in which that shard had rows under the former key."""
    note = KeyedAnewState(topic="shop.public.b", epoch=1)
    second = EpochsState().begin({"shop.public.b": {0: 7}})
    for epochs, found in ((second, frozenset()), (EpochsState(), frozenset({"shop.public.b"}))):
        each = {"one": documents(topics("public.a")), "two": documents(topics("public.b"), epochs, note)}
        whole = EpochsState.find(merged(each))
        assert (whole.rekeyed() if whole is not None else None) == found


def test_h402_a_topic_that_moved_begins_where_its_shard_says() -> None:
    former = documents(topics("public.a"), EpochsState().begin({"shop.public.a": {0: 7}}))
    taker = documents(topics("public.a"), EpochsState().reaching(3, {"shop.public.a": {0: 50}}))
    for each in ({"one": former, "two": taker}, {"two": taker, "one": former}):
        found = EpochsState.find(merged(each))
        assert found is not None
        assert found.behind(2) == {"shop.public.a": {0: 50}}


def test_a_tables_document_is_that_of_its_shard() -> None:
    """A shard that gave a table up keeps what it noted of it."""
    left, right = form("public.a", 1), form("public.a", 2)
    for order in (("one", "two"), ("two", "one")):
        each = {"one": documents(topics("public.b"), left), "two": documents(topics("public.a"), right)}
        found = merged({name: each[name] for name in order})
        assert FormState.from_json(found[left.key()]).oid == 2


def test_a_witness_of_one_shard_is_none_of_all() -> None:
    witness = WalWitness(epoch=1, timeline=1, lsn=8, wal="00")
    assert merged({"one": documents(witness)}) == {}


@pytest.mark.parametrize("other", [b"{}", b"7", orjson.dumps({"table": 7})])
def test_what_is_no_tables_document_is_kept(other: bytes) -> None:
    assert merged({"one": {b'{"what":"x"}': other}}) == {b'{"what":"x"}': other}


def test_h402_a_table_that_changed_its_shard_is_named() -> None:
    each: dict[str, Any] = {"": {}, "one": documents(topics("public.a", "public.b")), "two": documents(topics())}
    moved = moved_tables(each, {"public.a": "one", "public.b": "two"})
    assert moved == [MovedTable("public.b", "one", "two")]
    for shard in ("one", "two"):
        with pytest.raises(ConfigError) as refused:
            require_unmoved(moved, shard)
        assert refused.value.message == (
            "public.b is written by the shard one, and the settings give it to the shard two"
        )
        assert "cdc init --new-epoch --shard two" in refused.value.hint
    require_unmoved(moved, "three")
    assert tables_of(each["two"]) == {}


def test_h404_a_divided_pipeline_is_not_captured_whole() -> None:
    require_undivided({}, "shop")
    with pytest.raises(ConfigError, match="is divided into the shards one, two"):
        require_undivided(documents(ShardState(shard="one"), ShardState(shard="two")), "shop")
