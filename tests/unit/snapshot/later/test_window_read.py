"""What a window writes: rows, deletes of keys that are not there, and the mark that ends a whole reading."""

from __future__ import annotations

import orjson
import pytest

from cdc.capture.transaction_visibility import Visibility
from cdc.operate.snapshot_requests import key_texts
from cdc.process.errors import ConfigError
from cdc.record.position import CHUNK_SEQ, Position
from cdc.settings.mask_rules import NO_MASKS
from connectors.postgres.encoding.encoder import compile_table
from sinks.contract.store_notes import FloorMark
from snapshot.later.window_read import WindowRows, sweep_rows, window_rows
from tests.unit.snapshot.later.test_table_reading import SHAPE

AT = Position(1, 0x1000, CHUNK_SEQ)
ENCODER = compile_table(SHAPE, name="shop", database="shop 100%", masks=NO_MASKS)
FOUND = WindowRows(
    rows=[(b'{"id":1}', b'{"id":1}')],
    gone=[(b'{"id":2}', b'{"id":2}')],
    insert_lsn=0x2000,
    seen=Visibility(1, frozenset()),
)


def test_rows_lie_above_the_stream_missing_keys_are_deleted() -> None:
    rows, deletes, tombstones = window_rows(FOUND, ENCODER, AT, 7_000_000)
    row = orjson.loads(rows.prefix + (rows.pairs[0][1] or b"") + rows.suffix)
    assert (row["op"], row["after"], row["source"]["snapshot"]) == ("r", {"id": 1}, "incremental")
    assert Position(row["source"]["epoch"], row["source"]["commit_lsn"], row["source"]["tx_seq"]) == AT
    gone = orjson.loads(deletes.prefix + (deletes.pairs[0][1] or b"") + deletes.suffix)
    assert (gone["op"], gone["before"], gone["after"]) == ("d", {"id": 2}, None)
    assert gone["source"]["db"] == "shop 100%"
    assert tombstones.pairs == [(b'{"id":2}', None)]
    assert dict(tombstones.headers)["seen_lsn"] == b"8192"
    assert (row["source"]["seen_lsn"], gone["source"]["seen_lsn"]) == (0x2000, 0x2000)
    assert {dict(part.headers)["pos"].decode() for part in (rows, deletes, tombstones)} == {AT.text()}
    assert [dict(part.headers)["op"] for part in (rows, deletes, tombstones)] == [b"r", b"d", b"d"]


def test_h82_the_mark_is_what_sinks_read() -> None:
    floor = Position(1, 0x800, CHUNK_SEQ).text()
    mark = sweep_rows(ENCODER, AT, floor, 3, 7_000_000, 0x3000)
    key, value = mark.pairs[0]
    read = FloorMark.of(SHAPE.table, 2, key, value, AT.text())
    assert (read.floor, read.partitions, mark.everywhere) == (floor, 3, True)
    said = orjson.loads(value or b"")
    assert (said["op"], said["source"]["seen_lsn"]) == ("t", 0x3000)


def test_a_key_has_as_many_columns_as_the_tables() -> None:
    assert key_texts([["1"], ["2"]], SHAPE) == (("1",), ("2",))
    with pytest.raises(ConfigError, match="has 1 columns, one of --keys has 2"):
        key_texts([["1", "2"]], SHAPE)
