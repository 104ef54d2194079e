"""Columns of a view that a table has no more, or as another type, while the view runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.process.errors import ConfigError
from cdc.record.schema import TableSchema
from cdc.views.view_plan import KeptTable, planned
from cdc.views.view_records import StateRows
from tests.unit.cdc.views.test_refused_views import table

NOW = table("items", {"id": "int4", "code": "int4", "day": "date", "name": "text", "other": "int4"}, "id")
AFTER = {"id": 1, "code": 2, "day": "2026-11-27Z", "name": "n", "other": 3}


def of_view() -> KeptTable:
    return planned("select id, code, day, name from items", [NOW]).relations[NOW.table]


def altered(version: int, **kinds: str) -> TableSchema:
    columns = [replace(c, kind=kinds.get(c.name, c.kind), type=kinds.get(c.name, c.type)) for c in NOW.columns]
    return replace(NOW, version=version, columns=tuple(columns))


@pytest.mark.parametrize("column", ["code", "day", "name"])
def test_h450_a_column_that_is_gone_stops_the_view(column: str) -> None:
    """Renamed, it would be null in every document, under an LSN that is claimed."""
    left = tuple(c for c in NOW.columns if c.name != column)
    with pytest.raises(ConfigError, match=f"has no column {column} any more"):
        StateRows(replace(NOW, version=2, columns=left), of_view())
    StateRows(replace(NOW, version=0, columns=left), of_view())  # from before it was added


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("code", "text"),
        ("code", "bool"),
        ("code", "numeric"),
        ("day", "timestamp"),
        ("name", "jsonb"),
        ("name", "bpchar"),
    ],
)
def test_h450_a_column_of_another_type_stops_the_view(column: str, kind: str) -> None:
    """Numbers that are text now made documents that are no JSON, and rows with other times were passed over."""
    with pytest.raises(ConfigError, match=f"{column} of public.items is of type {kind}"):
        StateRows(altered(2, **{column: kind}), of_view())
    StateRows(altered(0, **{column: kind}), of_view())  # from before the plan


def test_h450_what_the_view_does_not_read_may_change() -> None:
    for shape in (altered(2, other="text"), altered(2, code="int8", name="varchar"), replace(NOW, version=2)):
        assert StateRows(shape, of_view()).row(AFTER)[:2] == (1, 2)
