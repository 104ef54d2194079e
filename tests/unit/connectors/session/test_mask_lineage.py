"""A part of a table with masks that is captured by itself needs its masks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cdc.errors import ConfigError
from cdc.mask_rules import MaskKey, MaskRule, Masks
from cdc.schema import TableSchema
from cdc.testing import MemoryCompactedTopic
from cdc.topic import TableName
from connectors.kafka.schema_registry import SchemaRegistry
from connectors.postgres.masked_shapes import masked_shape
from connectors.session.mask_lineage import MaskLineage
from tests.unit.connectors.postgres import written as w

TREE, LOW = TableName("public", "orders"), TableName("public", "low")
PLAIN = w.table(w.column("id", "int4", 0), w.column("mail", "text"), w.column("note", "text"))
KEY = MaskKey("0123456789abcdef0123456789abcdef")
CONNECTORS = Path(__file__).parents[4] / "connectors"


def masks(**rules: dict[str, str]) -> Masks:
    of = {f"public.{table}": {one: MaskRule.parse(rule) for one, rule in each.items()} for table, each in rules.items()}
    return Masks(of, KEY)


def registry(now: Masks, *known: TableSchema) -> SchemaRegistry:
    topic = MemoryCompactedTopic()
    SchemaRegistry(topic).register_all(known)
    found = SchemaRegistry(topic, lineage=MaskLineage(now, {}))
    found.lineage.saw({str(TREE): [11, 12]})
    return found


def low(**changes: str) -> TableSchema:
    columns = tuple(replace(one, name=changes.get(one.name, one.name)) for one in PLAIN.columns)
    return replace(PLAIN, table=LOW, oid=11, columns=columns)


@pytest.mark.parametrize(
    ("own", "plain"), [({}, "mail, note"), ({"mail": "truncate:3"}, "note"), ({"note": "drop"}, "mail")]
)
def test_h340_a_part_is_not_registered_without_masks(own: dict[str, str], plain: str) -> None:
    """The mask of note was taken off in the settings, and the log has it."""
    before = masked_shape(PLAIN, masks(orders={"note": "hmac"}))
    now = masks(orders={"mail": "hmac"}, low=own)
    with pytest.raises(ConfigError, match=f"was a partition of public.orders, which masks {plain}, and has no mask"):
        registry(now, before).register(masked_shape(low(), now))


def test_h340_a_part_that_was_captured_plain_is_refused() -> None:
    """Its shape is the one that the log has."""
    with pytest.raises(ConfigError, match="which masks mail"):
        registry(masks(orders={"mail": "hmac"}), low()).register(low())


def test_h342_a_column_with_another_name_cannot_be_told() -> None:
    for now in (masks(orders={"mail": "hmac"}), masks(orders={"mail": "hmac"}, low={"contact": "hmac"})):
        with pytest.raises(ConfigError, match="which masks mail") as refused:
            registry(now).register(masked_shape(low(mail="contact"), now))
        assert "rename it back first" in (refused.value.hint or "")


def test_parts_with_masks_and_other_tables_are_taken() -> None:
    now = masks(orders={"mail": "hmac"}, low={"mail": "drop"})
    one = registry(now)
    assert one.register(masked_shape(low(), now)).version == 1
    assert one.register(masked_shape(PLAIN, now)).version == 1, "its own table"
    other = replace(PLAIN, table=TableName("public", "other"), oid=99)
    assert one.register(other).version == 1


def test_a_part_is_of_the_table_that_had_it_first() -> None:
    lineage = MaskLineage(masks(orders={"mail": "hmac"}), {})
    lineage.saw({str(TREE): [11]})
    lineage.saw({"public.free": [11, 13]})
    assert [lineage.parent(oid) for oid in (11, 13, 14)] == [str(TREE), "public.free", None]


def test_h340_whatever_registers_native_shapes_has_a_lineage() -> None:
    """The others only read shapes, or have those of Debezium, which masks by itself."""
    found = {
        path.relative_to(CONNECTORS).as_posix()
        for path in CONNECTORS.rglob("*.py")
        if "SchemaRegistry(" in (text := path.read_text()) and "lineage=" not in text
    }
    assert found == {
        "connect/handed_over.py", "connect/locate.py", "forgetting.py", "frame_log.py",
        "verified.py", "view_log.py", "view_planning.py", "view_topics.py",
    }  # fmt: skip
