"""Records of table topics as a reader of the log hands them over: columns of plain Python values, no copy of a row.

The port between readers of Kafka and the code that applies records. A double over lists is in
:mod:`cdc.testing`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import NamedTuple, Protocol

from cdc.wire.format import OP, POS, VER

Headers = tuple[tuple[str, bytes | None], ...]

BEGINNING = -2
"""As a span's start: the partition's first record, at any offset."""


class Span(NamedTuple):
    """A stretch of one partition: offsets from ``start`` up to, without, ``end``. Not every offset has a record."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def most_records(self) -> int:
        """How many records it has at most."""
        return max(0, self.end - max(0, self.start))


class Lot(NamedTuple):
    """Some records of one partition in the order of their offsets, column by column, all of one length.

    ``pos``, ``op`` and ``ver`` are header values, the last one where a record has several, None where it has none.
    ``headers``: number within the lot -> all headers, of those records that carry others than the three.
    """

    topic: str
    partition: int
    offsets: list[int]
    times_ms: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    pos: list[bytes | None]
    op: list[bytes | None]
    ver: list[bytes | None]
    headers: Mapping[int, Headers]

    def part(self, first: int, behind: int) -> Lot:
        """Its records from number ``first`` up to, without, ``behind``."""
        here = slice(first, behind)
        return Lot(
            topic=self.topic,
            partition=self.partition,
            offsets=self.offsets[here],
            times_ms=self.times_ms[here],
            keys=self.keys[here],
            values=self.values[here],
            pos=self.pos[here],
            op=self.op[here],
            ver=self.ver[here],
            headers={number - first: pairs for number, pairs in self.headers.items() if first <= number < behind},
        )

    @property
    def sizes(self) -> list[int]:
        """Bytes of each record's key, value and, where they are not the usual three, headers."""
        found = [len(key or b"") + len(value or b"") for key, value in zip(self.keys, self.values, strict=True)]
        for number, pairs in self.headers.items():
            found[number] += sum(len(name) + len(value or b"") for name, value in pairs)
        return found


class LoggedRecord(NamedTuple):
    """One record of a table's topic. ``pos`` and ``op``: its headers, None where it has none."""

    partition: int
    key: bytes | None
    value: bytes | None
    pos: bytes | None
    op: bytes | None


class RecordReader(Protocol):
    """Reads stretches of partitions. Quick where each read goes on where the last one ended. For one thread."""

    def read(self, spans: Iterable[Span]) -> Iterator[Lot]:
        """Every record of these spans, partition by partition in order. Partitions may take turns.

        TopicError where records are gone that a span begins with. LogError when the log does not answer.
        """
        ...

    def close(self) -> None:
        """Close what is open."""


class ReaderOpener(Protocol):
    """Opens a reader, here or on another machine. It can be pickled and compared, and holds secrets."""

    def open(self) -> RecordReader:
        """A reader of one's own."""
        ...

    def __hash__(self) -> int: ...


def split_headers(headers: Headers) -> tuple[bytes | None, bytes | None, bytes | None]:
    """The values of ``pos``, ``op`` and ``ver``. Of several of a name the last one, as Kafka has it."""
    known = dict(headers)
    return known.get(POS), known.get(OP), known.get(VER)


def numbered_by_slice(lots: Iterable[Lot], most_bytes: int) -> Iterator[tuple[int, Lot]]:
    """Lots, cut where need be, each with the number of its slice: the records of a slice have at most so many bytes,
    and one that is larger by itself is a slice of its own."""
    number, left, empty = 0, most_bytes, True
    for lot in lots:
        rest = lot
        while rest.offsets:
            sums = list(accumulate(rest.sizes))
            fitting = bisect_right(sums, left)
            if fitting or empty:
                fitting = max(1, fitting)
                yield number, rest if fitting == len(sums) else rest.part(0, fitting)
                left, empty = left - sums[fitting - 1], False
            if fitting < len(sums):
                number, left, empty = number + 1, most_bytes, True
                rest = rest.part(fitting, len(sums))
            else:
                break
