"""Keys that a table's rows had under other masks. Pure.

No event says that a row has another key now. The stores sweep what stands under the former one, and the topic would
keep it for ever: plain values, where the key was not masked before (H289).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby, islice

from cdc.schema import TableSchema
from cdc.wire.format import TRUNCATE_OP
from cdc.wire.records import LoggedRecord

_FLOOR_OP = TRUNCATE_OP.encode()
AT_ONCE = 5_000
"""Tombstones of one window: few enough for it not to be overrun."""


def other_keys(now: TableSchema, shapes: Iterable[TableSchema]) -> set[bytes]:
    """The versions of the table, as records name them, that have the same key under other masks."""
    return {
        b"%d" % shape.version
        for shape in shapes
        if shape.table == now.table and shape.key_form != now.key_form and (shape.masked_key or now.masked_key)
    }


def former_keys(
    records: Iterable[LoggedRecord], floor: str, versions: Collection[bytes]
) -> Iterator[tuple[bytes, Sequence[bytes]]]:
    """The keys that stand in the topic as of one of these versions and below ``floor``, some at once, each lot with its
    version.

    ``records``: the whole topic, one partition after the other. Keys of one partition are in memory at once.
    """
    lowest = floor.encode()
    for _, partition in groupby(records, lambda record: record.partition):
        found: dict[bytes, bytes] = {}
        for record in partition:
            key, ver, pos = record.key, record.ver, record.pos
            if key is None or ver is None or pos is None or record.op == _FLOOR_OP:
                continue
            if record.value is not None and ver in versions and pos < lowest:
                found[key] = ver
            else:
                found.pop(key, None)
        for version in sorted(set(found.values())):
            keys = (key for key, ver in found.items() if ver == version)
            while lot := list(islice(keys, AT_ONCE)):
                yield version, lot
