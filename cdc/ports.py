"""The seams between the core and the world. Memory doubles for each stand in :mod:`cdc.testing`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

Headers = Sequence[tuple[str, bytes]]


Record = tuple[int, bytes, bytes | None, Headers]
"""A record on its way: lane, key, value, headers. A lane is a partition of a topic, numbered by StreamLog.open.
A value may be :class:`Withheld`."""


class Withheld(bytes):
    """Stands for a value that no topic takes and that was not built: it has no bytes, only a length, that of the
    row's text. A log puts its record aside or refuses it. It never sends it."""

    size_bytes: int

    def __new__(cls, size_bytes: int) -> Withheld:
        made = super().__new__(cls)
        made.size_bytes = size_bytes
        return made

    def __len__(self) -> int:
        return self.size_bytes

    def __reduce__(self) -> tuple[type[Withheld], tuple[int]]:
        return Withheld, (self.size_bytes,)


class StreamLog(Protocol):
    """A log with one writer, for the stream's hot path: records go out in groups, and groups are acked in order.

    Order: records of one lane stay in the order of ``produce``. Durability: only what :meth:`acked` covers is stored by
    the broker. A record that the broker refused surfaces as PoisonError or LogError at the next call of anything here,
    and so does an offset that is not the one expected of the lane's only writer: a record was lost, or somebody else
    wrote. Nothing later is ever acked.
    """

    def open(self, topic: str, next_offsets: Sequence[int]) -> int:
        """Number the topic's partitions as lanes ``base, base + 1, ...``. Returns ``base``."""

    def produce(self, records: Sequence[Record]) -> int:
        """Hand one group over. May block while the queue is full. Returns the group's number, from 1."""

    @property
    def newest(self) -> int:
        """The number of the newest group, 0 before the first."""

    def acked(self, timeout_s: float = 0) -> int:
        """The newest group that is stored with all before it, after serving callbacks for at most ``timeout_s``."""

    def offsets(self) -> dict[str, dict[int, int]]:
        """topic -> partition -> next offset, of what :meth:`acked` covers at least."""

    def ahead(self, lsn: int) -> dict[str, dict[int, str]]:
        """topic -> partition -> the newest streamed position below :meth:`offsets`, where it reaches to ``lsn``."""


class StreamBatch(NamedTuple):
    """The result of one read of the stream: whole frames in order, then the end of WAL of the keepalive behind
    them, None without one."""

    frames: list[bytes]
    wal_end: int | None


class ChangeStream(Protocol):
    """The source's changes, and its only ear. One thread calls it."""

    @property
    def received(self) -> int:
        """The end of WAL that the source has spoken of."""

    @property
    def last_feedback_s(self) -> float:
        """When the source last heard from us, by the clock's monotonic time."""

    def read(self, timeout_s: float) -> StreamBatch:
        """Return the messages that have arrived, at once if there are any, else after at most ``timeout_s``.

        SourceError when the connection broke.
        """

    def acknowledge(self, lsn: int) -> None:
        """The log holds everything below: the source may forget it."""

    def close(self) -> None:
        """End it in order, the last acknowledgement included. Never raises."""


class CompactedTopic(Protocol):
    """A small compacted topic read whole: state, schema and progress."""

    def read(self) -> Mapping[bytes, bytes]:
        """The newest value of every key, as far as the topic's end at the call."""

    def write(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Append and return when the broker holds them all. LogError otherwise."""


class Topics(Protocol):
    """The log's topics, seen from outside. LogError when no broker answers."""

    def counts(self, topics: Iterable[str]) -> Mapping[str, int]:
        """Topic -> number of partitions, of those topics that exist."""

    def end_offsets(self, partitions: Mapping[str, int]) -> Mapping[str, Mapping[int, int]]:
        """Topic -> partition -> the offset its next record gets. ``partitions``: how many each topic has."""
