"""A fence of ``cdc verify``, on a source that rests: nothing but its own mark takes the stream past it."""

from __future__ import annotations

from contextlib import closing

import pytest

from connectors.postgres.server.connections import connect
from connectors.postgres.server.cut_reader import write_fence
from tests.integration.capture.pipeline import Pipeline
from tests.waiting import wait_until


@pytest.mark.slow
def test_x2_a_fence_is_passed_while_the_source_rests(pipeline: Pipeline) -> None:
    pipeline.prepare("create table t (id int primary key)")
    with pipeline.capturing() as capturing, closing(connect(pipeline.settings.source)) as session:
        pipeline.settle()
        for _ in range(20):
            fence = write_fence(session)
            wait_until(lambda fence=fence: capturing.figures.flushed_lsn >= fence, 60)  # type: ignore[misc]
    assert capturing.error is None
