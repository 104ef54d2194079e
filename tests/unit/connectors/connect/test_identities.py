"""Which tables need REPLICA IDENTITY FULL under Debezium, by their columns in the catalog."""

from __future__ import annotations

import pytest

from cdc.schema import Column, Identity, TableSchema
from cdc.topic import TableName
from connectors.connect.identities import cautions, lost_deletes
from tests.unit.cdc.wire.debezium.recorded import after, changes, recorded

INDEXED = [r for r in recorded("sh_replica_identity") if r.topic.endswith(".ri_index") and r.value is not None]


def shape(kind: str, *, array: bool = False, typmod: int = -1, identity: Identity = Identity.DEFAULT) -> TableSchema:
    declared = "public.geometry(Point,4326)" if kind == "other" else kind
    columns = (
        Column(name="id", attnum=1, type="integer", type_oid=23, kind="int4", key_position=1),
        Column(name="v", attnum=2, type=declared, type_oid=0, kind=kind, array=array, typmod=typmod),
    )
    return TableSchema(
        table=TableName("public", "Orders"),
        topic="t",
        version=1,
        oid=1,
        encoding="readable",
        identity=identity,
        columns=columns,
    )


@pytest.mark.parametrize("kind", ["date", "numeric", "timestamp", "bool", "inet", "enum", "varbit"])
def test_h125_arrays_without_a_placeholder_are_warned_of(kind: str) -> None:
    [(message, fix)] = cautions([shape(kind, array=True)], "readable")
    assert message.startswith("public.Orders: ")
    assert "in v;" in message
    assert 'alter table "public"."Orders" replica identity full' in fix
    assert "ReselectColumnsPostProcessor" in fix
    assert cautions([shape(kind, array=True, identity=Identity.FULL)], "readable") == []


@pytest.mark.parametrize("kind", ["text", "jsonb", "bytea", "int4", "uuid"])
def test_arrays_with_a_placeholder_are_not(kind: str) -> None:
    assert cautions([shape(kind, array=True)], "readable") == []


@pytest.mark.parametrize(
    ("kind", "typmod", "encoding", "warned"),
    [
        ("varbit", -1, "readable", True),
        ("bit", 8, "readable", False),
        ("bit", 4000, "readable", True),
        ("path", -1, "readable", True),
        ("vector", -1, "readable", True),
        ("other", -1, "readable", True),
        ("text", -1, "readable", False),
        ("point", -1, "readable", False),
        ("numeric", -1, "readable", False),
        ("numeric", -1, "debezium", True),
        ("numeric", (10 << 16 | 2) + 4, "debezium", False),
    ],
)
def test_h125_other_types_by_what_may_be_stored_out_of_line(
    kind: str, typmod: int, encoding: str, warned: bool
) -> None:
    assert bool(cautions([shape(kind, typmod=typmod)], encoding)) is warned


def test_h588_an_index_beside_the_primary_key_is_warned_of() -> None:
    """Debezium writes the delete of the row 3 under the key 0, and an update of its key with no delete at all."""
    table = TableName("public", "Orders")
    [(message, fix)] = lost_deletes({table: ("u",)}, {table: ("id", "u")})
    assert message.startswith("public.Orders: its replica identity is an index without id of its primary key")
    assert fix == 'alter table "public"."Orders" replica identity default'
    assert lost_deletes({table: ("id", "u")}, {table: ("id",)}) == []
    assert lost_deletes({table: ("u",)}, {table: ()}) == [], "Debezium takes a unique index for the key"


def test_h588_a_connector_keeps_rows_that_such_a_table_has_not() -> None:
    """As the connector wrote it: Postgres has the row 2 alone in the end."""
    found = [(r.key, after(c)) for r, c in zip(INDEXED, changes(INDEXED), strict=True) if c.op != "d"]
    assert {key for key, _ in found} == {b'{"id":1}', b'{"id":2}', b'{"id":3}'}
    assert {c.key for c in changes(INDEXED) if c.op == "d"} == {b'{"id":0}'}
