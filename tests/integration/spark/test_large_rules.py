"""Tasks that are told more than Spark hands over in one piece: the shapes of many tables."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from cdc.record.schema import Column
from sinks.contract.table_places import SchemaBook
from spark.queries.tasks import Task, run_on_executors
from spark.stores.apply import Rules
from tests.integration.spark.handmade import orders_schema
from tests.memory_log import MemoryReading

TABLES, COLUMNS = 400, 60


def test_h393_what_a_task_is_told_stays_in_no_file(spark_session: SparkSession) -> None:
    """A task's closure holds the passwords of Kafka and of the store. PySpark wrote one of more than 1 MB to a file
    for each slice of a batch, which stayed for as long as the application ran, and after a kill."""
    extra = [
        Column(name=f"a_column_of_some_name_{number}", attnum=4 + number, type="text", type_oid=25, kind="text")
        for number in range(COLUMNS)
    ]
    book = SchemaBook([orders_schema("shop", f"a_table_{number}", extra=extra) for number in range(TABLES)])
    folder = Path(str(spark_session.sparkContext._temp_dir))
    before = set(folder.iterdir())
    report = run_on_executors(
        spark_session, MemoryReading(()), [[]], Task(spec=None, rules=Rules(book=book), mode="compact")
    )
    assert report.outcome.records == 0
    assert set(folder.iterdir()) == before
