"""The Spark example of live rows runs as it stands on its page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.docs.test_live_rows import LIVE, example, require_exact, written, written_exactly


def test_the_spark_example_shows_the_live_rows_alone(spark_session: SparkSession, tmp_path: Path) -> None:
    names: dict[str, Any] = {"root": str(written(tmp_path)), "session": spark_session}
    exec(compile(example("spark"), "spark", "exec"), names)
    assert names["live"] == LIVE


@pytest.mark.slow
def test_a_value_that_no_column_has_is_read_in_spark(spark_session: SparkSession, tmp_path: Path) -> None:
    rows = DeltaTable(f"{written_exactly(tmp_path)}/public/payments").to_pyarrow_table()
    spark_session.createDataFrame(rows).createOrReplaceTempView("payments")
    require_exact(spark_session.sql(example("exact")).collect())
