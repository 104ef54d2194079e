"""The figures of ``cdc run`` while the broker stands still and while Postgres is gone: none stays as it was (H110)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from cdc.figures.declared_figures import CAPTURE
from cdc.stack.local import free_ports
from tests.conftest import Stack
from tests.figure_kinds import ages, bound_to
from tests.integration.cli.pipeline import Pipeline
from tests.integration.cli.test_shown_figures import Shown
from tests.programs import Spawn, Spawned
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
OF_LAG, OF_SLOT = bound_to(CAPTURE, "cdc_source_lag_known"), bound_to(CAPTURE, "cdc_slot_known")
AGES = ages(CAPTURE)


@dataclass
class Run:
    """A running ``cdc run``, and what it says of itself."""

    pipeline: Pipeline
    program: Spawned
    address: str

    def __post_init__(self) -> None:
        self._shown = Shown(self.address, self.pipeline.document["name"])

    def value(self, name: str, **labels: str) -> float:
        found = self._shown.value(name, **labels)
        assert found is not None, name
        return found

    def reached(self, state: Callable[[], bool], deadline_s: float = 60) -> None:
        wait_until(state, deadline_s, lambda: self._shown.text() + self.program.stderr[-2000:])

    def unknown(self, *names: str) -> bool:
        """Whether none of these is shown."""
        page = self._shown.text()
        return not [name for name in names if f"\n{name}{{" in page]

    def why(self) -> str:
        """Why it is not ready."""
        with pytest.raises(HTTPError) as refused:
            urlopen(f"http://{self.address}/readyz", timeout=10).close()
        with refused.value:
            assert refused.value.code == 503
            return refused.value.read().decode()


@pytest.fixture
def run(pipeline: Pipeline, spawn: Spawn) -> Run:
    address = f"127.0.0.1:{free_ports()['kafka']}"
    pipeline.document["capture"]["http_address"] = address
    pipeline.begin()
    made = Run(pipeline, spawn("cdc", "--config", pipeline.config, "run"), address)
    known = ("cdc_source_lag_known", "cdc_slot_known")
    made.reached(lambda: all(made.value(name) == 1 for name in known) and made.value(OF_LAG[0]) == 0)
    return made


def test_h110_a_stalled_broker_freezes_no_figure_of_capture(run: Run, stack: Stack) -> None:
    # The first record that a session writes into a partition is waited for, and with it the loop.
    run.pipeline.sql("update orders set status = 'written'")
    run.reached(lambda: run.value("cdc_transactions_total") == 1 and run.value(OF_LAG[0]) == 0)
    with stack.paused("kafka"):
        run.pipeline.sql("update orders set status = 'not taken by the broker'")
        run.reached(lambda: run.value(OF_LAG[0]) > 1 and run.value(OF_LAG[1], stage="acked") > 0)
        before_s = run.value(OF_LAG[0])
        run.reached(lambda: run.value(OF_LAG[0]) > before_s + 1)
        for turn in range(2):
            before, acked = run.value("cdc_slot_retained_wal_bytes"), run.value(OF_LAG[1], stage="acked")
            run.pipeline.sql(f"update orders set status = 'turn {turn}'")
            run.reached(lambda before=before: run.value("cdc_slot_retained_wal_bytes") > before)  # type: ignore[misc]
            run.reached(lambda acked=acked: run.value(OF_LAG[1], stage="acked") > acked)  # type: ignore[misc]
        assert run.value("cdc_feedback_age_seconds") < 10, "the server hears from us all the same"
        run.reached(lambda: run.value(OF_LAG[0]) > 30)
        assert "the broker has not answered for" in run.why()
    run.reached(lambda: run.value(OF_LAG[0]) == 0)
    assert run.program.terminate() == 0, run.program.stderr


def test_h110_without_postgres_no_figure_of_it_is_shown(run: Run, stack: Stack) -> None:
    stack.stop_part("postgres", kill=True)
    try:
        run.reached(
            lambda: run.value("cdc_up") == run.value("cdc_source_lag_known") == run.value("cdc_slot_known") == 0
        )
        assert run.unknown(*OF_LAG, *OF_SLOT)
        then = [run.value(name) for name in AGES]
        run.reached(lambda: all(run.value(name) > before for name, before in zip(AGES, then, strict=True)))
        assert "Postgres" in run.why()
        with urlopen(f"http://{run.address}/livez", timeout=10) as alive:
            assert alive.status == 200, "an outage of the source is no reason to start the process again"
    finally:
        stack.start_part("postgres")
        stack.ensure("postgres")
    run.reached(
        lambda: run.value("cdc_up") == run.value("cdc_source_lag_known") == run.value("cdc_slot_known") == 1, 90
    )
    assert not run.unknown(*OF_LAG)
    assert run.program.terminate() == 0, run.program.stderr
