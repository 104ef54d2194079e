"""How many rows of a batch a warehouse takes as one merge."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from sinks.warehouse.warehouse_columns import DELETED
from sinks.warehouse.warehouse_rows import lots

_ROWS_OF_A_PIECE = 16_384


@pytest.mark.parametrize(("rows", "merges"), [(1, 1), (250_000, 1), (262_144, 1), (262_145, 2)])
def test_h537_a_full_batch_is_one_merge(rows: int, merges: int) -> None:
    starts = range(0, rows, _ROWS_OF_A_PIECE)
    of_no_table: Any = None
    pieces = ((pa.table({DELETED: [False] * min(_ROWS_OF_A_PIECE, rows - start)}), of_no_table, ()) for start in starts)
    found = list(lots(pieces))
    assert [len(found), sum(table.num_rows for table, _, _ in found)] == [merges, rows]
