"""Every name and every fixed piece of a record: headers, members, operations. Nobody else spells them.

The manual of the wire (README.md, beside this file) says what each means.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

POS, OP, VER = "pos", "op", "ver"
HEADERS = (POS, OP, VER)
"""The headers of every record of ours, in this order: position, operation, version of the table's shape."""
AT = "at"
"""The last header of an event, and of a streamed record of a history: the newest commit time so far, in us."""
NEW_KEY, OLD_KEY = "__debezium.newkey", "__debezium.oldkey"
KEY_HEADERS = (NEW_KEY, OLD_KEY)
"""Of a change of key: the new key on the delete of the old one, the old key on the create of the new one."""
REASON_HEADER = "cdc-unreadable"
"""On a record that was looked at before and is none of ours: why."""

BEFORE, AFTER, SOURCE = "before", "after", "source"
"""Members of a value: the old row, the new row, where the change comes from. ``op`` is named as its header is."""
OWN_SOURCE = ("epoch", "commit_lsn", "tx_seq")
"""Members of ``source`` that Debezium does not have (D15): the position, in its order."""
SEEN_LSN, RESELECTED = "seen_lsn", "reselected"
"""Members of ``source`` where what a record says was read from the table, and may be newer than its position (D15). The
first is a header of a tombstone, too, which has no value."""
RESELECTED_COLUMNS = "columns"
"""Member of ``reselected``: the names of the columns. ``seen_lsn`` stands beside it."""
SWEEP = "sweep"
"""Member of a sweep mark's value: its floor and how many partitions have one."""
TRUNCATE_KEY, SWEEP_KEY = "__truncate", "__sweep"
GAP_KEY = b'{"__gap":true}'
"""The one member of a floor record's key. Its value is the table's name."""
UNAVAILABLE = "__debezium_unavailable_value"
"""Stands for a value that capture could not have (an unchanged TOAST value of a row that is gone)."""

CREATE_OP, UPDATE_OP, DELETE_OP, READ_OP, TRUNCATE_OP = "c", "u", "d", "r", "t"
GAP_OP = "gap"
"""In a history alone: some changes are missing before it. Of one key, or of all, under :data:`GAP_KEY`."""
ROW_OPS = (CREATE_OP, UPDATE_OP, DELETE_OP, READ_OP)
"""Operations on one row. READ is a row of a snapshot. A truncate or a sweep is of the whole table."""

NO_OLD_ROW = b'{"before":null'
OLD_ROW = b'{"before":'
NEW_ROW = b',"after":'
NO_NEW_ROW = b',"after":null'
NO_ROWS = NO_OLD_ROW + NO_NEW_ROW
"""A value begins with an old row or none, goes on with a new row or none, and ends with the envelope's tail."""


def bare_row(row: bytes) -> bytes:
    """A value that holds a row and no source: for a row that comes from the database itself, past the log.

    >>> bare_row(b'{"id":1}')
    b'{"before":null,"after":{"id":1},"op":"r"}'
    """
    return b'%b%b%b,"op":"r"}' % (NO_OLD_ROW, NEW_ROW, row)


def member(document: object, name: str) -> Any:
    """A member of a value that was read. None where it has none, and of what is no JSON object."""
    return document.get(name) if isinstance(document, Mapping) else None
