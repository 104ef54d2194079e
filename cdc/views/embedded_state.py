"""One step of a view's state: apply changed rows, and learn which documents they concern. Postgres is not asked.

For each batch: the newest of each key, less the rows whose used columns are as they were. Then the roots reachable from
the old rows in the old state, then the rows, then the roots reachable from the new rows in the new state.

A document is a function of the rows that are reachable along its ties. If it changed, a row that went was reachable in
the old state, or one that came is in the new.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from cdc.record.position import Position
from cdc.record.topic_names import TableName
from cdc.views.fences import BEFORE_ALL, Fence
from cdc.views.lookups import Row, TieValues, parts, twins_of
from cdc.views.row_changes import NO_PLACES, Places, RowChange, UnseenRows, filled, newest, parted
from cdc.views.sqlite_rows import SqliteRows
from cdc.views.view_plan import Occurrence, ViewPlan


class _Fresh(NamedTuple):
    """A change that is not older than what is known of its key: the row before it, and the places of values that were
    not known, and are not."""

    row: Row | None
    change: RowChange
    lost: Places
    lacks: Places

    @property
    def concerns(self) -> bool:
        """Whether documents may be others."""
        return self.row != self.change.row or bool(self.lost or self.lacks)


class KnownUpTo(NamedTuple):
    """Up to where values are known that are not from a change on. ``shown``: documents are as published. ``claimed``:
    by the view's topic."""

    shown: Fence = BEFORE_ALL
    claimed: Fence = BEFORE_ALL

    def of(self, pos: str) -> Fence:
        """Of a change's row. Its own commit is none such: the cleaner may have taken what was just before it, in which
        the row stood elsewhere."""
        position = Position.parse(pos)
        return max(self.shown, min(Fence(position.epoch, position.commit_lsn), self.claimed))


_NOTHING_KNOWN = KnownUpTo()


