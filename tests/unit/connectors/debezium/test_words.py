"""What is said of a connector: no slot where the database has none, and a snapshot that waits for the source."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cdc.cli.connect import _keeping
from connectors.debezium.connector import Connector
from connectors.debezium.status import parse_status
from tests.unit.connectors.debezium.test_tables import settings

READING: dict[str, Any] = {"offset": {"lsn": 7, "incremental_snapshot_primary_key": "ac"}}


@pytest.mark.parametrize(
    ("database", "words"),
    [("postgres", "its slot keeps WAL"), ("mariadb", "mariadb has to keep its log, which no slot holds back,")],
)
def test_h154_a_slot_is_named_where_there_is_one(database: str, words: str) -> None:
    assert _keeping(Connector(settings(["shop.a"], database=database))) == words


@pytest.mark.parametrize(
    ("offset", "more", "words"),
    [
        ({"offset": {"lsn": 7}}, {}, ""),
        (READING, {}, "ends with the next transaction of the database"),
        (READING, {"signal_table": "shop.signals"}, "is under way"),
        (READING, {"database": "mariadb"}, "is under way"),
    ],
)
def test_h155_a_snapshot_that_waits_for_the_source_is_said(
    offset: dict[str, Any], more: dict[str, Any], words: str
) -> None:
    """Without a signal table each part of it is sent with the next transaction: an idle Postgres brings none."""
    connector = Connector(settings(["shop.a"], **{"database": "postgres", **more}))
    status = parse_status({"name": "shop", "connector": {"state": "RUNNING"}, "tasks": []})
    told = connector.waiting_snapshot(replace(status, offsets=(offset,)))
    assert told.endswith(words)
    assert bool(told) == bool(words)
