"""A heap that Spark refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.process.errors import Exit
from tests.integration.spark.handmade import HandMadeLog
from tests.programs import Spawn


@pytest.mark.slow
def test_h392_a_heap_that_spark_refuses_is_told_in_a_sentence(
    pipeline: HandMadeLog, redis_url: str, spawn: Spawn, tmp_path: Path
) -> None:
    config = tmp_path / "cdc.toml"
    options = {"checkpoint": str(tmp_path / "checkpoints"), "driver_memory": "256m"}
    config.write_text(pipeline.toml({"cache": {"kind": "redis", "url": redis_url}}, **options), encoding="utf-8")
    program = spawn("cdc", "--config", config, "sink", "--until-caught-up")
    assert program.wait(60) == Exit.CONFIG, program.stderr
    assert "INVALID_DRIVER_MEMORY" in program.stderr
