"""Opening a session that fails at each of its steps, and closing one whose parts fail: nothing stays open (H14)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from cdc.capture.capture_loop import CaptureStop
from cdc.capture.transaction_visibility import Gate, Visibility, VisibilityGate
from cdc.figures.capture_metrics import CaptureFigures, RereadFigures
from cdc.process.clock import SYSTEM_CLOCK
from cdc.process.errors import CdcError, SourceError
from connectors.session.captured_topics import Later
from connectors.session.opening import Opening
from tests.integration.capture.pipeline import Pipeline
from tests.waiting import wait_until

STEPS = ("_locate", "_stand", "_take_up", "_tables", "_start", "_require_still", "_follow", "_show")
OURS = "select count(*) from pg_stat_activity where application_name like 'cdc%%' and datname = current_database()"
ACTIVE = "select active from pg_replication_slots where slot_name = %s"
LOCKS = """select count(*) from pg_locks where locktype = 'advisory'
and database = (select oid from pg_database where datname = current_database())"""


class Faulty(Opening):
    """Raises once one step is done, with all that it opened."""

    def __init__(self, pipeline: Pipeline, step: str = "", **more: Any) -> None:
        stop = CaptureStop(SYSTEM_CLOCK, 1)
        figures = CaptureFigures(ticked_s=SYSTEM_CLOCK.monotonic())
        super().__init__(pipeline.settings, figures=figures, stop=stop, clock=SYSTEM_CLOCK, **more)
        if step:
            setattr(self, step, self._failing(getattr(self, step)))

    @staticmethod
    def _failing(step: Callable[..., object]) -> Callable[..., object]:
        def failing(*parts: object) -> object:
            step(*parts)
            raise SourceError("the step failed")

        return failing


class Beside:
    """Stands for later snapshots, with a thread of its own. Raises where its name is ``where``."""

    figures = RereadFigures()

    def __init__(self, where: str) -> None:
        self._where = where
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._over.wait, daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._fail_at("start")

    def close(self) -> None:
        self._over.set()
        self._thread.join(10)
        self._fail_at("close")

    def _fail_at(self, where: str) -> None:
        if where == self._where:
            raise SourceError("the step failed")


@pytest.fixture
def assert_released(pipeline: Pipeline) -> Callable[[], None]:
    """A check that a failed opening left nothing: no session, no walsender, no lock, no thread of ours."""
    pipeline.prepare("create table t (id int primary key)")
    before = set(threading.enumerate())

    def check() -> None:
        wait_until(lambda: pipeline.one(OURS) == 0, 15, lambda: pipeline.one(OURS))
        assert pipeline.one(ACTIVE, pipeline.slot) is False
        assert pipeline.one(LOCKS) == 0
        wait_until(lambda: not set(threading.enumerate()) - before, 15, threading.enumerate)

    return check


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_h14_a_failed_step_releases_what_was_opened(
    pipeline: Pipeline, assert_released: Callable[[], None], step: str
) -> None:
    with pytest.raises(CdcError, match="the step failed"):
        Faulty(pipeline, step, later=later("nowhere")).open()
    assert_released()
    opened = Faulty(pipeline).open()
    opened.close(True)
    opened.stream.close()


@pytest.mark.slow
@pytest.mark.parametrize("where", ["gate", "later", "start"])
def test_h14_what_is_injected_may_fail(pipeline: Pipeline, assert_released: Callable[[], None], where: str) -> None:
    with pytest.raises(CdcError, match="the step failed"):
        Faulty(pipeline, later=later(where), gate=failing_gate if where == "gate" else VisibilityGate).open()
    assert_released()


@pytest.mark.slow
def test_h14_closing_releases_the_rest_when_a_part_fails(
    pipeline: Pipeline, assert_released: Callable[[], None]
) -> None:
    session = Faulty(pipeline, later=later("close")).open()
    assert pipeline.one(LOCKS) > 0
    with pytest.raises(CdcError, match="the step failed"):
        session.close(True)
    session.stream.close()
    assert_released()


def later(where: str) -> Later:
    def make(*_: object) -> Beside:
        if where == "later":
            raise SourceError("the step failed")
        return Beside(where)

    return make


def failing_gate(_: Visibility) -> Gate:
    raise SourceError("the step failed")