class EmbeddedState:
    """Rows of the tables that a view uses, and the walk from them to its documents."""

    def __init__(self, rows: SqliteRows, unseen: UnseenRows, plan: ViewPlan) -> None:
        self.rows = rows
        self._unseen = unseen
        self._plan = plan
        self._twins = twins_of(plan)
        self._by_number = {occurrence.number: occurrence for occurrence in plan.occurrences}
        self._widths = {table: len(relation.columns) for table, relation in plan.relations.items()}

    def load(
        self, changes: Iterable[RowChange], fence: Fence, below: KnownUpTo, put_aside: Sequence[RowChange]
    ) -> None:
        """Take changes in as :meth:`apply`, and ask nothing of documents: for what is read before any is published."""
        for table, of_table in self._due(changes, fence, put_aside).items():
            self._store(table, self._fresh(table, of_table), below)

    def sweep(self, floors: Mapping[TableName, str], below: KnownUpTo) -> None:
        """Remove all rows below floors, and ask nothing of documents."""
        for table, floor in floors.items():
            self._store(table, self._fresh(table, self._swept(table, floor, {})), below)

    def apply(
        self,
        changes: Iterable[RowChange],
        floors: Mapping[TableName, str] = MappingProxyType({}),
        *,
        fence: Fence = BEFORE_ALL,
        below: KnownUpTo = _NOTHING_KNOWN,
        put_aside: Sequence[RowChange] = (),
    ) -> set[Row]:
        """Take changes in. Returns the keys of the roots whose documents they concern.

        Late and repeated changes are passed over: a row keeps the newest position that it had, a deleted one, too.
        ``floors``: positions below which all rows of a table are gone. ``fence``: what is newer waits, and what has
        waited for it is taken in. ``below``: up to there values are known that are not known from now on.
        ``put_aside``: rows that the log does not hold, each to be taken in once it is ripe.
        """
        taken = self._due(changes, fence, put_aside)
        for table, floor in floors.items():
            taken[table] = self._swept(table, floor, taken.get(table, {}))
        fresh = {table: self._fresh(table, of_table) for table, of_table in taken.items()}
        concerned: set[Row] = set()
        for table, changed in fresh.items():
            old = [one.row for one in changed if one.row is not None and one.concerns]
            concerned |= self._roots(table, old)
        for table, changed in fresh.items():
            self._store(table, changed, below)
        for table, changed in fresh.items():
            new = [one.change.row for one in changed if one.change.row is not None and one.concerns]
            concerned |= self._roots(table, new)
        return concerned

    def blocked(self) -> set[Row]:
        """The keys of the roots that reach a row of which a value is not known."""
        found: set[Row] = set()
        for table, keys in self._unseen.lacking():
            rows = [row for row, _ in self.rows.known(table, keys).values() if row is not None]
            found |= self._roots(table, rows)
        return found

    def _due(
        self, changes: Iterable[RowChange], fence: Fence, put_aside: Sequence[RowChange]
    ) -> dict[TableName, dict[Row, RowChange]]:
        """The changes that hold at the fence. All others wait."""
        due, later = [], list(put_aside)
        for change in changes:
            now, then = parted(change, fence, self._widths[change.table])
            if now is not None:
                due.append(now)
            if then is not None:
                later.append(then)
        self._unseen.wait(later)
        return newest([*self._unseen.ripe(fence), *due] if self._unseen.waits else due)

    def _store(self, table: TableName, changed: Sequence[_Fresh], below: KnownUpTo) -> None:
        # A numeric key that became 1.0 from 1 is another key and the same row.
        changes = [one.change for one in changed]
        self.rows.remove(table, [(c.key, c.pos) for c in changes if c.row is None])
        self.rows.put(table, [(c.row, c.pos) for c in changes if c.row is not None])
        lost = [one for one in changed if one.lost or one.lacks]
        self._unseen.note(table, {one.change.key: (one.lacks, below.of(one.change.pos)) for one in lost})
        if self._unseen.waits:
            self._unseen.replaced(table, changes)

    def _swept(self, table: TableName, floor: str, changes: Mapping[Row, RowChange]) -> dict[Row, RowChange]:
        """The changes that a floor leaves, and a deletion of each row below it."""
        self._unseen.below(table, floor)
        width = len(self.rows.key(table))
        gone = {row[:width]: RowChange(table, row[:width], None, floor) for row in self.rows.below(table, floor)}
        before = {key: RowChange(table, key, None, floor) for key, change in changes.items() if change.pos < floor}
        return gone | before | {key: change for key, change in changes.items() if change.pos >= floor}

    def _fresh(self, table: TableName, changes: Mapping[Row, RowChange]) -> list[_Fresh]:
        """Each change that is not older than what is known of its key."""
        keys = list(changes)
        known = self.rows.known(table, keys)
        lost = self._unseen.lost(table, keys) if self._unseen.lacks else {}
        found = []
        for key, change in changes.items():
            row, pos = known.get(key, (None, ""))
            if change.pos >= pos:
                before = lost.get(key, NO_PLACES)
                whole, lacks = (None, NO_PLACES) if change.row is None else filled(change.row, row, before)
                same = whole is change.row
                found.append(_Fresh(row, change if same else change._replace(row=whole), before, lacks))
        return found

    def _roots(self, table: TableName, changed: Sequence[Row]) -> set[Row]:
        """Keys of the roots whose documents hold whole rows of a relation, wherever its table stands in the view."""
        found: set[Row] = set()
        relation = self._plan.relations[table]
        for occurrence in self._plan.of_table(table):
            if self._twins[occurrence.number] != occurrence.number:
                continue  # It reaches the same roots.
            places = [relation.columns.index(column) for column in occurrence.columns]
            found |= self._upward(occurrence, parts(changed, places))
        return found

    def _upward(self, occurrence: Occurrence, changed: Iterable[Row]) -> set[Row]:
        """One step up for each tie, until the root."""
        current = list(changed)
        while occurrence.tie is not None and current:
            above = self._by_number[occurrence.tie.above]
            wanted = self._wanted(occurrence, above, current)
            columns = above.columns
            current = self.rows.select(above.table, columns, occurrence.tie.above_columns, wanted) if wanted else []
            occurrence = above
        key = self._plan.relations[occurrence.table].key
        places = [occurrence.columns.index(column) for column in key]
        return set(parts(current, places))

    def _wanted(self, occurrence: Occurrence, above: Occurrence, rows: Iterable[Row]) -> list[Row]:
        tie = occurrence.tie
        assert tie is not None
        own, over = self._plan.relations[occurrence.table], self._plan.relations[above.table]
        converted = TieValues(
            [(occurrence.columns.index(c), own.kind(c)) for c in tie.columns],
            [over.kind(c) for c in tie.above_columns],
        )
        return converted.parameters(converted.wanted(rows))
