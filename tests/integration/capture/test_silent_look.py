"""A look at the source whose server process stands still holds up the look alone."""

from __future__ import annotations

import os
import signal
from itertools import count

import pytest

from cdc.process.clock import SYSTEM_CLOCK
from tests.integration.capture.pipeline import Pipeline
from tests.waiting import wait_until

TABLE = "create table t (id int primary key, v text)"


@pytest.mark.slow
def test_h95_a_look_that_is_not_answered_ends_no_stream(pipeline: Pipeline) -> None:
    """The process that serves the looks stands still, as behind a link that lost it. Nothing else does."""
    pipeline.prepare(TABLE)
    served = "select pid from pg_stat_activity where application_name = 'cdc capture looks' and state = 'idle'"
    with pipeline.capturing() as capturing:
        wait_until(lambda: capturing.figures.looked_s is not None, 20)
        pid = wait_until(lambda: pipeline.one(f"{served} and datname = current_database()"), 20)
        os.kill(pid, signal.SIGSTOP)
        try:
            looked_s = capturing.figures.looked_s
            assert looked_s is not None
            # Longer than a look rests: the next one was asked, and has no answer.
            keys = count(1000)

            def unanswered() -> bool:
                pipeline.execute(f"insert into t values ({next(keys)}, 'a')")
                pipeline.settle()
                return SYSTEM_CLOCK.monotonic() - looked_s > 8

            wait_until(unanswered, 60)
            assert capturing.figures.looked_s == looked_s
            assert capturing.figures.reconnects == 0
            assert capturing.streaming
        finally:
            os.kill(pid, signal.SIGCONT)
        wait_until(lambda: capturing.figures.looked_s != looked_s, 20)
        assert capturing.figures.reconnects == 0


@pytest.mark.slow
def test_h195_a_stop_is_heard_while_a_value_is_asked_for(pipeline: Pipeline) -> None:
    """The process that reads values again stands still. What waits for it comes again at the next start."""
    pipeline.prepare(TABLE, "alter table t alter v set storage external")
    serves = "select pid from pg_stat_activity where application_name = 'cdc capture' and datname = current_database()"
    pipeline.execute("insert into t select 1, repeat('x', 5000)")
    run = pipeline.stream()
    pipeline.settle()
    pid = pipeline.one(serves)
    os.kill(pid, signal.SIGSTOP)
    try:
        pipeline.execute("update t set id = 2 where id = 1")
        wait_until(lambda: pipeline.one(f"{serves} and state = 'idle' and pid = {pid}") == pid, 20)
        assert run.terminate(40) == 0, run.stderr
    finally:
        os.kill(pid, signal.SIGCONT)
    with pipeline.capturing():
        pipeline.settle()
    pipeline.assert_equal("t")


@pytest.mark.slow
def test_h225_a_look_that_hangs_is_reported_and_asked_anew(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    """Its server process stays as it is: another session asks, and what is known grows no older than that."""
    pipeline.prepare(TABLE)
    served = "select pid from pg_stat_activity where application_name = 'cdc capture looks' and state = 'idle'"
    with pipeline.capturing() as capturing, caplog.at_level("WARNING"):
        wait_until(lambda: capturing.figures.looked_s is not None, 20)
        pid = wait_until(lambda: pipeline.one(f"{served} and datname = current_database()"), 20)
        os.kill(pid, signal.SIGSTOP)
        try:
            looked_s = capturing.figures.looked_s
            wait_until(lambda: "look_unanswered" in caplog.messages, 60)
            wait_until(lambda: capturing.figures.looked_s != looked_s, 60)
            assert capturing.streaming
        finally:
            os.kill(pid, signal.SIGCONT)
