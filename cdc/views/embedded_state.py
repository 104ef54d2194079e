"""One step of a view's state: apply changed rows, and learn which documents they concern. Postgres is not asked.

For each batch: the newest of each key, less the rows whose used columns are as they were. Then the roots reachable from
the old rows in the old state, then the rows, then the roots reachable from the new rows in the new state (V3, V9).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from cdc.topic import TableName
from cdc.views.lookups import Row
from cdc.views.root_keys import KEPT, RootKeys, RowChange, filled
from cdc.views.sqlite_rows import SqliteRows
from cdc.views.view_plan import ViewPlan


def newest(changes: Iterable[RowChange]) -> dict[TableName, dict[Row, RowChange]]:
    """Of each key the change with the greatest position. Of equal ones the later."""
    found: dict[TableName, dict[Row, RowChange]] = {}
    for change in changes:
        of_table = found.setdefault(change.table, {})
        known = of_table.get(change.key)
        if known is None:
            of_table[change.key] = change
        elif change.pos >= known.pos:
            # What the newer one leaves out is what the older one has, unless the row went between the two.
            row = change.row if change.row is None or known.row is None else _over(change.row, known.row)
            of_table[change.key] = replace(change, row=row)
    return found


def _over(newer: Row, older: Row) -> Row:
    return tuple(old if value is KEPT else value for value, old in zip(newer, older, strict=True))


class EmbeddedState:
    """Rows of the tables that a view uses, and the walk from them to its documents."""

    def __init__(self, rows: SqliteRows, plan: ViewPlan) -> None:
        self.rows = rows
        self._walk = RootKeys(plan)

    def load(self, changes: Iterable[RowChange]) -> None:
        """Take changes in, and ask nothing of documents: for what is read before any is published."""
        for table, of_table in newest(changes).items():
            self._store(table, self._fresh(table, of_table))

    def sweep(self, floors: Mapping[TableName, str]) -> None:
        """Remove all rows below floors, and ask nothing of documents."""
        for table, floor in floors.items():
            self._store(table, self._fresh(table, self._swept(table, floor, {})))

    def _store(self, table: TableName, changed: list[tuple[Row | None, RowChange]]) -> None:
        # A numeric key that became 1.0 from 1 is another key and the same row.
        self.rows.remove(table, [(c.key, c.pos) for _, c in changed if c.row is None])
        self.rows.put(table, [(c.row, c.pos) for _, c in changed if c.row is not None])

    def apply(self, changes: Iterable[RowChange], floors: Mapping[TableName, str] = MappingProxyType({})) -> set[Row]:
        """Take changes in. Returns the keys of the roots whose documents they concern.

        Late and repeated changes are passed over: a row keeps the newest position that it had, a deleted one, too.
        ``floors``: positions below which all rows of a table are gone.
        """
        walk = self._walk
        taken = newest(changes)
        for table, floor in floors.items():
            taken[table] = self._swept(table, floor, taken.get(table, {}))
        fresh = {table: self._fresh(table, of_table) for table, of_table in taken.items()}
        concerned: set[Row] = set()
        for table, changed in fresh.items():
            old = [row for row, change in changed if row is not None and row != change.row]
            concerned |= walk.of(self.rows, table, old)
        for table, changed in fresh.items():
            self._store(table, changed)
        for table, changed in fresh.items():
            new = [change.row for row, change in changed if change.row is not None and row != change.row]
            concerned |= walk.of(self.rows, table, new)
        return concerned

    def _swept(self, table: TableName, floor: str, changes: Mapping[Row, RowChange]) -> dict[Row, RowChange]:
        """The changes that a floor leaves, and a deletion of each row below it."""
        width = len(self.rows.key(table))
        gone = {row[:width]: RowChange(table, row[:width], None, floor) for row in self.rows.below(table, floor)}
        before = {key: RowChange(table, key, None, floor) for key, change in changes.items() if change.pos < floor}
        return gone | before | {key: change for key, change in changes.items() if change.pos >= floor}

    def _fresh(self, table: TableName, changes: Mapping[Row, RowChange]) -> list[tuple[Row | None, RowChange]]:
        """Each change that is not older than what is known of its key, with the row that stands there."""
        known = self.rows.known(table, list(changes))
        found = []
        for key, change in changes.items():
            row, pos = known.get(key, (None, ""))
            if change.pos >= pos:
                whole = change
                if change.row is not None and KEPT in change.row:
                    whole = replace(change, row=filled(change.row, row))
                found.append((row, whole))
        return found
