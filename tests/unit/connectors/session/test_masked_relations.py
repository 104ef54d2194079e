"""Rows of a table with masks are never kept for later: until the catalog can be read nobody can say what is masked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from cdc.capture.table_masks import MaskNotes
from cdc.record.schema import TableSchema
from cdc.record.tables_aside import CannotFollow
from cdc.record.topic_names import TableName
from cdc.settings.mask_rules import MaskKey, MaskRule, Masks
from cdc.settings.model import Settings, parse
from connectors.kafka.schema_registry import SchemaRegistry
from connectors.postgres.assembly.pending_records import LATER
from connectors.postgres.encoding.masked_rows import masked_shape
from connectors.postgres.protocol.messages import Relation, RelationColumn
from connectors.session.relations import Relations
from tests.memory_log import MemoryCompactedTopic
from tests.unit.connectors.postgres import written as w

KEY = "0123456789abcdef0123456789abcdef"
PLAIN = w.table(
    replace(w.column("id", "text", 0), attnum=1),
    replace(w.column("mail", "text"), attnum=2),
    replace(w.column("note", "text"), attnum=3),
)


class Nothing:
    """A session to a catalog in which nothing is a part of anything."""

    def execute(self, *_: object) -> Nothing:
        return self

    def fetchall(self) -> list[Any]:
        return []


class Topics:
    """Every table is captured, and none has partitions. Or only those of these names."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def topic(self, table: TableName) -> str | None:
        return f"shop.{table}" if not self._names or str(table) in self._names else None

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **named: None


def settings(*tables: str, **rules: str) -> Settings:
    return parse(
        {
            "name": "shop",
            "source": {"dsn": "host=h dbname=app", "tables": list(tables), "mask_key": "env:RELATIONS_MASK_KEY"},
            "log": {"bootstrap_servers": "127.0.0.1:9092"},
            "tables": {"public.orders": {"columns": rules}} if rules else {},
        }
    )


def masks(**rules: str) -> Masks:
    of = {"public.orders": {column: MaskRule.parse(rule) for column, rule in rules.items()}} if rules else {}
    return Masks(of, MaskKey(KEY))


def relations(known: TableSchema | None, topics: Topics, *tables: str, seen: bool = False, **rules: str) -> Relations:
    """``seen``: whether the catalog shows the transaction. A partition of old is known."""
    notes = MaskNotes(masks(**rules))
    notes.saw({"public.orders": [11]} if rules else {})
    registry = SchemaRegistry(MemoryCompactedTopic(), notes=notes)
    if known is not None:
        registry.register(known)
    return Relations(
        cast(Any, Nothing()), settings(*tables or ("public.*",), **rules), cast(Any, topics), registry,
        visible=lambda xid, timeout_s: seen,
    )  # fmt: skip


def announced(*names: str, type_oid: int = 25) -> Relation:
    columns = tuple(RelationColumn(name=name, type_oid=type_oid, typmod=-1, in_key=name == "id") for name in names)
    return Relation(relation_oid=w.OID, schema="public", table="orders", identity=PLAIN.identity, columns=columns)


LOW = replace(announced("id", "mail", "note"), relation_oid=11, table="low")
NOT_KEPT = "has masks, and the catalog does not show yet how it is now"


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELATIONS_MASK_KEY", KEY)


def refused(*looks: Callable[[], object]) -> None:
    for look in looks:
        with pytest.raises(CannotFollow, match=NOT_KEPT):
            look()


@pytest.mark.parametrize("names", [("id", "mail", "note"), ("id", "note", "mail"), ("id", "mail")])
@pytest.mark.parametrize("known", [None, PLAIN, masked_shape(PLAIN, masks(mail="hmac"))])
def test_h286_rows_of_a_table_with_masks_are_not_kept(names: tuple[str, ...], known: TableSchema | None) -> None:
    """Not even under the names that the log knows: another column may have one of them."""
    one = relations(known, Topics(), mail="hmac")
    refused(lambda: one.schema(announced(*names), 700, 1.0), lambda: one.kept(announced(*names)))


def test_h286_a_table_that_was_masked_is_one_with_masks() -> None:
    one = relations(masked_shape(PLAIN, masks(mail="hmac")), Topics())
    refused(lambda: one.schema(announced("id", "mail", "note"), 700, 1.0))


def test_a_table_without_masks_waits_under_any_name() -> None:
    one = relations(PLAIN, Topics())
    assert one.schema(announced("id", "address"), 700, 1.0) is LATER
    one.kept(announced("id", "address"))


def test_h344_rows_of_a_part_without_masks_are_not_kept() -> None:
    """Its detachment is not visible yet, so nobody asks the catalog. Where it is captured it is no partition now."""
    one = relations(masked_shape(PLAIN, masks(mail="hmac")), Topics("public.orders"), mail="hmac")
    refused(lambda: one.schema(LOW, 700, 1.0), lambda: one.kept(LOW))
    captured = relations(masked_shape(PLAIN, masks(mail="hmac")), Topics("public.orders", "public.low"), mail="hmac")
    refused(lambda: captured.schema(LOW, 700, 1.0), lambda: captured.kept(LOW))


def test_h344_a_part_that_the_settings_do_not_take_is_passed() -> None:
    one = relations(masked_shape(PLAIN, masks(mail="hmac")), Topics("public.orders"), "public.orders", mail="hmac")
    assert one.schema(LOW, 700, 1.0) is None
