"""Records that real connectors wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import orjson

from cdc.epochs import EpochsState
from cdc.wire.debezium.reading import DebeziumChange, PartitionReader, SettledRecord, UnreadableRecord

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


def read_all(
    records: list[Recorded], epochs: EpochsState | None = None
) -> list[DebeziumChange | SettledRecord | UnreadableRecord]:
    """What a reader of each partition makes of them, in order."""
    readers: dict[tuple[str, int], PartitionReader] = {}
    found = []
    for record in records:
        place = (record.topic, record.partition)
        reader = readers.setdefault(place, PartitionReader(*place, epochs=epochs))
        found.append(reader.read(record.offset, record.key, record.value))
    return found


def changes(records: list[Recorded]) -> list[DebeziumChange]:
    """The same, where nothing is unreadable."""
    found = read_all(records)
    assert not [one for one in found if isinstance(one, UnreadableRecord)]
    return [one for one in found if isinstance(one, DebeziumChange)]


def after(change: DebeziumChange) -> Any:
    return None if change.value is None else orjson.loads(change.value)["after"]
