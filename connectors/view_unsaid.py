"""NULLs of Debezium's that may stand for a value which did not change, told by the rows of an eager view's state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from cdc.json_bytes import dumped
from cdc.schema import TableSchema
from cdc.topic import TableName
from cdc.views.fences import TopicRecord
from cdc.views.record_changes import RecordChanges
from cdc.views.view_state import ViewState
from cdc.wire.debezium.shape import silent_columns
from cdc.wire.format import AFTER, CREATE_OP, DELETE_OP, TRUNCATE_OP
from cdc.wire.records import Lot
from cdc.wire.unavailable import NULL_OR_UNCHANGED

_MARK, _CREATE, _TRUNCATE = NULL_OR_UNCHANGED.encode(), CREATE_OP.encode(), TRUNCATE_OP.encode()
_OF_NO_TYPE: dict[str, Any] = {}
"""In a column's place: a value of none of these types, and so not known."""
MOST_KEYS = 200_000


class UnsaidNulls:
    """Where the row before has NULL it is NULL. Elsewhere it became NULL or did not change, and is not known: a view
    that kept the former value would show it for ever (H574).

    ``state``, ``tables`` and ``shape``: as :class:`connectors.view_tombstones.LoneTombstones` has them. ``sure_ms``:
    the cleaner took nothing for the sake of a record as young. ``most_keys``: of so many the last record of a reading
    is remembered.
    """

    def __init__(
        self,
        state: ViewState,
        tables: Mapping[str, TableName],
        shape: Callable[[str, int], TableSchema],
        sure_ms: Callable[[], float],
        most_keys: int = MOST_KEYS,
    ) -> None:
        self._sure_ms = sure_ms
        self._most_keys = most_keys
        self._state = state
        self._tables = tables
        self._shape = shape
        self._changes = RecordChanges(state.plan, tables, shape)
        self._seen: dict[tuple[str, bytes], frozenset[str]] = {}
        """(topic, key) -> the columns that the last record of the key has as NULL."""
        self._forgot = False

    def begin(self) -> None:
        """A reading begins: what was read before stands in the state."""
        self._seen.clear()
        self._forgot = False

    def said(self, lot: Lot) -> Lot:
        """A translated lot in which each such NULL is one, or a value of no type."""
        names = frozenset(self._state.plan.relations[self._tables[lot.topic]].columns)
        silent = self._silent(lot) & names
        if not silent:
            return lot
        return lot._replace(values=[self._said(lot, number, silent) for number in range(len(lot.offsets))])

    def _silent(self, lot: Lot) -> frozenset[str]:
        """Columns of which a NULL may say nothing."""
        rows = zip(lot.ver, lot.op, lot.values, strict=True)
        shapes = {int(ver) for ver, op, value in rows if ver and op != _TRUNCATE and value is not None}
        return frozenset(name for ver in shapes for name in silent_columns(self._shape(lot.topic, ver), "debezium"))

    def _said(self, lot: Lot, number: int, silent: frozenset[str]) -> bytes | None:
        key, value = lot.keys[number], lot.values[number]
        if key is None or lot.op[number] == _TRUNCATE:
            return value
        place = lot.topic, key
        document = orjson.loads(value) if value is not None else None
        after = document.get(AFTER) if isinstance(document, dict) else None
        if not isinstance(after, dict):
            self._remember(place, frozenset())
            return value
        unsaid = [name for name in silent if after.get(name) == NULL_OR_UNCHANGED] if _MARK in (value or b"") else []
        if unsaid:
            # A created row that leaves out values has come from another key (H585): none stands before it at its own.
            sure = lot.times_ms[number] > self._sure_ms() and lot.op[number] != _CREATE
            known = self._nulls(lot, number, silent) if sure else frozenset()
            after |= {name: None if name in known else _OF_NO_TYPE for name in unsaid}
            value = dumped(document)
        self._remember(place, frozenset(name for name in silent if after.get(name) is None))
        return value

    def _remember(self, place: tuple[str, bytes], nulls: frozenset[str]) -> None:
        if len(self._seen) >= self._most_keys:
            self._seen.clear()
            self._forgot = True
        self._seen[place] = nulls

    def _nulls(self, lot: Lot, number: int, silent: frozenset[str]) -> frozenset[str]:
        """The columns that are known to be NULL in the row before: of this reading, or in the state."""
        pos, key = lot.pos[number], lot.keys[number]
        assert pos is not None
        assert key is not None
        seen = self._seen.get((lot.topic, key))
        if seen is not None or self._forgot:
            return seen or frozenset()
        version, place = int(lot.ver[number] or b"0"), (lot.topic, lot.partition, lot.offsets[number])
        record = TopicRecord(*place, key, None, pos.decode(), DELETE_OP, version, lot.times_ms[number])
        try:
            change = self._changes.of(record, 0)
        except (ValueError, KeyError, TypeError, AttributeError):
            return frozenset()  # It is none of the table's, and is named as such where it is read.
        row, _ = self._state.rows.known(change.table, [change.key]).get(change.key, (None, ""))
        lost = self._state.unseen.lost(change.table, [change.key]).get(change.key, frozenset())
        columns = self._state.plan.relations[change.table].columns
        return frozenset(
            name
            for place, name in enumerate(columns)
            if row is not None and name in silent and row[place] is None and place not in lost
        )
