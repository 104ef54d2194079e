"""The rows that a document is made of, and when each of them changed last: why a document was last written."""

from __future__ import annotations

from typing import NamedTuple

from cdc.position import Position
from cdc.topic import TableName
from cdc.views.lookups import DocumentSource, Row
from cdc.views.sqlite_rows import SqliteRows
from cdc.views.view_plan import ViewPlan


class DocumentPart(NamedTuple):
    """A row that a document shows or is tied by. ``position``: of its last change."""

    table: TableName
    key: Row
    position: Position


def parts_of(plan: ViewPlan, rows: SqliteRows, key: Row) -> list[DocumentPart]:
    """The parts of the document with this key, the one that changed last first. Nothing where there is no root.

    A row that left the document is none of them: it is in none of its tables' rows any more.
    """
    found: dict[TableName, set[Row]] = {}
    for occurrence, rows_of in DocumentSource(plan).rows_of(rows, key):
        columns = [occurrence.columns.index(column) for column in plan.relations[occurrence.table].key]
        found.setdefault(occurrence.table, set()).update(tuple(row[i] for i in columns) for row in rows_of)
    parts = [
        DocumentPart(table, own, Position.parse(pos))
        for table, keys in found.items()
        for own, (_, pos) in rows.known(table, sorted(keys)).items()
    ]
    return sorted(parts, key=lambda part: (part.position, part.table, part.key), reverse=True)
