"""Deletes of which nothing says exactly where they stand: the cleaner has taken the record that did.

Debezium writes a delete and a tombstone behind it. A compacted topic keeps the tombstone alone, which has no position.
"""

from __future__ import annotations

from cdc.wire.format import DELETE_OP

UNPLACED_DELETE_OP = f"{DELETE_OP}?"
"""Operation of a delete that stands at its ``pos`` or higher. It deletes the row that a store holds of its key, unless
that is of a later epoch. No record of a topic has it."""
_EPOCH_CHARS = 8
"""Of a position's text: its epoch stands first."""


def lifted(pos: str, stored: str) -> str:
    """The place of a delete that stands at ``pos`` or higher, where the row of its key stands at ``stored``: empty for
    none.

    >>> lifted("00000002" + "0" * 24, "00000002" + "f" * 24) == "00000002" + "f" * 24
    True
    >>> lifted("00000002" + "0" * 24, "00000003" + "0" * 24)[:8]
    '00000002'
    """
    return max(pos, stored) if stored[:_EPOCH_CHARS] == pos[:_EPOCH_CHARS] else pos
