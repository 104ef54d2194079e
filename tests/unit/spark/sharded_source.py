"""A source over many shards in memory, and a broker that holds each record that arrives against it."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cdc.testing import MemoryBroker
from cdc.testing.log import StoredRecord

PARTITIONS, TABLES, KEYS = 2, 2, 3
Place = tuple[str, int]


class Found(AssertionError):
    """A law was broken."""


class Change(NamedTuple):
    """One row's change: ``version`` counts the changes of its key."""

    topic: str
    partition: int
    key: str
    version: int


class Committed(NamedTuple):
    """A transaction of the source, over any tables. ``end_lsn``: behind its COMMIT."""

    commit_lsn: int
    end_lsn: int
    changes: tuple[Change, ...]


@dataclass
class Truth:
    """The source: what committed so far, and by key the LSNs at which its versions 1, 2 and so on did."""

    rng: random.Random
    shards: int
    lsn: int = 1 << 20
    committed: list[Committed] = field(default_factory=list)
    lsns: dict[tuple[str, str], list[int]] = field(default_factory=lambda: defaultdict(list))
    of_place: dict[Place, list[tuple[int, Change]]] = field(default_factory=lambda: defaultdict(list))

    def commit(self) -> None:
        """One transaction more, of one to four rows, of any shards."""
        commit_lsn = self.lsn + 8 * self.rng.choice((0, 0, 1, 5))
        changes = []
        for _ in range(self.rng.choice((1, 1, 2, 4))):
            topic, key = topic_of(self.rng.randrange(self.shards), self.rng.randrange(TABLES)), self.rng.randrange(KEYS)
            known = self.lsns[topic, str(key)]
            known.append(commit_lsn)
            change = Change(topic, key % PARTITIONS, str(key), len(known))
            changes.append(change)
            self.of_place[topic, change.partition].append((commit_lsn, change))
        self.lsn = commit_lsn + 8 * self.rng.randint(4, 6)
        self.committed.append(Committed(commit_lsn, self.lsn, tuple(changes)))

    def version_below(self, topic: str, key: str, lsn: int) -> int:
        """How often a key had changed by the commits below an LSN."""
        return bisect_left(self.lsns.get((topic, key), []), lsn)


def shard_name(number: int) -> str:
    return f"s{number}"


def topic_of(shard: int, table: int) -> str:
    return f"shop.s{shard}.t{table}"


def shard_of(topic: str) -> str:
    return topic.split(".")[1]


class IndexedBroker(MemoryBroker):
    """The same, with the records of each partition at hand. Each one that arrives is compared with the source."""

    def __init__(self, truth: Truth) -> None:
        super().__init__()
        self._truth = truth
        self.lanes: dict[Place, list[StoredRecord]] = defaultdict(list)

    def append(
        self, topic: str, partition: int, key: bytes, value: bytes | None, headers: Sequence[tuple[str, bytes]] = ()
    ) -> int:
        offset = super().append(topic, partition, key, value, headers)
        record = self.records.pop()
        self.lanes[topic, partition].append(record)
        if headers:
            expected = self._truth.of_place[topic, partition]
            change = expected[offset][1] if offset < len(expected) else None
            found = (key.decode(), int(value or b"0"))
            if change is None or found != (change.key, change.version):
                raise Found(f"{topic} {partition} has {found} at {offset}, and the source {change}")
        return offset

    def of(self, topic: str, partition: int | None = None) -> list[StoredRecord]:
        return self.lanes[topic, partition or 0]
