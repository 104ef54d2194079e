"""Facts of a batch's records for the figures: bytes, and of some when they were committed. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa

from cdc.wire.envelope import committed_ms
from cdc.wire.format import OP
from sinks.contract.batch import pc

_MOST = 8
"""Records of a table whose commit times are read: enough for a histogram, and nothing beside what applying costs."""
_SNAPSHOT_OP = b"r"


@dataclass(frozen=True, slots=True)
class ReadSample:
    """``size_bytes``: of keys and values. ``commits``: (commit time in ms since 1970, for how many records it stands).
    Rows of snapshots are not among them, they were committed long ago."""

    size_bytes: int = 0
    commits: tuple[tuple[int, int], ...] = ()

    def __add__(self, other: ReadSample) -> ReadSample:
        return ReadSample(self.size_bytes + other.size_bytes, self.commits + other.commits)

    @classmethod
    def of(cls, members: dict[str, Any]) -> ReadSample:
        """As a task's report has it."""
        return cls(members["size_bytes"], tuple((time_ms, count) for time_ms, count in members["commits"]))


def read_sample(records: pa.Table) -> ReadSample:
    """Of records as :data:`spark.records.source.RECORD_SCHEMA` has them."""
    if not records.num_rows:
        return ReadSample()
    size = sum(int(pc.sum(pc.binary_length(records[name])).as_py() or 0) for name in ("key", "value"))
    places = spread(records.num_rows, _MOST)
    some = records.select(["value", OP]).take(pa.array(places, pa.int64())).to_pylist()
    times = [None if one[OP] == _SNAPSHOT_OP else committed_ms(one["value"]) for one in some]
    # Each stands for the records since the one before. Those that are no changes stand for none.
    counts = [place - before for before, place in pairwise([-1, *places])]
    commits = ((time_ms, count) for time_ms, count in zip(times, counts, strict=True) if time_ms is not None)
    return ReadSample(size, tuple(commits))


def spread(count: int, most: int) -> Sequence[int]:
    """At most so many numbers below ``count``, evenly spread, the last one among them.

    >>> spread(3, 8), spread(100, 4)
    ([0, 1, 2], [24, 49, 74, 99])
    """
    if count <= most:
        return list(range(count))
    return [(number + 1) * count // most - 1 for number in range(most)]
