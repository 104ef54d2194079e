"""A table of 500 columns, and 100 more later."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.record.schema import TableSchema
from tests.contract.stores import Store, live
from tests.contract.topics import Shapes, Topic, at, batch, column, shape

KINDS = ("text", "int8", "timestamptz", "jsonb", "bool")


@pytest.mark.slow
def test_five_hundred_columns_and_a_hundred_more(store: Store) -> None:
    def wide(count: int, version: int) -> TableSchema:
        return shape(
            column("id", "int8", key=1), *(column(f"c{n}", KINDS[n % 5]) for n in range(count)), version=version
        )

    def row(number: int, count: int) -> dict[str, Any]:
        values = ("t", 7, "2016-11-04T11:51:30.123456Z", '{"a": 1}', True)
        return {"id": number, **{f"c{n}": values[n % 5] for n in range(count)}}

    first, second = wide(500, 1), wide(600, 2)
    sink = store.open()
    old, new = Topic(first), Topic(second)
    assert sink.sink.apply(batch(*[old.upsert(row(n, 500), at(n)) for n in range(20)]), Shapes(first)).applied == 20
    assert sink.sink.apply(batch(new.upsert(row(50, 600), at(90))), Shapes(first, second)).applied == 1
    assert len(live(sink, second)) == 21
