"""The documents that a change concerns: the roots that the changed rows reach, in the old state and in the new one.

A document is a function of the rows that are reachable along its ties. If it changed, a row that went was reachable in
the old state, or one that came is in the new.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cdc.topic import TableName
from cdc.views.lookups import Row, Rows, TieValues, parts, twins_of
from cdc.views.view_plan import Occurrence, ViewPlan


class RootKeys:
    """Walks from rows to the keys of the roots whose documents hold them."""

    def __init__(self, plan: ViewPlan) -> None:
        self._plan = plan
        self._twins = twins_of(plan)
        self._by_number = {occurrence.number: occurrence for occurrence in plan.occurrences}

    def of(self, rows: Rows, table: TableName, changed: Sequence[Row]) -> set[Row]:
        """Keys of roots, from whole rows of a relation, wherever its table stands in the view."""
        found: set[Row] = set()
        relation = self._plan.relations[table]
        for occurrence in self._plan.of_table(table):
            if self._twins[occurrence.number] != occurrence.number:
                continue  # It reaches the same roots.
            places = [relation.columns.index(column) for column in occurrence.columns]
            found |= self._upward(rows, occurrence, parts(changed, places))
        return found

    def _upward(self, rows: Rows, occurrence: Occurrence, changed: Iterable[Row]) -> set[Row]:
        """One step up for each tie, until the root."""
        current = list(changed)
        while occurrence.tie is not None and current:
            above = self._by_number[occurrence.tie.above]
            wanted = self._wanted(occurrence, above, current)
            columns = above.columns
            current = rows.select(above.table, columns, occurrence.tie.above_columns, wanted) if wanted else []
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
