"""Keys that a table's rows had under other masks. Pure.

No event says that a row has another key now. The stores sweep what stands under the former one, and the topic would
keep it for ever: plain values, where the key was not masked before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, islice
from zlib import crc32

from cdc.schema import TableSchema
from cdc.wire.format import TRUNCATE_OP
from cdc.wire.records import LoggedRecord

_FLOOR_OP = TRUNCATE_OP.encode()
AT_ONCE = 5_000
"""Tombstones of one window: few enough for it not to be overrun."""
MOST_KEYS = 1_000_000
"""Keys in memory at once, about 200 MB. Where a partition has more, the topic is read again for each part of them."""


def other_keys(now: TableSchema, shapes: Iterable[TableSchema]) -> bool:
    """Whether rows of the table's topic may stand under a key with other masks, also as of a former name of it."""
    return any(
        shape.topic == now.topic and shape.key_form != now.key_form and (shape.masked_key or now.masked_key)
        for shape in shapes
    )


def former_keys(
    records: Callable[[], Iterable[LoggedRecord]], floor: str, most: int = MOST_KEYS
) -> Iterator[tuple[bytes, Sequence[bytes]]]:
    """The keys that stand in the topic below ``floor``, some at once, each lot with its version.

    Everything that is alive stands at the floor or above behind a reading of the whole table, whatever its version: a
    version may be that of a former name, or have the masks of now and be from before others. ``records``: reads
    the whole topic, one partition after the other. Up to ``most`` keys are in memory.
    """
    parts = [(0, 1)]
    while parts:
        part, of = parts.pop()
        try:
            yield from _part(records(), floor.encode(), most, part, of)
        except _TooMany:
            parts += [(part + of, 2 * of), (part, 2 * of)]


class _TooMany(Exception):
    """More keys than may be in memory."""


def _part(
    records: Iterable[LoggedRecord], lowest: bytes, most: int, part: int, of: int
) -> Iterator[tuple[bytes, Sequence[bytes]]]:
    """Of the keys whose hash is ``part``, modulo ``of``."""
    for _, partition in groupby(records, lambda record: record.partition):
        found: dict[bytes, bytes] = {}
        for record in partition:
            key, ver, pos = record.key, record.ver, record.pos
            if key is None or ver is None or pos is None or record.op == _FLOOR_OP:
                continue
            if of > 1 and crc32(key) % of != part:
                continue
            if record.value is not None and pos < lowest and ver.isdigit():
                found[key] = ver
                if len(found) > most:
                    raise _TooMany
            else:
                found.pop(key, None)
        for version in sorted(set(found.values())):
            keys = (key for key, ver in found.items() if ver == version)
            while lot := list(islice(keys, AT_ONCE)):
                yield version, lot
