"""Keys that rows had under other masks, found in the topic."""

from __future__ import annotations

from dataclasses import replace

from cdc.mask_rules import MaskKey, MaskRule, Masks
from cdc.position import Position
from cdc.schema import Identity, TableSchema
from cdc.wire.records import LoggedRecord
from connectors.postgres.masked_shapes import masked_shape
from snapshot.later.former_keys import AT_ONCE, former_keys, other_keys
from tests.unit.connectors.postgres import written as w

FLOOR = Position(1, 100, 0).text()
PLAIN = replace(w.table(w.column("mail", "text", 0), w.column("n", "int4")), identity=Identity.FULL)


def masked(key: str, version: int, **rules: str) -> TableSchema:
    masks = Masks(
        {"public.orders": {column: MaskRule.parse(rule) for column, rule in rules.items()}}, MaskKey(key * 32)
    )
    return replace(masked_shape(PLAIN, masks), version=version)


def record(
    key: str, lsn: int, ver: int, *, value: bytes | None = b"{}", op: bytes = b"c", partition: int = 0
) -> LoggedRecord:
    return LoggedRecord(partition, key.encode(), value, Position(1, lsn, 0).text().encode(), op, b"%d" % ver)


def found(*records: LoggedRecord) -> list[tuple[bytes, list[bytes]]]:
    return [(version, list(keys)) for version, keys in former_keys(records, FLOOR, {b"1", b"2"})]


def test_h289_versions_with_the_key_under_other_masks() -> None:
    plain = replace(PLAIN, version=1)
    one, other, note = masked("a", 2, mail="hmac"), masked("b", 3, mail="hmac"), masked("a", 4, n="hmac")
    shapes = [plain, one, other, note, replace(plain, table=plain.table._replace(table="another"))]
    assert other_keys(other, shapes) == {b"1", b"2", b"4"}
    assert other_keys(note, shapes) == {b"2", b"3"}, "the mask was taken off"
    assert other_keys(plain, [plain, note]) == set(), "the key is as it was"


def test_h289_keys_that_stand_below_the_floor_are_found() -> None:
    records = [
        record("old", 10, 1),
        record("older", 10, 2),
        record("old", 20, 1, op=b"u"),
        record("deleted", 10, 1),
        record("deleted", 20, 1, value=None, op=b"d"),
        record("of now", 10, 3),
        record("read", 100, 1),
        record("streamed", 10, 1),
        record("streamed", 120, 1),
        record("mark", 10, 1, op=b"t"),
        record("old", 10, 1, partition=1),
        LoggedRecord(1, b"of another writer", b"{}", None, None),
    ]
    assert found(*records) == [(b"1", [b"old"]), (b"2", [b"older"]), (b"1", [b"old"])]


def test_many_keys_come_in_several_lots() -> None:
    lots = found(*(record(f"k{number}", 1, 1) for number in range(AT_ONCE + 1)))
    assert [len(keys) for _, keys in lots] == [AT_ONCE, 1]
