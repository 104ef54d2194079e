"""The whole path as a user walks it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.cli.pipeline import Pipeline
from tests.programs import Spawn, Spawned
from tests.waiting import wait_until

START_S = 240.0


@pytest.fixture(scope="session")
def fork_server() -> None:
    """Here each command is started from cold."""


@pytest.fixture
def fed(pipeline: Pipeline, spawn: Spawn) -> Iterator[tuple[Spawned, Spawned]]:
    """Capture and four sinks, running. ``pipeline``: of the file."""
    pipeline.good("init")
    pipeline.good("snapshot")
    capture = spawn("cdc", "--config", pipeline.config, "run")
    sink = spawn("cdc", "--config", pipeline.config, "sink")
    wait_until(lambda: sink.stderr.count("sink_started") >= 4, START_S, lambda: sink.stderr[-2000:])
    yield capture, sink
    assert capture.process.poll() is None, capture.stderr[-2000:]
    assert sink.process.poll() is None, sink.stderr[-2000:]
