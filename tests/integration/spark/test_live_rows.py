"""The Spark example of live rows runs as it stands on its page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.docs.test_live_rows import LIVE, example, written


def test_the_spark_example_shows_the_live_rows_alone(spark_session: SparkSession, tmp_path: Path) -> None:
    names: dict[str, Any] = {"root": str(written(tmp_path)), "session": spark_session}
    exec(compile(example("spark"), "spark", "exec"), names)
    assert names["live"] == LIVE
