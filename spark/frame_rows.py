"""The frame that Spark hands over with a batch, as the records that it carries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from spark.carried_rows import Job, RowSizes, records_of_rows
from spark.report import REPORT_SCHEMA


@dataclass(frozen=True, slots=True)
class FrameRows:
    """The frame that Spark hands over with a batch. Implements :class:`CarriedRows`."""

    frame: DataFrame
    sizes: RowSizes

    def bring(self) -> pa.Table:
        # As many tasks as run at once: a small batch over fifty topics would be two hundred, of a few rows each.
        cores = self.frame.sparkSession.sparkContext.defaultParallelism
        records = records_of_rows(self.frame.coalesce(cores).toArrow())
        self.note(records.num_rows, records.nbytes)
        return records

    def run(self, job: Job, tasks: int) -> pa.Table:
        schema: Any = from_arrow_schema(REPORT_SCHEMA)
        # A narrow dependency: a task takes some partitions one after the other, and nothing is shuffled.
        return self.frame.coalesce(tasks).mapInArrow(job, schema).toArrow()

    def weigh(self, records: int) -> int:
        return round(records * self.sizes.each_bytes)

    def note(self, records: int, size_bytes: int) -> None:
        self.sizes.note(records, size_bytes)
