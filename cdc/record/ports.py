"""The seams between the core and the world."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from cdc.process.errors import CdcError

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


# The result of a look at a server: a value, nothing, or no answer.
#
# No answer is not absence. A look that failed says nothing about what it looked for, so no judgement and no advice may
# rest on it: ``Found`` makes the type checker ask for the third case.

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody answered. ``because``: the error of the look, with its hint and exit code."""

    because: CdcError

    def __str__(self) -> str:
        return self.because.message


Found: TypeAlias = T | Unknown | None
"""The value. None where the server answered that there is none. :class:`Unknown` where it did not answer."""


def look(asked: Callable[[], T]) -> T | Unknown:
    """Return the result of ``asked``, or Unknown with the CdcError that it raised."""
    try:
        return asked()
    except CdcError as error:
        return Unknown(error)


def known(found: Found[T]) -> T | None:
    """The value where there is one. None for absent and not known alike: only where its absence is not stated."""
    return None if isinstance(found, Unknown) else found


class CompleteTransaction(Protocol):
    """A transaction of which every record was returned."""

    @property
    def xid(self) -> int:
        """Its 64-bit transaction id."""

    @property
    def end_lsn(self) -> int:
        """The LSN behind its COMMIT, which may be acknowledged once its records are durable."""

    @property
    def committed_us(self) -> int:
        """When it committed, in microseconds since 1970."""

    @property
    def rows(self) -> int:
        """How many rows the stream carried for it, also of tables that are not captured."""


class Assembly(Protocol):
    """Records in order, and the transactions that are complete with them."""

    @property
    def records(self) -> Sequence[Record]:
        """Records for the log, in the order in which they have to be written."""

    @property
    def commits(self) -> Sequence[CompleteTransaction]:
        """Transactions that ended within the frames, in commit order."""


class Assembles(Protocol):
    """From frames to records."""

    @property
    def in_transaction(self) -> bool:
        """Whether a COMMIT is still to come."""

    @property
    def open_commit_us(self) -> int | None:
        """When the transaction was committed whose COMMIT is still to come, in us since 1970. None outside one."""

    @property
    def newest_xid(self) -> int:
        """The newest 64-bit transaction id of the source that was seen, before the first one an id of that time."""

    @property
    def oldest_waiting(self) -> int | None:
        """The commit LSN of the oldest record that was not returned because its table waits. None without any."""

    @property
    def waiting_lanes(self) -> frozenset[int]:
        """The lanes of tables that wait."""

    def feed(self, frames: Sequence[bytes], now_ns: int) -> Assembly:
        """Take whole XLogData messages, in order. ``now_ns``: when they were captured, since 1970.

        Returns their records and the transactions that end with them. Raises DecodeError for bytes that it does not
        know, and all that a port raises. It cannot be used after an exception.
        """

    def resume(self) -> Sequence[Record]:
        """Try the tables that wait. Returns the records that can be had now, some of each table at most."""

    def counts(self) -> Counter[tuple[str, str]]:
        """Changes written so far, by (table, op)."""

    def lost(self) -> Counter[tuple[str, str]]:
        """Values that the encoding cannot express and that were written as null, by (table, column)."""
