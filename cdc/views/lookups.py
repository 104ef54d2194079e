"""From the keys of roots to documents: what the program looks up is fetched for many at once. And by the source's
statistics, how many documents a change of one row concerns, and how large a view's state grows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from cdc.record.topic_names import TableName
from cdc.views.aggregating import same_key
from cdc.views.sql_types import Group, SqlType
from cdc.views.stored_values import link_parameter, loaded
from cdc.views.syntax import NotComputable
from cdc.views.view_plan import KeptTable, Occurrence, Tie, ViewPlan

if TYPE_CHECKING:
    from cdc.views.embedded_state import SqliteRows


Row = tuple[Any, ...]
"""Values as the state holds them."""


def parts(rows: Iterable[Row], places: Sequence[int]) -> Iterable[Row]:
    """Of each row the values at these places."""
    if len(places) == 1:
        (place,) = places
        return [(row[place],) for row in rows]
    return map(itemgetter(*places), rows) if places else [() for _ in rows]


class TieValues:
    """Values of one side of a tie, brought to the form in which both compare and to what the other side's index has."""

    def __init__(self, places: Sequence[tuple[int, SqlType]], other: Sequence[SqlType]) -> None:
        self._places = [(place, _value(kind)) for place, kind in places]
        self._indexed = [link_parameter(kind) for kind in other]
        plain = len(places) == 1 and self._places[0][1] is _as_it_is
        self._plain = places[0][0] if plain else None
        """The one column, where its values are looked up as they stand."""
        pairs = zip([kind.group for _, kind in places], other, self._indexed, strict=True)
        self._same = all(f is None or own is kind.group is Group.INTEGER for own, kind, f in pairs)

    def values(self, row: Row) -> Row | None:
        """The values of a row, equal for those that are equal in Postgres. None where one is NULL."""
        return _values(self._places, row)

    def wanted(self, rows: Iterable[Row]) -> set[Row]:
        """The values of many rows, without NULLs."""
        if self._plain is not None:
            place = self._plain
            return {(row[place],) for row in rows if row[place] is not None}
        return {values for row in rows if (values := _values(self._places, row)) is not None}

    def parameters(self, wanted: Iterable[Row]) -> list[Row]:
        """Values as the other side's index has them. Those that no row there can have are left out."""
        if self._same:
            return list(wanted)
        return [found for values in wanted if (found := _parameter(self._indexed, values)) is not None]

    def gathered(self, rows: Iterable[Row], into: dict[Any, list[Row]]) -> None:
        """Put rows under their values: under the one value, where there is one column."""
        if self._plain is not None:
            place = self._plain
            for row in rows:
                into.setdefault(row[place], []).append(row)
            return
        single = len(self._places) == 1
        for row in rows:
            values = _values(self._places, row)
            if values is not None:
                into.setdefault(values[0] if single else values, []).append(row)


class Ties:
    """How the rows of one occurrence are found from those of the one above."""

    def __init__(
        self, occurrence: Occurrence, tie: Tie, relation: KeptTable, above: Occurrence, over: KeptTable
    ) -> None:
        self.occurrence = occurrence
        self.tie = tie
        own_kinds = [relation.kind(c) for c in tie.columns]
        self.own = TieValues([(occurrence.columns.index(c), relation.kind(c)) for c in tie.columns], own_kinds)
        self.above = TieValues([(above.columns.index(c), over.kind(c)) for c in tie.above_columns], own_kinds)


def _value(kind: SqlType) -> Callable[[Any], Any]:
    load, same = loaded(kind), same_key(kind)
    if load is None:
        return same or _as_it_is
    return load if same is None else (lambda value: same(load(value)))


def _as_it_is(value: Any) -> Any:
    return value


def _values(places: Sequence[tuple[int, Callable[[Any], Any]]], row: Row) -> Row | None:
    values = []
    for place, convert in places:
        value = row[place]
        if value is None:
            return None
        values.append(convert(value))
    return tuple(values)


def _parameter(convert: Sequence[Callable[[Any], Any] | None], values: Row) -> Row | None:
    try:
        return tuple(v if f is None else f(v) for f, v in zip(convert, values, strict=True))
    except NotComputable:
        return None


