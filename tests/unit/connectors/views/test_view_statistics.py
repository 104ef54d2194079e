"""Statistics of the tables of many views: each table is asked for once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from cdc.process.errors import SourceError
from cdc.record.topic_names import TableName
from cdc.views.lookups import TableStatistics
from connectors.views.view_planning import StatisticsOnce

A, B, C = (TableName("public", name) for name in "abc")


def test_each_table_is_asked_for_once() -> None:
    asked: list[list[TableName]] = []

    def read(tables: Iterable[TableName]) -> Mapping[TableName, TableStatistics]:
        asked.append(list(tables))
        return {table: TableStatistics(7, {}) for table in asked[-1] if table != C}

    once = StatisticsOnce(read)
    assert once.of([A, C]).keys() == {A}
    assert once.of([A, B]).keys() == {A, B}
    assert once.of([B, C]).keys() == {B}
    assert asked == [[A, C], [B]]


def test_a_server_that_is_away_is_asked_once() -> None:
    asked: list[int] = []

    def read(tables: Iterable[TableName]) -> Mapping[TableName, TableStatistics]:
        asked.append(len(list(tables)))
        raise SourceError("it is away")

    once = StatisticsOnce(read)
    for _ in range(2):
        with pytest.raises(SourceError, match="it is away"):
            once.of([A])
    assert asked == [1]
