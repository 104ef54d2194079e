"""How many documents a change of one row concerns, and how large a view's state grows, by the source's statistics.
Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from cdc.record.topic_names import TableName
from cdc.views.lookups import twins_of
from cdc.views.view_plan import Occurrence, ViewPlan

_ROW_BYTES = 40
"""Position and overhead of a row in the state, about."""


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """Of a column, as pg_stats has them. ``distinct``: different values. ``commonest``: the share of the commonest one,
    from 0 to 1. ``width_bytes``: of a value on average."""

    distinct: float
    commonest: float
    width_bytes: float


@dataclass(frozen=True, slots=True)
class TableStatistics:
    """``rows``: about how many. ``columns``: those that were analyzed."""

    rows: float
    columns: Mapping[str, ColumnStatistics]


class DocumentFanOut(NamedTuple):
    """A change of one row of ``occurrence`` concerns ``usual`` documents, and at most about ``most``."""

    occurrence: Occurrence
    usual: float
    most: float


def fan_outs(plan: ViewPlan, statistics: Mapping[TableName, TableStatistics]) -> list[DocumentFanOut]:
    """For each table where it stands in the view, the root aside. One that was never analyzed is left out."""
    twins = twins_of(plan)
    by_number = {occurrence.number: occurrence for occurrence in plan.occurrences}
    found: dict[int, DocumentFanOut | None] = {plan.root.number: DocumentFanOut(plan.root, 1, 1)}
    for occurrence in plan.occurrences:
        tie = occurrence.tie
        if tie is None:
            continue
        over, step = found[tie.above], None
        if over is not None:
            step = _step(plan, by_number[tie.above], tie.above_columns, statistics)
        found[occurrence.number] = (
            None
            if over is None or step is None
            else DocumentFanOut(occurrence, over.usual * step[0], over.most * step[1])
        )
    return [f for n, f in found.items() if f is not None and f.occurrence.tie is not None and twins[n] == n]


def _step(
    plan: ViewPlan, above: Occurrence, columns: tuple[str, ...], statistics: Mapping[TableName, TableStatistics]
) -> tuple[float, float] | None:
    """How many rows above have the same values in these columns: usually, and at most. None where it is not known."""
    if set(columns) >= set(plan.relations[above.table].key):
        return 1, 1
    of = statistics.get(above.table)
    known = [of.columns[column] for column in columns if column in of.columns] if of is not None else []
    if of is None or not known:
        return None
    # Of several columns the one with the most distinct values decides.
    usual = min(of.rows / max(one.distinct, 1) for one in known)
    most = min(max(of.rows * one.commonest, of.rows / max(one.distinct, 1)) for one in known)
    return max(usual, 1), max(most, 1)


def state_bytes_of(plan: ViewPlan, statistics: Mapping[TableName, TableStatistics]) -> float | None:
    """About the size of the state's rows and indexes. None where a table was never analyzed."""
    total = 0.0
    for table, relation in plan.relations.items():
        of = statistics.get(table)
        if of is None or not of.columns:
            return None
        width = sum(of.columns[column].width_bytes for column in relation.columns if column in of.columns)
        indexed = sum(
            of.columns[column].width_bytes + _ROW_BYTES / 2
            for columns in relation.indexed
            for column in (*columns, *relation.key)
            if column in of.columns
        )
        total += of.rows * (width + indexed + _ROW_BYTES)
    return total
