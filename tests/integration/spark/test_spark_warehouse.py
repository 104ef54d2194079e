"""A warehouse that Spark merges, fed by the application of ``cdc sink``."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pytest
from pyspark.sql import SparkSession

from cdc.wiring.sinks import build_sinks
from sinks.contract.stores import open_store
from sinks.iceberg.iceberg_kind import SPARK_PARTS
from tests.integration.spark.conftest import Sinks
from tests.integration.spark.handmade import HandMadeLog
from tests.lakes import lake_section


@pytest.mark.slow
def test_a_warehouse_is_fed_by_merges_of_spark(
    pipeline: HandMadeLog, sinks: Sinks, spark_session: SparkSession, warehouse: Path, tmp_path: Path
) -> None:
    sink = {"kind": "delta", "path": str(warehouse), "engine": "spark"}
    settings = pipeline.settings({"lake": sink}, checkpoint=str(tmp_path / "checkpoints"))
    session = build_sinks(settings).session
    assert any("delta-spark" in jar.name for jar in session.jars)
    assert session.conf["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension"
    for status in ("first", "second"):
        pipeline.put([{"id": number, "status": status, "total": "1.00"} for number in range(20)])
        pipeline.put([{"id": 3}])
        pipeline.progress()
        sinks.catch_up(settings)
        store = open_store("lake", settings)
        assert pipeline.shown(store) == pipeline.rows["orders"]
        store.close()
    [table] = {path.parent for path in warehouse.rglob("_delta_log") if path.parent.name != "_watermark"}
    assert "MERGE" in {one["operation"] for one in deltalake.DeltaTable(str(table)).history()}


@pytest.mark.slow
def test_an_iceberg_warehouse_is_fed_by_merges_of_spark(
    pipeline: HandMadeLog,
    sinks: Sinks,
    spark_session: SparkSession,
    database: str,
    warehouse: Path,
    tmp_path: Path,
) -> None:
    sink = lake_section(database, warehouse, tmp_path / "secret")
    settings = pipeline.settings({"lake": sink}, checkpoint=str(tmp_path / "checkpoints"))
    session = build_sinks(settings).session
    assert any("iceberg-spark" in jar.name for jar in session.jars)
    assert session.conf["spark.sql.extensions"] == SPARK_PARTS.extension
    assert (tmp_path / "secret").read_text(encoding="utf-8") not in str(session)
    for status in ("first", "second"):
        pipeline.put([{"id": number, "status": status, "total": "1.00"} for number in range(20)])
        pipeline.put([{"id": 3}])
        pipeline.progress()
        sinks.catch_up(settings)
        store = open_store("lake", settings)
        assert pipeline.shown(store) == pipeline.rows["orders"]
        store.close()
