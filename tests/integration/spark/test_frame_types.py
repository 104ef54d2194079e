"""A frame's columns hold what Postgres has, for a column of every type: Postgres itself compares."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from cdc.record.topic_names import TableName
from cdc.wire.types import NESTED_KINDS
from connectors.spark_log.frame_log import KafkaConnect
from sinks.contract.missing_values import dumps_exact
from sinks.warehouse.warehouse_columns import WarehouseColumn
from sinks.warehouse.warehouse_rows import from_exact, plain_values
from spark.frames.frame_columns import FrameColumns
from spark.frames.options import read_options
from tests.faults.typed import SETUP, TYPES, differences, rows
from tests.programs import RunCdc
from tests.settings_file import write_settings

pytestmark = pytest.mark.slow
ROWS = 100


def as_on_the_wire(value: Any) -> Any:
    """JSON as the string that holds it."""
    if isinstance(value, list):
        return [as_on_the_wire(one) for one in value]
    return orjson.dumps(value).decode() if isinstance(value, orjson.Fragment) else value


def rows_of(read: pa.Table, columns: tuple[WarehouseColumn, ...]) -> list[dict[str, Any]]:
    """What a frame says, as the wire says it."""
    by_name = {column.name: column.source for column in columns}
    found: list[dict[str, Any]] = [{} for _ in range(read.num_rows)]
    for column in columns:
        nested = column.source.kind in NESTED_KINDS
        for own, value in zip(found, plain_values(read[column.name], column.source), strict=True):
            own[column.source.name] = as_on_the_wire(value) if nested else value
    for own, exact in zip(found, read["_exact"].to_pylist(), strict=True):
        own |= {by_name[name].name: from_exact(text, by_name[name]) for name, text in exact or ()}
    return found


def test_values_of_every_type_come_back(
    spark_session: SparkSession, database: str, kafka: str, topic_prefix: str, tmp_path: Path, run_cdc: RunCdc
) -> None:
    document = {
        "name": topic_prefix,
        "source": {"dsn": database, "tables": ["public.every"]},
        "log": {"bootstrap_servers": kafka, "partitions": 2},
    }
    config = write_settings(tmp_path, document)
    with psycopg.connect(database, autocommit=True) as user:
        for statement in SETUP:
            user.execute(statement.encode())
        with user.cursor().copy("copy every from stdin") as copy:
            for row in rows(random.Random(7), ROWS):
                copy.write_row(row)
        for command in ("init", "snapshot"):
            done = run_cdc("--config", config, command, cwd=tmp_path)
            assert done.returncode == 0, done.stderr
        options = {"config": str(config), "table": "public.every"}
        read = spark_session.read.format("headrace").options(**options).load().toArrow()
        asked = read_options({"bootstrap_servers": kafka, "pipeline": topic_prefix, "table": "public.every"})
        columns = FrameColumns.of(KafkaConnect().log(asked).versions(TableName("public", "every"))[-1]).columns
        found = rows_of(read, columns)
        user.execute(b"create temp table read (id int, doc jsonb)")
        with user.cursor().copy("copy read from stdin") as copy:
            for own in found:
                copy.write_row((own["id"], dumps_exact(own).decode()))
        assert user.execute(differences().encode()).fetchall() == []
    assert len(found) == ROWS
    assert len(columns) == len(TYPES) + 1
