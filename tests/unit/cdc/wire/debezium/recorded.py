"""Records that real connectors wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import orjson

from cdc.record.schema import TableSchema
from cdc.wire.debezium.reading import DebeziumChange, DebeziumReader, UnreadableRecord

FOLDER = Path(__file__).parents[4] / "fixtures" / "debezium"


class Recorded(NamedTuple):
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


def recorded(name: str) -> list[Recorded]:
    lines = (FOLDER / f"{name}.jsonl").read_bytes().splitlines()
    return [
        Recorded(r["topic"], r["partition"], r["offset"], _b(r["key"]), _b(r["value"]))
        for r in map(orjson.loads, lines)
    ]


def _b(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def read_all(records: list[Recorded]) -> list[DebeziumChange | UnreadableRecord]:
    """What a reader makes of them, in order. Tombstones are read by the shape that came last with a topic's rows."""
    reader, newest = DebeziumReader(precise=True), dict[str, TableSchema]()
    found = []
    for record in records:
        one = reader.read(record.topic, record.offset, record.key, record.value, newest.get(record.topic))
        if isinstance(one, DebeziumChange) and one.schema is not None:
            newest[record.topic] = one.schema
        found.append(one)
    return found


def changes(records: list[Recorded]) -> list[DebeziumChange]:
    """The same, where nothing but a truncate is unreadable."""
    found = read_all(records)
    assert not [one for one in found if isinstance(one, UnreadableRecord) and "truncate" not in one.reason]
    return [one for one in found if isinstance(one, DebeziumChange)]


def after(change: DebeziumChange) -> Any:
    return None if change.value is None else orjson.loads(change.value)["after"]
