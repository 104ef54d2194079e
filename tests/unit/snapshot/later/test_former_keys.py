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
    return [(version, list(keys)) for version, keys in former_keys(lambda: records, FLOOR)]


def test_h289_versions_with_the_key_under_other_masks() -> None:
    plain = replace(PLAIN, version=1)
    one, other, note = masked("a", 2, mail="hmac"), masked("b", 3, mail="hmac"), masked("a", 4, n="hmac")
    elsewhere = replace(plain, table=plain.table._replace(table="another"), topic="elsewhere")
    assert other_keys(one, [one, plain]) and other_keys(one, [one, other])
    assert other_keys(note, [note, one]), "the mask was taken off"
    assert not other_keys(plain, [plain, note]), "the key is as it was"
    assert not other_keys(one, [one, elsewhere])


def test_h349_a_former_name_and_masks_that_came_back_count() -> None:
    one, other = masked("a", 1, mail="hmac"), masked("b", 2, mail="hmac")
    renamed = replace(PLAIN, table=PLAIN.table._replace(table="before"), version=1)
    assert other_keys(one, [one, renamed])
    assert other_keys(replace(one, version=3), [one, other])
    before = record("of before", 10, 3)
    assert found(before, record("alive", 10, 1), record("alive", 100, 3)) == [(b"3", [b"of before"])]


def test_keys_beyond_what_memory_may_hold_are_found_in_parts() -> None:
    records = [record(f"k{number}", 1, 1, partition=number % 2) for number in range(200)]
    reads = []

    def read() -> list[LoggedRecord]:
        reads.append(1)
        return sorted(records, key=lambda one: one.partition)

    lots = [key for _, keys in former_keys(read, FLOOR, most=40) for key in keys]
    assert sorted(set(lots)) == sorted(one.key or b"" for one in records)
    assert len(reads) > 4


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
    records[6:7] = [record("of no version", 10, 3), record("of now", 10, 3), record("of now", 100, 3)]
    assert found(*records) == [(b"1", [b"old"]), (b"2", [b"older"]), (b"3", [b"of no version"]), (b"1", [b"old"])]


def test_many_keys_come_in_several_lots() -> None:
    lots = found(*(record(f"k{number}", 1, 1) for number in range(AT_ONCE + 1)))
    assert [len(keys) for _, keys in lots] == [AT_ONCE, 1]
