"""Which tables have no whole rows under Debezium, by their identity."""

from __future__ import annotations

import pytest

from cdc.record.schema import Identity
from cdc.record.topic_names import TableName
from connectors.debezium.tables import is_whole, lost_deletes, unsent_values
from connectors.postgres.server.catalog_shapes import CapturedTable
from connectors.postgres.server.table_problems import LeafRelation
from tests.unit.cdc.wire.debezium.recorded import after, changes, recorded

INDEXED = [r for r in recorded("sh_replica_identity") if r.topic.endswith(".ri_index") and r.value is not None]


def captured(identity: Identity, *leaves: str) -> CapturedTable:
    return CapturedTable(
        oid=1,
        table=TableName("public", "Orders"),
        topic="t",
        partitioned=bool(leaves),
        identity=identity,
        key=("id",),
        deferrable_key=False,
        leaves=tuple(
            LeafRelation(
                oid=number,
                schema="public",
                name=f"p{number}",
                kind="r",
                persistence="p",
                identity=one,
                has_identity_key=True,
            )
            for number, one in enumerate(leaves)
        ),
        problems=(),
    )


@pytest.mark.parametrize(
    ("identity", "leaves", "whole"),
    [
        (Identity.FULL, "", True),
        (Identity.DEFAULT, "", False),
        (Identity.INDEX, "", False),
        (Identity.DEFAULT, "ff", True),
        (Identity.FULL, "fd", False),
    ],
)
def test_h125_a_partitions_own_identity_counts(identity: Identity, leaves: str, whole: bool) -> None:
    assert is_whole(captured(identity, *leaves)) is whole


def test_h125_a_table_without_whole_rows_is_named() -> None:
    problem = unsent_values(TableName("public", "Orders"), ["v", "w"])
    assert problem.message.startswith("public.Orders: an update lacks a large value that did not change, in v, w")
    assert 'alter table "public"."Orders" replica identity full' in problem.hint
    assert "ReselectColumnsPostProcessor" in problem.hint


def test_h588_an_index_beside_the_primary_key_is_refused() -> None:
    """Debezium writes the delete of the row 3 under the key 0, and an update of its key with no delete at all."""
    table = TableName("public", "Orders")
    [problem] = lost_deletes({table: ("u",)}, {table: ("id", "u")})
    assert problem.message.startswith("public.Orders: its replica identity is an index without id of its primary key")
    assert problem.hint == 'alter table "public"."Orders" replica identity full'
    assert lost_deletes({table: ("id", "u")}, {table: ("id",)}) == []
    assert lost_deletes({table: ("u",)}, {table: ()}) == [], "Debezium takes a unique index for the key"


def test_h588_a_connector_keeps_rows_that_such_a_table_has_not() -> None:
    """As the connector wrote it: Postgres has the row 2 alone in the end."""
    found = [(r.key, after(c)) for r, c in zip(INDEXED, changes(INDEXED), strict=True) if c.op != "d"]
    assert {key for key, _ in found} == {b'{"id":1}', b'{"id":2}', b'{"id":3}'}
    assert {c.key for c in changes(INDEXED) if c.op == "d"} == {b'{"id":0}'}
