"""A table's rows, out of its changes: DataFrame to DataFrame."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F


def current_rows(changes: DataFrame) -> DataFrame:
    """The rows of the table behind a batch of typed changes, one per ``_key``, without those that were deleted.

    A typed frame of one table from its beginning on, whole or ``as_of`` an LSN. The newest change of each key counts,
    and what a TRUNCATE or a reading of the whole table left behind is gone. Spark does the work, and spills where the
    table is larger than its memory. The columns are those of the changes.
    """
    newest = changes.groupBy("_partition", "_key").agg(
        F.max_by(F.struct("*"), F.struct("_pos", "_offset")).alias("row"), F.max("_floor").alias("floor")
    )
    floor = F.max("floor").over(Window.partitionBy("_partition"))
    live = newest.withColumn("below", F.coalesce(floor > F.col("row._pos"), F.lit(False)))
    return live.where("row._op in ('c', 'u', 'r') and not below").select("row.*")
