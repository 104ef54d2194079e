"""One document of a state in Delta tables, computed in this process from the files of its rows."""

from __future__ import annotations

from cdc.topic import TableName
from cdc.views.bucket_layout import GatheredRows
from cdc.views.lookups import Row
from spark.views.view_parts import Files, ShippedView


def gathered_rows(shipped: ShippedView, files: Files, key: Row) -> GatheredRows:
    """The rows that a document's root reaches. ``files``: of one version of the state."""
    parts = shipped.parts()
    reader, layout = parts.files(), parts.layout
    link = layout.root.found_by(key)
    copy, found = parts.found(reader, files, layout.place(layout.root, link)[0], [link])
    roots = [row for row in found if copy.link(row) == link]
    tables: dict[TableName, list[Row]] = {copy.relation.table: roots}
    waiting = [(parts.plan.root.number, roots)]
    while waiting:
        number, above = waiting.pop()
        for step in parts.walks.below(number):
            rows: list[Row] = []
            for wanted in step.links(above):
                below, found = parts.found(reader, files, layout.place(step.copy, wanted)[0], [wanted])
                rows += [row for row in found if below.link(row) == wanted]
            tables.setdefault(step.copy.relation.table, []).extend(rows)
            waiting.append((step.number, rows))
    return GatheredRows(layout, tables)