def ties_of(plan: ViewPlan) -> list[Ties]:
    """The ties of a view, each behind that of the occurrence above."""
    by_number = {occurrence.number: occurrence for occurrence in plan.occurrences}
    found = []
    for occurrence in plan.occurrences:
        if occurrence.tie is not None:
            above = by_number[occurrence.tie.above]
            relations = plan.relations[occurrence.table], plan.relations[above.table]
            found.append(Ties(occurrence, occurrence.tie, relations[0], above, relations[1]))
    return found


_OTHER_TYPE = "a value does not have the type that its column had when the view began, or Headrace has a fault here"
"""Which of the two cannot be told: a program that fails on a value fails alike on both."""


class DocumentSource:
    """Computes a view's rows from the state. Not for several threads at once: the program has one set of lookups."""

    def __init__(self, plan: ViewPlan) -> None:
        self._plan = plan
        twins = twins_of(plan)
        self._twins = [
            (ties, twin if (twin := twins[ties.occurrence.number]) != ties.occurrence.number else None)
            for ties in ties_of(plan)
        ]
        root = plan.root
        self._root_key = [root.columns.index(column) for column in plan.relations[root.table].key]

    def of(self, rows: SqliteRows, keys: Iterable[Row]) -> Mapping[Row, Any]:
        """For each key of a root its row on the wire as JSON text. Of a grouped view: what it contributes.

        None where there is none. NotComputable where Postgres would end the query with an error, and where a value does
        not have the type that the view knows.
        """
        wanted = list(keys)
        found: dict[Row, Any] = dict.fromkeys(wanted)
        root = self._plan.root
        roots = rows.select(root.table, root.columns, self._plan.relations[root.table].key, wanted)
        self._fill(rows, roots)
        document = self._plan.program.document
        for key, row in zip(parts(roots, self._root_key), roots, strict=True):
            try:
                found[key] = document(row)
            except NotComputable as failure:
                found[key] = failure
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as failure:
                # A column has another type than it had when the view began.
                found[key] = NotComputable(f"{_OTHER_TYPE} ({type(failure).__name__})")
        for lookup in self._plan.program.lookups.values():
            lookup.clear()
        return found

    def rows_of(self, rows: SqliteRows, key: Row) -> list[tuple[Occurrence, list[Row]]]:
        """The rows from which the document of a root is computed, by where their table stands in the view."""
        root = self._plan.root
        roots = rows.select(root.table, root.columns, self._plan.relations[root.table].key, [key])
        of = self._fill(rows, roots)
        for lookup in self._plan.program.lookups.values():
            lookup.clear()
        return [(occurrence, of[occurrence.number]) for occurrence in self._plan.occurrences]

    def _fill(self, rows: SqliteRows, roots: list[Row]) -> dict[int, list[Row]]:
        """Fetch what the program looks up for these roots, an occurrence behind the one that it is tied to.

        The rows that one occurrence has found serve those of the same table that are tied in the same way.
        """
        lookups = self._plan.program.lookups
        of: dict[int, list[Row]] = {self._plan.root.number: roots}
        for ties, twin in self._twins:
            number = ties.occurrence.number
            if twin is not None:
                of[number] = of[twin]
                lookups[number].update(lookups[twin])
                continue
            occurrence, tie = ties.occurrence, ties.tie
            parameters = ties.above.parameters(ties.above.wanted(of[tie.above]))
            found = rows.select(occurrence.table, occurrence.columns, tie.columns, parameters) if parameters else []
            of[number] = found
            ties.own.gathered(found, lookups[number])
        return of


def twins_of(plan: ViewPlan) -> dict[int, int]:
    """For each occurrence the first one of the same table that is tied in the same way. The root stands for itself."""
    first: dict[tuple[Any, ...], int] = {}
    found: dict[int, int] = {}
    for occurrence in plan.occurrences:
        tie = occurrence.tie
        way = () if tie is None else (found[tie.above], tie.columns, tie.above_columns)
        found[occurrence.number] = first.setdefault((occurrence.table, *way), occurrence.number)
    return found


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
