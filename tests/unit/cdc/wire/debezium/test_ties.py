"""What a store keeps by position and offset is what the partition's order says, for each connector's own rules.

Records are made as their sources make them: several changes at one log position, numbers that begin again inside a
transaction, transactions that share an SCN, and rows of a snapshot taken while streaming.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc.position import Position
from cdc.wire.debezium.reading import DebeziumChange, PartitionReader, UnreadableRecord

Source = dict[str, Any]
Transaction = list[list[tuple[int, str]]]
"""Events of rows: key, and ``c``, ``u``, ``d``, or ``r`` for a row of a snapshot that is read just then."""

_rows = st.lists(st.tuples(st.integers(0, 3), st.sampled_from("cudr")), min_size=1, max_size=4)
_transactions = st.lists(st.lists(_rows, min_size=1, max_size=4), min_size=1, max_size=6)


def sqlserver(transactions: list[Transaction]) -> Iterator[Source]:
    """``event_serial_no`` begins again with each ``change_lsn``, an update counts two, commits share a block."""
    for number, transaction in enumerate(transactions):
        for event, rows in enumerate(transaction):
            for serial, _ in enumerate(rows, start=1):
                yield {
                    "commit_lsn": f"0000002a:{number // 3:08x}:{number % 3 + 3:04x}",
                    "change_lsn": f"0000002a:{number // 3:08x}:{event:04x}",
                    "event_serial_no": 2 * serial,
                }


def mysql(transactions: list[Transaction]) -> Iterator[Source]:
    """Each event has a position of its own, and numbers its rows from 0."""
    at = 4
    for transaction in transactions:
        for rows in transaction:
            at += 100
            for row, _ in enumerate(rows):
                yield {"file": "mysql-bin.000002", "pos": at, "row": row}


def mysql_compressed(transactions: list[Transaction]) -> Iterator[Source]:
    """``binlog_transaction_compression``: the events of a transaction stand at the position of its one payload."""
    for number, transaction in enumerate(transactions):
        for rows in transaction:
            for row, _ in enumerate(rows):
                yield {"file": "mysql-bin.000002", "pos": 4 + 100 * number, "row": row}


def oracle(transactions: list[Transaction]) -> Iterator[Source]:
    """Two transactions may commit at one SCN."""
    for number, transaction in enumerate(transactions):
        for rows in transaction:
            for _ in rows:
                yield {"scn": str(900 + number), "commit_scn": str(1000 + number // 2)}


def records(connector: str, transactions: list[Transaction], sources: Iterator[Source]) -> Iterator[bytes]:
    changes = [change for transaction in transactions for rows in transaction for change in rows]
    for number, ((_, op), source) in enumerate(zip(changes, sources, strict=True)):
        named = {"connector": connector, "schema": "s", "table": "t", "db": "d", **source}
        yield orjson.dumps(
            {
                "before": None,
                "after": None if op == "d" else {"v": number},
                "op": op,
                "source": named | {"snapshot": "incremental" if op == "r" else "false"},
            }
        )


@pytest.mark.parametrize("kind", [sqlserver, mysql, mysql_compressed, oracle])
@given(_transactions, st.integers(0, 40))
@settings(max_examples=150)
def test_h105_the_newest_is_the_last_of_its_partition(
    kind: Callable[[list[Transaction]], Iterator[Source]], transactions: list[Transaction], begins_at: int
) -> None:
    """``begins_at``: where a sink that was started anew has read on; what lies before it is in the store already."""
    connector = kind.__name__.partition("_")[0]
    keys = [key for transaction in transactions for rows in transaction for key, _ in rows]
    made = list(zip(keys, records(connector, transactions, kind(transactions)), strict=True))
    reader, last = PartitionReader("d.s.t", 0), dict(made)
    stored: dict[bytes, tuple[Position, bytes | None]] = {}
    for offset, (key, value) in enumerate(made):
        if offset == begins_at:
            reader = PartitionReader("d.s.t", 0)
        change = reader.read(offset, orjson.dumps({"id": key}), value)
        assert isinstance(change, DebeziumChange), change
        if change.key not in stored or change.pos >= stored[change.key][0]:
            stored[change.key] = (change.pos, change.value)
    wanted = {orjson.dumps({"id": key}): orjson.loads(value)["after"] for key, value in last.items()}
    found = {key: value and orjson.loads(value)["after"] for key, (_, value) in stored.items()}
    # A reader that begins anew places a snapshot's row lower, perhaps below a change that the row already holds. In a
    # database the two have the same values then, which these made ones have not.
    if begins_at >= len(made) or "r" not in {op for t in transactions for rows in t for _, op in rows}:
        assert found == wanted


def test_a_flat_row_may_have_columns_named_op_and_source() -> None:
    reader = PartitionReader("d.s.t", 0)
    for source in ("web", {"kind": "web"}, None):
        found = reader.read(0, b'{"id":1}', orjson.dumps({"id": 1, "op": "buy", "source": source}))
        assert isinstance(found, DebeziumChange), found
        assert orjson.loads(found.value or b"{}")["after"] == {"id": 1, "op": "buy", "source": source}


def test_a_flat_row_with_a_schema_may_have_them_too() -> None:
    fields = [
        {"type": "int32", "optional": False, "field": "id"},
        {"type": "string", "optional": True, "field": "op"},
        {"type": "string", "optional": True, "field": "source"},
    ]
    schema = {"type": "struct", "fields": fields, "optional": False, "name": "d.s.t.Value"}
    value = orjson.dumps({"schema": schema, "payload": {"id": 1, "op": "buy", "source": "web"}})
    found = PartitionReader("d.s.t", 0).read(0, b'{"id":1}', value)
    assert not isinstance(found, UnreadableRecord), found
