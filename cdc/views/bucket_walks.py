"""The walks over a view's ties, a step at a time: from changed rows up to the keys of roots, from roots down to all
rows of their documents. Each step says which values are looked up in which bucket. Pure.

The steps are those of :mod:`cdc.views.root_keys` and :mod:`cdc.views.lookups`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cdc.topic import TableName
from cdc.views.bucket_layout import BucketLayout, StoredCopy
from cdc.views.lookups import Row, TieValues, twins_of
from cdc.views.view_plan import KeptTable, Occurrence, ViewPlan


class WalkStep(NamedTuple):
    """Values of rows of ``source`` are looked up in ``copy``. ``number``: of the occurrence whose tie it follows.
    ``reaches``: the occurrence that the rows found there stand for."""

    number: int
    copy: StoredCopy
    values: TieValues
    reaches: int

    def links(self, rows: Iterable[Row]) -> set[Row]:
        """The keys to look up for whole rows, as :meth:`StoredCopy.found_by` has it."""
        return {self.copy.found_by(values) for values in self.values.parameters(self.values.wanted(rows))}


def _values(own: KeptTable, columns: Sequence[str], other: KeptTable, others: Sequence[str]) -> TieValues:
    places = [(own.columns.index(column), own.kind(column)) for column in columns]
    return TieValues(places, [other.kind(column) for column in others])


class BucketWalks:
    """Both walks of a plan."""

    def __init__(self, plan: ViewPlan, layout: BucketLayout) -> None:
        self._plan = plan
        self._twins = twins_of(plan)
        self._by_number = {occurrence.number: occurrence for occurrence in plan.occurrences}
        self.up: dict[int, WalkStep] = {}
        self.down: dict[int, WalkStep] = {}
        for one in plan.occurrences:
            if one.tie is None or self._twins[one.number] != one.number:
                continue
            above = self._by_number[one.tie.above]
            own, over = plan.relations[one.table], plan.relations[above.table]
            upward = _values(own, one.tie.columns, over, one.tie.above_columns)
            copy = layout.found(above.table, one.tie.above_columns)
            self.up[one.number] = WalkStep(one.number, copy, upward, self._twins[above.number])
            downward = _values(over, one.tie.above_columns, own, one.tie.columns)
            self.down[one.number] = WalkStep(one.number, layout.found(one.table, one.tie.columns), downward, one.number)

    def begins(self, table: TableName) -> list[Occurrence]:
        """Where a changed row of a table stands in the view, without repeats."""
        return [one for one in self._plan.of_table(table) if self._twins[one.number] == one.number]

    def is_root(self, number: int) -> bool:
        """Whether an occurrence is the root."""
        return number == self._plan.root.number

    def below(self, number: int) -> list[WalkStep]:
        """The steps down from an occurrence."""
        found = []
        for step in self.down.values():
            tie = self._by_number[step.number].tie
            if tie is not None and self._twins[tie.above] == number:
                found.append(step)
        return found

    @property
    def depth(self) -> int:
        """How many steps the longest walk has."""
        return max((self._depth(one) for one in self._plan.occurrences), default=0)

    def _depth(self, one: Occurrence) -> int:
        return 0 if one.tie is None else 1 + self._depth(self._by_number[one.tie.above])
