"""Records of a table's topic as rows of the state."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from cdc.record.position import Position
from cdc.record.topic_names import TableName
from cdc.views.embedded_state import EmbeddedState, KnownUpTo
from cdc.views.log_cut import Fence
from cdc.views.lookups import DocumentSource
from cdc.views.row_changes import RowChange
from cdc.views.syntax import NotComputable
from cdc.views.view_plan import planned
from cdc.views.view_records import StateRows
from cdc.views.view_state import ViewState
from tests.unit.cdc.views.view_histories import table_of

ROWS: list[tuple[int, Any]] = [(1, 99), (2, "x")]


def test_h214_a_row_without_its_key_is_none() -> None:
    """Somebody else's record may look like a flat row, and the state takes no row without a key."""
    shape = table_of("visits", {"id": "int4", "v": "text"})
    plan = planned("select v.id, v.v from visits v", [shape])
    rows = StateRows(shape, plan.relations[TableName("public", "visits")])
    assert rows.row({"id": 1, "v": None}) == (1, None)
    for after in ({"before": None}, {"id": None, "v": "x"}):
        with pytest.raises(ValueError, match="key"):
            rows.row(after)


def test_h214_a_value_of_another_type_parks_its_document(tmp_path: Path) -> None:
    """A column's type changes while the view is kept: nothing but the documents that it concerns stands still."""
    table = TableName("public", "visits")
    plan = planned("select v.id, length(v.v) as size from visits v", [table_of("visits", {"id": "int4", "v": "text"})])
    with closing(ViewState(tmp_path / "state", plan, 1)) as state, state.transaction():
        changes = [RowChange(table, (key,), (key, value), Position(1, 15, key).text()) for key, value in ROWS]
        EmbeddedState(state.rows, state.unseen, plan).load(changes, Fence(1, 80), KnownUpTo(), [])
        found = DocumentSource(plan).of(state.rows, [(1,), (2,)])
    assert isinstance(found[(1,)], NotComputable)
    assert "does not have the type" in str(found[(1,)])
    assert orjson.loads(found[(2,)]) == {"id": 2, "size": 1}
