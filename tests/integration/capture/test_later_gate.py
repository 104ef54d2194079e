"""The gate of later snapshots: a read that misses what was streamed must not stand above it, and what none would do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from cdc.capture.transaction_visibility import Gate, Visibility, VisibilityGate
from cdc.wiring.pipeline import prepare_pipeline
from connectors.postgres.server.slot import barrier
from tests.integration.capture.later import ask, over, reread, swept
from tests.integration.capture.pipeline import Pipeline
from tests.waiting import wait_until

TABLE = "create table t (id int primary key, v text)"


class OpenGate:
    """A gate that lets every read pass: what a version without one does."""

    def streamed(self, xids: object) -> None: ...

    def awaited(self) -> frozenset[int]:
        return frozenset()

    def saw(self, seen: object) -> None: ...

    def passes(self, awaited: object, seen: object) -> bool:
        return True


@contextmanager
def stalled(pipeline: Pipeline) -> Iterator[None]:
    """Commits that wait for a synchronous standby wait for ever; those of others do not."""
    name = pipeline.one("select current_database()")
    pipeline.execute(f"alter database {name} set synchronous_commit = local")
    try:
        pipeline.execute("alter system set synchronous_standby_names = 'nobody'", "select pg_reload_conf()")
        wait_until(lambda: pipeline.one("show synchronous_standby_names") == "nobody", 10)
        yield
    finally:
        pipeline.execute("alter system reset synchronous_standby_names", "select pg_reload_conf()")


@contextmanager
def unseen_update(pipeline: Pipeline) -> Iterator[None]:
    """Row 1 of t becomes ``new``: committed and streamed, and visible to nobody before this ends."""

    def update() -> None:
        with pipeline.session() as session:
            session.execute("set synchronous_commit = on")
            session.execute("update t set v = 'new' where id = 1")

    writer = threading.Thread(target=update)
    with stalled(pipeline):
        writer.start()
        wait_until(lambda: [r for r in pipeline.records("t") if r.op == "u"], 30)
        assert pipeline.one("select v from t where id = 1") == "old"
        yield
    writer.join(30)
    assert not writer.is_alive()


GATES: dict[str, Callable[[Visibility], Gate]] = {
    "gate": VisibilityGate,
    "none": lambda _: OpenGate(),
}


@pytest.mark.slow
@pytest.mark.parametrize("gated", [True, False])
def test_h73_a_change_from_before_the_table_was_added_is_read(pipeline: Pipeline, gated: bool) -> None:
    """Its transaction is open across the ADD, so it is never streamed; a read that does not wait for it loses it."""
    pipeline.document["snapshot"] = {"watch": "300ms"}
    pipeline.prepare(TABLE)
    with pipeline.capturing(VisibilityGate if gated else lambda _: OpenGate()):
        pipeline.execute("create table u (id int primary key, v text)", "insert into u values (1, 'old'), (2, 'old')")
        with pipeline.session() as early:
            early.execute("begin")
            early.execute("update u set v = 'early' where id = 1")
            prepare_pipeline(pipeline.settings)
            if gated:
                wait_until(lambda: (found := reread(pipeline, "snapshot:public.u")) and found.state == "running", 30)
                pipeline.settle()
                assert not [record for record in pipeline.records("u") if record.op == "r"]
            else:
                wait_until(lambda: (found := reread(pipeline, "snapshot:public.u")) and found.over, 30)
            early.execute("commit")
            pipeline.execute("update u set v = 'streamed' where id = 2")
        wait_until(lambda: (found := reread(pipeline, "snapshot:public.u")) and found.over, 30)
        pipeline.settle()
    held = swept(pipeline, "u")['{"id":1}']["v"]
    assert held == ("early" if gated else "old")
    assert swept(pipeline, "u")['{"id":2}']["v"] == "streamed"


@pytest.mark.slow
@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("kind", ["gate", "none"])
def test_h72_a_commit_that_shows_late_is_not_undone(pipeline: Pipeline, kind: str, restart: bool) -> None:
    """The stream has it, a read does not see it: without the gate the old row stands above it for good."""
    pipeline.prepare(TABLE)
    pipeline.execute("insert into t values (1, 'old')")
    with ExitStack() as running:
        running.enter_context(pipeline.capturing(GATES[kind]))
        pipeline.settle()
        with unseen_update(pipeline):
            if restart:
                running.close()
                running.enter_context(pipeline.capturing(GATES[kind]))
            request = ask(pipeline)
            if kind == "none":
                assert over(pipeline, request).state == "done"
            else:
                wait_until(lambda: (found := reread(pipeline, request.id)) and found.state == "running", 30)
                # It reads again and again meanwhile, and takes nothing of it.
                wait_until(lambda: pipeline.one(READS) > 0, 20)
                assert not [record for record in pipeline.records("t") if record.op == "r"]
        assert over(pipeline, request).state == "done"
        pipeline.settle()
    held = swept(pipeline, "t")['{"id":1}']["v"]
    assert held == ("new" if kind == "gate" else "old")
    assert pipeline.one("select v from t") == "new"


@pytest.mark.slow
def test_h72_a_table_read_before_waits_for_late_commits_too(pipeline: Pipeline) -> None:
    """A first reading waits for its barrier, too, which hides whether the gate hears of what is streamed."""
    pipeline.prepare(TABLE)
    pipeline.execute("insert into t values (1, 'old')")
    with pipeline.capturing():
        pipeline.settle()
        assert over(pipeline, ask(pipeline)).state == "done"
        with unseen_update(pipeline):
            request = ask(pipeline)
            wait_until(lambda: (found := reread(pipeline, request.id)) and found.serial == request.serial, 30)
            wait_until(lambda: (found := reread(pipeline, request.id)) and found.state != "waiting", 30)
            wait_until(lambda: pipeline.one(READS) > 0, 20)
            assert len([record for record in pipeline.records("t") if record.op == "r"]) == 1
        assert over(pipeline, request).state == "done"
        pipeline.settle()
    assert swept(pipeline, "t")['{"id":1}']["v"] == "new"


READS = """select count(*) from pg_stat_activity
where application_name = 'cdc capture window' and datname = current_database()"""


@pytest.mark.slow
def test_h72_a_barrier_names_commits_that_nobody_sees_yet(pipeline: Pipeline) -> None:
    """A plain snapshot need not: the transaction is younger than the newest one that has ended."""
    pipeline.prepare(TABLE)
    pipeline.execute("insert into t values (1, 'old')")
    with pipeline.capturing():
        pipeline.settle()
        with unseen_update(pipeline), pipeline.session() as session:
            waiting = pipeline.one(
                "select backend_xid::text::int8 from pg_stat_activity"
                " where wait_event = 'SyncRep' and datname = current_database() and backend_xid is not null"
            )
            seen = barrier(session)
            assert waiting in {xid % 2**32 for xid in seen.running}
            assert not any(seen.sees(xid) for xid in seen.running)
