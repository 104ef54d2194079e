"""Rows of a table with masks are kept for later only where their masks are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from cdc.aside import CannotFollow
from cdc.mask_rules import MaskKey, MaskRule, Masks
from cdc.schema import TableSchema
from cdc.settings import Settings, parse
from cdc.testing import MemoryCompactedTopic
from cdc.topic import TableName
from connectors.kafka.schema_registry import SchemaRegistry
from connectors.postgres.held import LATER
from connectors.postgres.masked_shapes import masked_shape
from connectors.postgres.messages import Relation, RelationColumn
from connectors.session.mask_lineage import MaskLineage
from connectors.session.relations import Relations
from tests.unit.connectors.postgres import written as w

KEY = "0123456789abcdef0123456789abcdef"
PLAIN = w.table(
    replace(w.column("id", "text", 0), attnum=1),
    replace(w.column("mail", "text"), attnum=2),
    replace(w.column("note", "text"), attnum=3),
)


class Topics:
    """Every table is captured, and none has partitions; or only that one which once had every relation."""

    def __init__(self, parent: str | None = None) -> None:
        self._parent = parent

    def topic(self, table: TableName) -> str | None:
        return f"shop.{table}" if self._parent is None or str(table) == self._parent else None

    def partition_of(self, oid: int) -> str | None:
        return self._parent

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **named: None


def settings(**rules: str) -> Settings:
    return parse(
        {
            "name": "shop",
            "source": {"dsn": "host=h dbname=app", "tables": ["public.*"], "mask_key": "env:RELATIONS_MASK_KEY"},
            "log": {"bootstrap_servers": "127.0.0.1:9092"},
            "tables": {"public.orders": {"columns": rules}} if rules else {},
        }
    )


def masks(**rules: str) -> Masks:
    return Masks({"public.orders": {column: MaskRule.parse(rule) for column, rule in rules.items()}}, MaskKey(KEY))


def relations(known: TableSchema | None, **rules: str) -> Relations:
    registry = SchemaRegistry(MemoryCompactedTopic())
    if known is not None:
        registry.register(known)
    return Relations(
        cast(Any, None), settings(**rules), cast(Any, Topics()), registry, visible=lambda xid, timeout_s: False
    )


def announced(*names: str, type_oid: int = 25) -> Relation:
    columns = tuple(RelationColumn(name=name, type_oid=type_oid, typmod=-1, in_key=name == "id") for name in names)
    return Relation(relation_oid=w.OID, schema="public", table="orders", identity=PLAIN.identity, columns=columns)


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELATIONS_MASK_KEY", KEY)


def test_h286_rows_wait_under_names_that_the_log_masks() -> None:
    one = relations(masked_shape(PLAIN, masks(mail="hmac", note="drop")), mail="hmac", note="drop")
    # Another type, so that the catalog has to be asked.
    assert one.schema(announced("id", "mail", "note", type_oid=1043), 700, 1.0) is LATER
    one.kept(announced("id", "mail", "note", type_oid=1043))


@pytest.mark.parametrize("names", [("id", "address", "note"), ("id", "note", "mail"), ("id", "mail")])
@pytest.mark.parametrize("known", [None, PLAIN, masked_shape(PLAIN, masks(mail="hmac"))])
def test_h286_rows_of_other_names_are_not_kept(names: tuple[str, ...], known: TableSchema | None) -> None:
    one = relations(known, mail="hmac")
    with pytest.raises(CannotFollow, match="has masks, and its columns changed"):
        one.schema(announced(*names), 700, 1.0)
    with pytest.raises(CannotFollow, match="has masks, and its columns changed"):
        one.kept(announced(*names))


def test_h286_a_table_that_was_masked_is_one_with_masks() -> None:
    one = relations(masked_shape(PLAIN, masks(mail="hmac")))
    with pytest.raises(CannotFollow, match="has masks"):
        one.schema(announced("id", "mail", "note"), 700, 1.0)


def test_a_table_without_masks_waits_under_any_name() -> None:
    assert relations(PLAIN).schema(announced("id", "address"), 700, 1.0) is LATER


def test_h344_rows_of_a_part_without_masks_are_not_kept() -> None:
    """Its detachment is not visible yet, so nobody asks the catalog. Right behind its table it has no rows."""
    low = replace(announced("id", "mail", "note"), relation_oid=11, table="low")
    tree = announced("id", "mail", "note", type_oid=1043)
    registry = SchemaRegistry(MemoryCompactedTopic(), lineage=MaskLineage(masks(mail="hmac"), {}))
    registry.lineage.saw({"public.orders": [11]})
    registry.register(masked_shape(PLAIN, masks(mail="hmac")))
    one = Relations(
        cast(Any, None), settings(mail="hmac"), cast(Any, Topics("public.orders")), registry,
        visible=lambda xid, timeout_s: False,
    )  # fmt: skip
    looks: list[Callable[[], object]] = [lambda: one.schema(low, 700, 1.0), lambda: one.kept(low)]
    for look in looks:
        with pytest.raises(CannotFollow, match=r"was a partition of public\.orders, which masks mail"):
            look()
    assert one.schema(tree, 700, 1.0) is LATER
    assert one.schema(low, 700, 1.0) is LATER
