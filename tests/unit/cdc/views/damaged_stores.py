"""A store that follows a view's topic, and that somebody damages behind its back."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import orjson

from tests.memory_views import MemoryViewTopic


@dataclass
class DamagedStore:
    """Takes the newest of each key by its position, as every sink does. ``rows``: key -> position and row."""

    rows: dict[bytes, tuple[str, object]] = field(default_factory=dict)
    floor: str = ""
    _read: dict[int, int] = field(default_factory=dict)

    def follow(self, topic: MemoryViewTopic) -> None:
        """Take what came since the last call."""
        for partition, records in topic.records.items():
            for record in records[self._read.get(partition, 0) :]:
                headers = {name: value.decode() for name, value in record.headers}
                value: dict[str, Any] = orjson.loads(record.value) if record.value is not None else {"after": None}
                if headers["op"] == "t":
                    self.floor = max(self.floor, value["sweep"]["floor"])
                elif headers["pos"] > self.rows.get(record.key, ("", None))[0]:
                    self.rows[record.key] = (headers["pos"], value["after"])
            self._read[partition] = len(records)

    def shown(self) -> dict[bytes, object]:
        """Its rows."""
        return {key: row for key, (pos, row) in self.rows.items() if row is not None and pos >= self.floor}

    def damage(self, chance: random.Random, strange: bytes = b"") -> list[bytes]:
        """Change rows or lose some, each at its position, and add one of a ``strange`` key. Returns the keys."""
        keys = chance.sample(sorted(self.rows), min(len(self.rows), chance.randint(0, 2)))
        for key in keys:
            pos, _ = self.rows[key]
            self.rows[key] = pos, chance.choice([None, {"wrong": chance.random()}])
        if self.rows and strange:
            newest = max(pos for pos, _ in self.rows.values())
            self.rows[strange] = newest, {"stranger": 1}
            keys.append(strange)
        return keys
