"""Records of table topics as a reader hands them over, and records about a whole table: truncates and sweep marks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple, Protocol

import orjson

from cdc.record.documents import dumped
from cdc.wire.format import OP, POS, SWEEP, SWEEP_KEY, TRUNCATE_KEY, VER
from cdc.wire.jsontree import quote

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


class RecordColumns(NamedTuple):
    """Some records of one partition in the order of their offsets, column by column, all of one length.

    ``pos``, ``op`` and ``ver`` are header values, the last one where a record has several, None where it has none.
    ``at``: the same of the header ``at``, where a record of a history carries it behind the three. Empty where none
    does. ``headers``: number within the lot -> all headers, of those records that carry others than these.
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
    at: Sequence[bytes | None] = ()

    def part(self, first: int, behind: int) -> RecordColumns:
        """Its records from number ``first`` up to, without, ``behind``."""
        here = slice(first, behind)
        return RecordColumns(
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
            at=self.at[here],
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

    def read(self, spans: Iterable[Span]) -> Iterator[RecordColumns]:
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


def numbered_by_slice(lots: Iterable[RecordColumns], most_bytes: int) -> Iterator[tuple[int, RecordColumns]]:
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


# Records about a whole table, a truncate and a sweep mark: what they say, written and read.
#
# Both have the operation ``t``, a key of one member and stand in every partition of the topic. Rows below the floor
# that they name are gone from the table.

_FLOOR, _PARTITIONS = "floor", "partitions"


class Floor(NamedTuple):
    """``floor``: the position's text. ``partitions``: how many have a mark of it, 1 for a truncate."""

    floor: str
    partitions: int


def truncate_key(table: str) -> bytes:
    """The key of a truncate.

    >>> truncate_key("public.orders")
    b'{"__truncate":"public.orders"}'
    """
    return b'{"%b":%b}' % (TRUNCATE_KEY.encode(), quote(table.encode()))


def sweep_key(table: str) -> bytes:
    """The key of a sweep mark."""
    return dumped({SWEEP_KEY: table})


def sweep_value(value: bytes, floor: str, partitions: int) -> bytes:
    """A value without rows, made a sweep mark's: ``floor`` as a position's text, ``partitions`` of the topic."""
    return b'%b,"%b":%b}' % (value[:-1], SWEEP.encode(), dumped({_FLOOR: floor, _PARTITIONS: partitions}))


def read_floor(key: bytes, value: bytes | None, pos: str) -> Floor:
    """The content of a floor record: a truncate's floor is its own ``pos``, a sweep mark's stands in its value.

    Raises ValueError when it is neither.
    """
    document = orjson.loads(key)
    if not isinstance(document, dict):
        raise ValueError("a floor's key is not a JSON object")
    if TRUNCATE_KEY in document:
        return Floor(pos, 1)
    if SWEEP_KEY not in document:
        raise ValueError("a floor's key says neither truncate nor sweep")
    try:
        sweep = orjson.loads(value or b"")[SWEEP]
        floor, partitions = str(sweep[_FLOOR]), int(sweep[_PARTITIONS])
        int(floor, 16)
    except (KeyError, TypeError, ValueError):
        raise ValueError("a sweep mark does not say its floor and its partitions") from None
    if len(floor) != len(pos) or partitions < 1:
        raise ValueError("a sweep mark's floor is not a position")
    return Floor(floor, partitions)
