"""A table's shape under its masks, and the masks that cannot be kept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.process.errors import ConfigError
from cdc.record.schema import DroppedColumn, Identity, Mask, TableSchema
from cdc.settings.mask_rules import NO_MASKS, MaskKey, MaskRule, Masks
from connectors.kafka.schema_registry import SchemaRegistry
from connectors.postgres.encoding.masked_rows import masked_shape, require_passed
from tests.memory_log import MemoryCompactedTopic
from tests.unit.connectors.postgres import written as w

KEY = MaskKey("0123456789abcdef0123456789abcdef")
MASKED = f"hmac:{KEY.fingerprint}"


def table(**changes: object) -> TableSchema:
    columns = (w.column("id", "int4", 0), w.column("mail", "numeric", typmod=6), w.column("tags", "text", array=True))
    shape = w.table(*(replace(column, attnum=at + 1) for at, column in enumerate(columns)))
    return replace(shape, **changes)  # type: ignore[arg-type]


def masks(**rules: str) -> Masks:
    return Masks({"public.orders": {column: MaskRule.parse(rule) for column, rule in rules.items()}}, KEY)


def test_a_table_without_masks_keeps_its_shape() -> None:
    assert masked_shape(table(), NO_MASKS) is not None
    shape = table()
    assert masked_shape(shape, NO_MASKS) is shape
    assert "mask" not in shape.to_json().decode() and "dropped" not in shape.to_json().decode()


def test_a_masked_column_is_text_and_says_of_what() -> None:
    shape = masked_shape(table(), masks(mail="hmac", tags="drop"))
    mail = shape.columns[1]
    assert (mail.kind, mail.type, mail.type_oid, mail.array, mail.typmod) == ("text", "text", 25, False, -1)
    assert mail.mask == Mask(rule=MASKED, type="numeric", type_oid=25, kind="numeric", typmod=6)
    assert [column.name for column in shape.columns] == ["id", "mail"]
    assert shape.dropped == (DroppedColumn(name="tags", attnum=3, type_oid=25),)
    assert shape.noted_masks == {"mail": MASKED, "tags": "drop"}
    assert TableSchema.from_json(shape.to_json()) == shape


def test_a_type_under_a_mask_is_part_of_the_shape() -> None:
    one = masked_shape(table(), masks(mail="hmac"))
    columns = tuple(
        replace(c, kind="int4", type="integer", type_oid=23) if c.name == "mail" else c for c in table().columns
    )
    assert not one.same_shape(masked_shape(table(columns=columns), masks(mail="hmac")))


@pytest.mark.parametrize(
    ("shape", "rules", "match"),
    [
        (table(), {"gone": "hmac"}, "gone of public.orders, which has no such column"),
        (table(), {"id": "drop"}, "by hmac alone"),
        (table(), {"id": "truncate:3"}, "by hmac alone"),
        (table(), {"id": "hmac"}, "looked up by the key"),
        (table(identity=Identity.FULL, deferrable_key=True), {"id": "hmac"}, "deferrable"),
    ],
)
def test_masks_that_cannot_be_kept(shape: TableSchema, rules: dict[str, str], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        masked_shape(shape, masks(**rules))


def test_a_key_may_be_masked_where_nothing_is_looked_up() -> None:
    assert masked_shape(table(identity=Identity.FULL), masks(id="hmac")).masked_key
    assert masked_shape(table(), masks(id="hmac", mail="drop", tags="drop")).masked_key
    hidden = masked_shape(table(identity=Identity.FULL), masks(id="hmac"))
    assert hidden.key_form != table(identity=Identity.FULL).key_form


def numbered(**numbers: int) -> TableSchema:
    return w.table(*(replace(w.column(name, "text"), attnum=number) for name, number in numbers.items()))


PASSED = masked_shape(numbered(id=1, mail=2, note=4), masks(mail="hmac", note="drop"))


@pytest.mark.parametrize(
    ("names", "now"),
    [
        (["id", "mail", "note"], numbered(id=1, mail=2, note=4)),
        (["id", "mail", "note"], numbered(id=1, mail=2, note=4, late=5)),
        (["id", "mail", "note", "gone"], numbered(id=1, mail=2, note=4, late=6)),
        (["id", "mail", "note"], None),
    ],
)
def test_a_message_begins_with_the_columns_that_were_passed(names: list[str], now: TableSchema | None) -> None:
    require_passed(PASSED, w.OID, names, now)


@pytest.mark.parametrize(
    ("names", "now"),
    [
        (["id", "address", "note"], numbered(id=1, address=2, note=4)),
        (["id", "note", "mail"], numbered(id=1, note=2, mail=4)),
        (["id", "note", "mail"], numbered(id=1, mail=2, note=4)),
        (["id", "mail", "note"], numbered(id=1, mail=4, note=5)),
        (["id", "mail", "note"], numbered(id=1, note=2, mail=4)),
        (["id", "mail"], numbered(id=1, mail=2)),
        (["id", "mail", "note"], numbered(id=1, mail=2, late=5)),
        (["id", "mail", "address"], None),
    ],
)
def test_h284_columns_of_uncertain_names_are_refused(names: list[str], now: TableSchema | None) -> None:
    with pytest.raises(ConfigError, match=r"public\.orders, which has masks, was made anew, or columns of it were"):
        require_passed(PASSED, w.OID, names, now)


def test_h284_another_relation_of_the_name_is_another_table() -> None:
    with pytest.raises(ConfigError, match="was made anew"):
        require_passed(PASSED, 99, ["id", "mail", "note"], numbered(id=1, mail=2, note=4))


def test_h288_other_masks_of_a_key_are_taken_alone() -> None:
    registry = SchemaRegistry(MemoryCompactedTopic())
    full = table(identity=Identity.FULL)
    registry.register(full)
    assert registry.register(masked_shape(full, masks(id="hmac"))).version == 2
    other = Masks({"public.orders": {"id": MaskRule.parse("hmac")}}, MaskKey("f" * 32))
    assert registry.register(masked_shape(full, other)).version == 3
    assert registry.register(full).version == 4
    longer = replace(full, columns=(full.columns[0], replace(full.columns[1], key_position=1), full.columns[2]))
    with pytest.raises(ConfigError, match="the key of"):
        registry.register(masked_shape(longer, masks(id="hmac")))


def keyed(kind: str, typmod: int = -1) -> TableSchema:
    key = replace(table().columns[0], kind=kind, type=f"{kind}:{typmod}", typmod=typmod)
    return table(columns=(key, *table().columns[1:]), identity=Identity.FULL)


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        (("numeric", 655365), ("numeric", 655367), False),
        (("numeric", -1), ("timestamptz", -1), False),
        (("int4", -1), ("int8", -1), True),
        (("varchar", 14), ("text", -1), True),
    ],
)
@pytest.mark.parametrize(("first", "second"), [("hmac", "hmac"), ("", "hmac"), ("hmac", "")])
def test_h346_a_mask_hides_no_other_type_of_a_key(
    before: tuple[str, int], after: tuple[str, int], same: bool, first: str, second: str
) -> None:
    """1.0 and 1.000 are two keys, masked or not."""
    registry = SchemaRegistry(MemoryCompactedTopic())
    was, now = (
        masked_shape(keyed(*one), masks(id=rule) if rule else NO_MASKS)
        for one, rule in ((before, first), (after, second))
    )
    assert (was.key_form == now.key_form) == (same and first == second)
    registry.register(was)
    if same:
        assert registry.register(now).version == 2
    else:
        with pytest.raises(ConfigError, match="the key of"):
            registry.register(now)
