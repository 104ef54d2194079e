"""A relation that is or was a part of a table with masks, or that table under another name, is not registered plain."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cdc.capture.table_masks import MaskNotes
from cdc.process.errors import ConfigError
from cdc.record.schema import TableSchema
from cdc.record.topic_names import TableName
from cdc.settings.mask_rules import NO_MASKS, MaskKey, MaskRule, Masks
from connectors.kafka.schema_registry import SchemaRegistry
from connectors.postgres.encoding.masked_rows import masked_shape
from tests.memory_log import MemoryCompactedTopic
from tests.unit.connectors.postgres import written as w

TREE, LOW = TableName("public", "orders"), TableName("public", "low")
PLAIN = w.table(
    *(
        replace(column, attnum=at)
        for at, column in enumerate((w.column("id", "int4", 0), w.column("mail", "text"), w.column("note", "text")), 1)
    )
)
KEY = MaskKey("0123456789abcdef0123456789abcdef")
CONNECTORS = Path(__file__).parents[4] / "connectors"
LACKS = "lacks masks that it has as a part of another table, or had under another name: "


def masks(**rules: dict[str, str]) -> Masks:
    of = {f"public.{table}": {one: MaskRule.parse(rule) for one, rule in each.items()} for table, each in rules.items()}
    return Masks(of, KEY)


def registry(now: Masks, *known: TableSchema) -> SchemaRegistry:
    """One that knows a part of the table of old."""
    topic, notes = MemoryCompactedTopic(), MaskNotes(now)
    SchemaRegistry(topic).register_all(known)
    notes.saw({str(TREE): [11, 12]})
    return SchemaRegistry(topic, notes=notes)


def named(table: TableName, oid: int, **changes: str) -> TableSchema:
    columns = tuple(replace(one, name=changes.get(one.name, one.name)) for one in PLAIN.columns)
    return replace(PLAIN, table=table, oid=oid, columns=columns)


def low(**changes: str) -> TableSchema:
    return named(LOW, 11, **changes)


@pytest.mark.parametrize(
    ("own", "plain"),
    [
        ({}, "mail of public.orders, note of public.orders"),
        ({"mail": "truncate:3"}, "note of public.orders"),
        ({"note": "drop"}, "mail of public.orders"),
    ],
)
def test_h340_a_part_is_not_registered_without_masks(own: dict[str, str], plain: str) -> None:
    """The mask of note was taken off in the settings, and the log has it."""
    before = masked_shape(PLAIN, masks(orders={"note": "hmac"}))
    now = masks(orders={"mail": "hmac"}, low=own)
    with pytest.raises(ConfigError, match=f"public.low {LACKS}{plain}$"):
        registry(now, before).register(masked_shape(low(), now))


def test_h340_a_part_that_was_captured_plain_is_refused() -> None:
    """Its shape is the one that the log has."""
    one = registry(masks(orders={"mail": "hmac"}), low())
    assert one.has_masks(LOW, 11) and not one.has_masks(LOW, 13)
    with pytest.raises(ConfigError, match=LACKS + "mail of public.orders"):
        one.register(low())


def test_h342_a_column_with_another_name_cannot_be_told() -> None:
    for now in (masks(orders={"mail": "hmac"}), masks(orders={"mail": "hmac"}, low={"contact": "hmac"})):
        with pytest.raises(ConfigError, match=LACKS + "mail of public.orders") as refused:
            registry(now).register(masked_shape(low(mail="contact"), now))
        assert "rename it back first" in (refused.value.hint or "")


def test_parts_with_masks_and_other_tables_are_taken() -> None:
    now = masks(orders={"mail": "hmac"}, low={"mail": "drop"})
    one = registry(now)
    assert one.register(masked_shape(low(), now)).version == 1
    assert one.register(masked_shape(PLAIN, now)).version == 1, "its own table"
    assert one.register(named(TableName("public", "other"), 99)).version == 1


def test_h285_a_masked_column_under_another_name_is_refused() -> None:
    """Names that two columns exchanged, of which one is masked, and one that was dropped."""
    one = SchemaRegistry(MemoryCompactedTopic())
    for rule in ("hmac", "drop"):
        now = masks(orders={"mail": rule})
        known = one.register(masked_shape(PLAIN, now))
        assert one.has_masks(TREE, PLAIN.oid)
        with pytest.raises(ConfigError, match=LACKS + "mail of public.orders"):
            one.register(masked_shape(named(TREE, PLAIN.oid, mail="note", note="mail"), now))
        assert one.latest(known.table) == known
    assert one.register(PLAIN).version == 3, "a mask may be taken off under the same name"
    assert not one.has_masks(TREE, PLAIN.oid)


@pytest.mark.parametrize("name", ["a_name_before", "z_name_behind"])
def test_h285_a_relation_keeps_its_masks_under_any_name(name: str) -> None:
    """Also where another table has its name now."""
    renamed, one = TableName("public", name), SchemaRegistry(MemoryCompactedTopic())
    one.register(masked_shape(PLAIN, masks(orders={"mail": "hmac"})))
    one.register(replace(PLAIN, oid=7), new_key=True)
    with pytest.raises(ConfigError, match=f"public.{name} {LACKS}mail of public.orders"):
        one.register(named(renamed, PLAIN.oid))
    with_masks = masks(**{name: {"mail": "truncate:3"}})
    assert one.register(masked_shape(named(renamed, PLAIN.oid), with_masks)).version == 1
    with pytest.raises(ConfigError, match=f"public.orders {LACKS}mail of public.{name}"):
        one.register(PLAIN)
    assert one.register(named(renamed, PLAIN.oid)).version == 2, "taken off under the same name"


def test_h285_the_log_knows_the_last_name_of_a_relation() -> None:
    """Whoever reads it later has the same answer."""
    topic, renamed = MemoryCompactedTopic(), TableName("public", "clients")
    one = SchemaRegistry(topic)
    one.register(PLAIN)
    one.register(masked_shape(named(renamed, PLAIN.oid), masks(clients={"mail": "hmac"})))
    for each in (one, SchemaRegistry(topic)):
        with pytest.raises(ConfigError, match=r"mail of public\.clients"):
            each.register(PLAIN)


def test_h340_whatever_registers_native_shapes_has_notes() -> None:
    """The others only read shapes, or have those of Debezium, for which masks are refused."""
    found = {
        path.relative_to(CONNECTORS).as_posix()
        for path in CONNECTORS.rglob("*.py")
        if "SchemaRegistry(" in (text := path.read_text()) and "notes=" not in text
    }
    assert found == {
        "operate/forget.py", "operate/handover.py", "operate/verify.py", "spark_log/frame_log.py",
        "views/view_log.py", "views/view_planning.py", "views/view_topics.py",
    }  # fmt: skip
    assert not SchemaRegistry(MemoryCompactedTopic()).notes.masks and Masks() == NO_MASKS
