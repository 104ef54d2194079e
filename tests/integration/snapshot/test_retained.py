"""A snapshot and the WAL that it holds back."""

from __future__ import annotations

import pytest

from cdc.process.errors import Exit, SlotError
from tests.integration.snapshot.pipeline import Pipeline
from tests.integration.snapshot.test_refusals import THREE_ROWS, half_way, refusal
from tests.waiting import wait_until


@pytest.mark.slow
def test_h25_h53_a_slot_lost_before_the_last_chunk_ends_it(pipeline: Pipeline) -> None:
    """What the slot was to repair is gone: to go on would leave rows wrong for ever."""
    pipeline.execute(*THREE_ROWS)
    pipeline.prepare()
    half_way(pipeline)
    slot = pipeline.settings.slot
    pipeline.execute("alter system set max_slot_wal_keep_size = '1MB'", "select pg_reload_conf()")
    try:
        for _ in range(3):
            pipeline.execute("create table w as select g from generate_series(1, 1000) g", "drop table w")
            pipeline.execute("select pg_switch_wal()", "checkpoint")
        status = "select wal_status from pg_replication_slots where slot_name = %s"
        wait_until(lambda: pipeline.one(status, slot) == "lost", 30)
        error = refusal(pipeline)
    finally:
        pipeline.execute("alter system reset max_slot_wal_keep_size", "select pg_reload_conf()")
    assert isinstance(error, SlotError)
    assert error.exit == Exit.SLOT
    assert slot in error.message
