"""Updates that lack a value, behind records that the cleaner has taken: they name where their run began (H593)."""

from __future__ import annotations

import pickle
from typing import Any

import orjson
import pytest

from cdc.position import CHUNK_SEQ, Position
from cdc.wire.debezium.present_run import UNBROKEN_FROM
from cdc.wire.debezium.reading import DebeziumChange, PartitionReader
from cdc.wire.format import UNAVAILABLE
from cdc.wire.row import row_of, row_reader
from cdc.wire.unavailable import BASE64, NULL_OR_UNCHANGED, NUMBERS, UUID
from tests.unit.cdc.wire.debezium.test_unsaid import SAID, SILENT, record

TOPIC, KEY = "d.s.t", b'{"id":1}'
TEXT = SAID["text"]


def lsn(offset: int) -> int:
    return 8 * offset + 4096


def stored_at(offset: int) -> str:
    return Position(1, lsn(offset) - 1, 0).text()


def value(offset: int, cell: Any = UNAVAILABLE, column: dict[str, Any] = TEXT, **more: Any) -> bytes:
    return record(column, cell, **{"sequence": f'["{lsn(offset)}","9"]', **more})


def mark(found: object) -> str | None:
    assert isinstance(found, DebeziumChange), found
    document = orjson.loads(found.value or b"")
    told: str | None = document.get(UNBROKEN_FROM)
    assert told is None or list(document)[-1] == UNBROKEN_FROM
    return told


def marks(reader: PartitionReader, *offsets: int, kept: bool = False) -> list[str | None]:
    return [mark(reader.read(offset, KEY, value(offset), kept=kept)) for offset in offsets]


def behind(*looked_at: int) -> PartitionReader:
    reader = PartitionReader(TOPIC, 0)
    for offset in looked_at:
        reader.look_back(offset, KEY, value(offset, "before"))
    return reader


def test_h593_behind_a_gap_an_update_names_where_its_run_began() -> None:
    assert marks(PartitionReader(TOPIC, 0), 0, 1, 4, 5) == [None, None, stored_at(0), stored_at(0)]


def test_h593_no_young_update_is_marked() -> None:
    reader = PartitionReader(TOPIC, 0)
    assert marks(reader, 0, 4, kept=True) == [None, None]
    assert marks(reader, 5) == [stored_at(0)]


@pytest.mark.parametrize(("looked_at", "doubted"), [([], True), ([5], True), ([3, 6], False), ([6], False)])
def test_h593_a_gap_right_where_a_run_begins(looked_at: list[int], doubted: bool) -> None:
    """The record before it shows that there is none. Gaps before that one are of the run before."""
    assert marks(behind(*looked_at), 7, 8) == [stored_at(7) if doubted else None] * 2


def test_h593_a_record_without_a_change_leaves_no_gap() -> None:
    reader = behind(6)
    reader.read(7, KEY, b"what")
    assert marks(reader, 8, 10) == [None, stored_at(8)]


def test_h593_a_run_begins_again_behind_a_stall() -> None:
    reader = PartitionReader(TOPIC, 0)
    marks(reader, 0, 4)
    reader.stalled()
    assert marks(reader, 5, 6, 9) == [None, None, stored_at(5)]
    reader.stalled()
    assert marks(reader, 11) == [stored_at(11)]


def test_h593_records_that_are_read_again_are_no_gap() -> None:
    assert marks(PartitionReader(TOPIC, 0), 0, 1, 2, 1, 2) == [None] * 5


def test_h593_a_run_goes_on_in_another_process() -> None:
    reader = PartitionReader(TOPIC, 0)
    marks(reader, 0, 1)
    reader = pickle.loads(pickle.dumps(reader))
    assert marks(reader, 2, 4) == [None, stored_at(0)]
    assert marks(pickle.loads(pickle.dumps(reader)), 5) == [stored_at(0)]


@pytest.mark.parametrize("first", [6, 3])
def test_h593_a_run_stands_above_all_that_was_before(first: int) -> None:
    """A transaction has one place, and it may have begun before the run. What is sent again stands lower still."""
    reader = behind(6)
    reader.read(9, KEY, value(first, "again"))
    (told,) = marks(reader, 12)
    assert stored_at(6) < str(told) < stored_at(7)


def test_h593_a_run_stands_above_rows_that_were_read() -> None:
    reader = behind(6)
    reader.highest = Position(1, lsn(6), CHUNK_SEQ)
    reader.read(9, KEY, value(6, "again"))
    assert marks(reader, 12) == [Position(1, lsn(6) + 1, 0).text()]


@pytest.mark.parametrize("column", ["text", "text[]", "bytea", "int4[]", "uuid[]", "numeric[]", "varbit"])
def test_h593_each_form_of_a_value_that_is_lacking(column: str) -> None:
    forms = {"text[]": [UNAVAILABLE], "bytea": BASE64, "int4[]": NUMBERS, "uuid[]": [UUID]}
    of_type = {**SAID, **SILENT}[column]
    cell = None if column in SILENT else forms.get(column, UNAVAILABLE)
    found = behind().read(7, KEY, value(7, cell, of_type))
    assert mark(found) == stored_at(7)
    assert isinstance(found, DebeziumChange)
    if column in SILENT:
        assert orjson.loads(row_of(found.value or b""))["v"] == NULL_OR_UNCHANGED


def test_h593_flat_rows_are_marked_by_their_offsets() -> None:
    fields = [{"type": "int32", "optional": False, "field": "id"}, TEXT]
    reader = PartitionReader(TOPIC, 0)
    told = []
    for offset, cell in ((7, "whole"), (9, UNAVAILABLE)):
        flat = {"schema": {"type": "struct", "fields": fields}, "payload": {"id": 1, "v": cell}}
        told.append(mark(reader.read(offset, KEY, orjson.dumps(flat))))
    assert told == [None, Position(1, 8 << 3, 1).text()]


def test_h593_without_a_schema_they_are_marked_too() -> None:
    payload = orjson.loads(value(7))["payload"]
    assert mark(behind().read(7, KEY, orjson.dumps(payload) + b"\n")) == stored_at(7)


def test_h593_no_other_record_is_marked() -> None:
    reader = behind()
    assert mark(reader.read(7, KEY, value(7, "whole"))) is None
    assert mark(reader.read(9, KEY, value(9, op="c"))) is None
    assert mark(reader.read(11, KEY, value(11, op="r", snapshot="true"))) is None


def test_h593_a_row_is_cut_out_of_a_marked_record_as_before() -> None:
    payload = orjson.loads(value(7))["payload"]
    payload["source"] = {"version": "3.4.0.Final", **payload["source"]}
    text = orjson.dumps({**payload, "ts_ms": 1})
    found = behind().read(7, KEY, text)
    assert mark(found) is not None
    assert isinstance(found, DebeziumChange)
    cut = row_reader(["id", "v"])(found.value or b"")
    assert cut == row_of(text) == orjson.dumps(payload["after"])
