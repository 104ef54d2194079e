"""The readers of later snapshots end within seconds, whatever they wait for, and leave no session open."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any, cast

import psycopg
import pytest

from cdc.capture.windows import Closed, Written
from cdc.process.clock import SYSTEM_CLOCK
from cdc.record.position import Position
from cdc.settings.model import Settings
from connectors.operate.snapshot import CaptureEdges, PostgresLaterSource
from snapshot.later.reader_pool import ReaderPool
from snapshot.later.table_reading import TableReading
from snapshot.source.planned_tables import Chunk
from tests.integration.capture.pipeline import Pipeline

pytestmark = pytest.mark.slow


class Deaf(ReaderPool):
    """Its reader goes on behind the first cancellations, and sleeps for an hour where it is ``stubborn``."""

    stubborn = False

    def __init__(self, settings: Settings) -> None:
        source = PostgresLaterSource(settings, cast("Any", None))
        edges = CaptureEdges(settings, source, cast("Any", None), cast("Any", None), cast("Any", None))
        super().__init__(edges, cast("Any", None), SYSTEM_CLOCK)
        self.begun = threading.Event()

    @property
    def open(self) -> int:
        return sum(not session.closed for session in self._opened)

    def read(self, job: TableReading, chunk: Chunk) -> tuple[Written, Position]:
        session = self._session()
        for _ in range(10**6 if self.stubborn else 3):
            with suppress(psycopg.errors.QueryCanceled):
                self.begun.set()
                session.execute("select pg_sleep(3600)")
        raise Closed


@pytest.mark.parametrize("stubborn", [False, True])
def test_h115_readers_end_whatever_they_wait_for(pipeline: Pipeline, stubborn: bool) -> None:
    readers = Deaf(pipeline.settings)
    readers.stubborn = stubborn
    given = readers.submit(cast("Any", None), cast("Any", "a part"))
    assert readers.begun.wait(20)
    readers.close()
    assert isinstance(given.exception(1), psycopg.Error if stubborn else Closed)
    assert readers.open == 0


def test_a_chunk_that_was_not_begun_holds_no_end_up(pipeline: Pipeline, caplog: pytest.LogCaptureFixture) -> None:
    """It was waited for until the readers were cut off, which left their sessions open."""
    readers = Deaf(pipeline.settings)
    parts = [cast("Any", f"part {number}") for number in range(pipeline.settings.snapshot.windows + 2)]
    given = [readers.submit(cast("Any", None), part) for part in parts]
    assert readers.begun.wait(20)
    readers.close()
    assert given[-1].cancelled()
    assert readers.open == 0
    assert "readers_cut_off" not in caplog.messages
