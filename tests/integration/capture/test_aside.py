"""A table that cannot be followed is set aside alone, and read again when its cause is gone (H119, H120, H121)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.operate.snapshot_requests import WantedRows
from cdc.process.crash_points import CRASH_EXIT
from cdc.process.errors import Exit
from cdc.record.state import FormState, RequestState, find_all, requests_of
from cdc.record.tables_aside import AsideState, Cause, TableState, asides_of
from cdc.wiring import open_state
from cdc.wiring.pipeline import open_rereads
from tests.integration.capture.later import ask, over, same
from tests.integration.capture.pipeline import Pipeline, refused
from tests.integration.capture.test_waiting import TABLES, locked
from tests.waiting import wait_until

MANY = "insert into t select n, repeat('y', 1000), 0 from generate_series(10, 2000) n"
PLAIN = "create table t (id int primary key, v text not null)"
WHOLE = "alter table t replica identity full"
FREE = "create table free (id int primary key)"


def aside(pipeline: Pipeline, table: str = "public.t") -> AsideState | None:
    return asides_of(pipeline.state()).get(table)


def is_aside(pipeline: Pipeline, cause: Cause, table: str = "public.t") -> None:
    """Wait until the table is set aside for this cause."""

    def found() -> bool:
        state = aside(pipeline, table)
        return state is not None and (state.state, state.cause) == (TableState.ASIDE, cause)

    wait_until(found, 40, lambda: aside(pipeline, table))


def follows(pipeline: Pipeline, table: str = "t") -> None:
    """Wait until the table is followed as the others are, and the log gives its rows."""
    wait_until(lambda: aside(pipeline, f"public.{table}") is None, 60, lambda: aside(pipeline, f"public.{table}"))
    pipeline.settle()

    def is_same() -> bool:
        same(pipeline, table)
        return True

    # A table with a new name stands in no document until its reading is asked for.
    wait_until(is_same, 60)


@pytest.mark.slow
def test_h119_past_the_bound_a_table_is_set_aside_and_read_again(pipeline: Pipeline) -> None:
    pipeline.document["capture"]["waiting_limit"] = "200kB"
    pipeline.prepare_with_rows(*TABLES)
    with pipeline.capturing() as capturing:
        pipeline.settle()
        with locked(pipeline, MANY, "delete from t where id = 2"):
            is_aside(pipeline, Cause.LOCKED)
            pipeline.execute("insert into free values (1)")
            pipeline.settle()
            assert pipeline.count("free") == 1, "progress passes what was dropped"
        # Another start, with the table still aside.
        assert capturing.figures.reconnects == 0
    assert pipeline.count("t") == 3, "the rows of the snapshot"
    pipeline.execute("delete from t where id between 100 and 1900", "update t set doc = 'z' where id = 3")
    with pipeline.capturing():
        follows(pipeline)
        pipeline.execute("insert into t values (5000, 'later', 1)")
        pipeline.settle()
    same(pipeline)
    pipeline.assert_ordered("t")


@pytest.mark.parametrize("point", ["aside_decided", "aside_noted", "aside_resumed", "aside_over"])
@pytest.mark.slow
def test_h119_killed_around_the_document_nothing_is_lost(pipeline: Pipeline, point: str) -> None:
    pipeline.document["capture"]["waiting_limit"] = "200kB"
    pipeline.prepare_with_rows(*TABLES)
    run = pipeline.stream(CDC_CRASH_AT=point)
    with locked(pipeline, MANY):
        pipeline.execute("insert into free values (1)")
        if point in ("aside_decided", "aside_noted"):
            assert run.wait(60) == CRASH_EXIT
        else:
            is_aside(pipeline, Cause.LOCKED)
    assert run.wait(60) == CRASH_EXIT
    with pipeline.capturing():
        pipeline.settle()
        follows(pipeline)
        follows(pipeline, "free")


@pytest.mark.slow
def test_h120_a_key_that_changes_stops_its_table_alone(pipeline: Pipeline) -> None:
    pipeline.prepare(PLAIN, FREE)
    with pipeline.capturing() as capturing:
        pipeline.execute("insert into t values (1, 'a'), (2, 'b')")
        pipeline.settle()
        pipeline.execute(
            "alter table t drop constraint t_pkey, add primary key (id, v)",
            "insert into t values (2, 'c')",
            "delete from t where id = 1",
            "insert into free values (1)",
        )
        is_aside(pipeline, Cause.CHANGED)
        pipeline.settle()
        assert pipeline.shorts("free") == ['c {"id":1}']
        assert sorted(pipeline.shorts("t")) == ['c {"id":1}', 'c {"id":2}']
        # An operator takes the new key, for this table alone.
        ask(pipeline, by_hand=True)
        follows(pipeline)
        pipeline.execute("update t set v = 'd' where v = 'c'")
        pipeline.settle()
        same(pipeline)
        assert capturing.figures.reconnects == 0


@pytest.mark.slow
def test_h120_a_key_that_is_given_back_is_followed_by_itself(pipeline: Pipeline) -> None:
    pipeline.prepare(PLAIN)
    with pipeline.capturing():
        pipeline.execute("insert into t values (1, 'a')", "alter table t drop constraint t_pkey, add primary key (v)")
        pipeline.execute("insert into t values (2, 'b')")
        is_aside(pipeline, Cause.CHANGED)
        pipeline.execute("alter table t drop constraint t_pkey, add primary key (id)", "delete from t where id = 1")
        follows(pipeline)


@pytest.mark.parametrize("again", ["replica identity default", "set (fillfactor = 90)"])
@pytest.mark.slow
def test_h147_another_identity_of_a_partition_makes_a_table_wait(pipeline: Pipeline, again: str) -> None:
    """Its deletes do not say of which row they are, and an update of the key sends no old key at all."""
    other = "create table other (id int primary key, v text not null)"
    pipeline.prepare("create table t (id int primary key, k int not null) partition by range (id)", FREE, other)
    with pipeline.capturing() as capturing:
        pipeline.execute("alter table other drop constraint other_pkey, add primary key (v)")
        pipeline.execute("insert into other values (1, 'a')")
        is_aside(pipeline, Cause.CHANGED, "public.other")
        pipeline.execute(
            "create table one partition of t for values from (0) to (10)",
            "create table two (id int primary key, k int not null)",
            "create unique index two_k on two (k)",
            "alter table two replica identity using index two_k",
            "alter table t attach partition two for values from (10) to (20)",
            "insert into t select n, n + 100 from generate_series(1, 19) n",
            "delete from t where id = 11",
            "update t set id = 12 where id = 11",
            "insert into free values (1)",
        )
        is_aside(pipeline, Cause.CHANGED)
        pipeline.settle()
        assert pipeline.shorts("free") == ['c {"id":1}']
        pipeline.execute("update t set id = 11 where id = 12", "delete from t where id in (2, 13)")
        ask(pipeline, by_hand=True)
        pipeline.execute(f"alter table two {again}")
        # Each look is at all tables that are aside. This one's cause is gone.
        pipeline.execute("alter table other drop constraint other_pkey, add primary key (id)")
        follows(pipeline, "other")
        if "identity" not in again:
            found = aside(pipeline)
            assert found is not None and found.state is TableState.ASIDE
            pipeline.execute("alter table two replica identity full")
        follows(pipeline)
        pipeline.execute("update t set id = 19 where id = 12", "delete from t where id = 14")
        pipeline.settle()
        same(pipeline)
        assert capturing.figures.reconnects == 0


@pytest.mark.slow
def test_h149_under_full_a_key_that_is_dropped_is_none(pipeline: Pipeline) -> None:
    pipeline.prepare(PLAIN, "alter table t replica identity full", FREE)
    with pipeline.capturing():
        pipeline.execute("insert into t values (1, 'a'), (2, 'b')")
        pipeline.settle()
        pipeline.execute("alter table t drop constraint t_pkey", "insert into t values (2, 'c')")
        is_aside(pipeline, Cause.CHANGED)
        pipeline.execute("delete from t where v = 'b'", "alter table t add primary key (id)")
        follows(pipeline)


@pytest.mark.slow
def test_h120_a_history_is_never_set_aside(pipeline: Pipeline) -> None:
    pipeline.document["history"] = {"tables": ["public.t"]}
    pipeline.prepare(PLAIN, WHOLE)
    run = pipeline.stream()
    pipeline.execute("alter table t drop constraint t_pkey, add primary key (v)", "insert into t values (2, 'b')")
    refused(run, Exit.CONFIG, "the key of public.t was (id integer)", "out of [history] tables")
    assert aside(pipeline) is None


@pytest.mark.slow
def test_h143_a_history_that_is_not_published_stops_capture(pipeline: Pipeline) -> None:
    pipeline.document["history"] = {"tables": ["public.t"]}
    pipeline.prepare(PLAIN, WHOLE)
    run = pipeline.stream()
    pipeline.execute(f"alter publication {pipeline.settings.publication} drop table t")
    refused(run, Exit.CONFIG, "public.t is not in the publication")
    assert aside(pipeline) is None


@pytest.mark.slow
def test_h120_a_table_that_is_renamed_or_unpublished_waits_alone(pipeline: Pipeline) -> None:
    publication = pipeline.settings.publication
    pipeline.prepare(PLAIN, FREE, "create table u (id int primary key)")
    with pipeline.capturing():
        pipeline.execute("insert into t values (1, 'a'), (2, 'b')", "insert into u values (1)")
        pipeline.settle()
        pipeline.execute(
            "alter table t rename to elsewhere",
            "insert into elsewhere values (3, 'c')",
            f"alter publication {publication} drop table u",
            "insert into u values (2)",
            "insert into free values (1)",
        )
        is_aside(pipeline, Cause.NOT_FOLLOWED)
        is_aside(pipeline, Cause.NOT_FOLLOWED, "public.u")
        pipeline.settle()
        pipeline.execute(
            "delete from elsewhere where id = 1",
            "alter table elsewhere rename to t",
            f"alter publication {publication} add table u",
        )
        follows(pipeline)
        follows(pipeline, "u")
        follows(pipeline, "free")


@pytest.mark.slow
def test_h120_a_name_that_a_pattern_takes_waits_and_goes_again(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    """Under the new name its rows would be read once, and no change of them would follow."""
    pipeline.document["source"]["tables"] = ["public.*"]
    # The watch may see the name before the stream brings it: then it has a topic already, and is set aside with that.
    pipeline.document["snapshot"] = {"watch": "1h"}
    pipeline.prepare_with_rows(PLAIN, FREE, "insert into t values (1, 'a'), (2, 'b')")
    with pipeline.capturing():
        pipeline.settle()
        pipeline.execute("alter table t rename to elsewhere", "insert into elsewhere values (3, 'c')")
        for table in ("public.t", "public.elsewhere"):
            is_aside(pipeline, Cause.NOT_FOLLOWED, table)
    pipeline.document["snapshot"] = {"watch": "1s"}
    with pipeline.capturing():
        wait_until(
            lambda: any("public.elsewhere is set aside" in vars(one).get("why", "") for one in caplog.records), 30
        )
        assert "public.elsewhere" not in pipeline.topics().tables
        pipeline.execute("delete from elsewhere where id = 1", "alter table elsewhere rename to t")
        follows(pipeline)
        wait_until(lambda: aside(pipeline, "public.elsewhere") is None, 30)


@pytest.mark.slow
def test_h121_other_tables_are_read_again_while_one_waits(pipeline: Pipeline) -> None:
    pipeline.document["snapshot"] = {"watch": "1s"}
    pipeline.prepare_with_rows(*TABLES, "insert into free select generate_series(1, 1000)")
    with pipeline.capturing() as capturing:
        pipeline.settle()
        # Before that a table may have come into the publication a moment ago, and who has the lock is waited for (H73).
        wait_until(lambda: len(find_all(pipeline.state(), FormState)) == 2, 30)
        with locked(pipeline):
            wait_until(lambda: bool(capturing.figures.waiting()), 30)
            # Beyond what the progress record says, which t holds back.
            pipeline.execute("insert into free values (1001)", "delete from free where id = 3")
            of_t = ask(pipeline, "public.t")
            assert over(pipeline, ask(pipeline, "public.free")).state == "done"
            assert capturing.figures.waiting()
            wait_until(lambda: aside(pipeline) is not None, 20)
            state = aside(pipeline)
            assert state is not None
            assert state.state is TableState.WAITING
        assert over(pipeline, of_t).state == "done"
        wait_until(lambda: aside(pipeline) is None, 20)
        pipeline.settle()
    for table in ("t", "free"):
        same(pipeline, table)
        pipeline.assert_ordered(table)


def test_h120_who_joins_a_first_reading_asks_by_hand(pipeline: Pipeline) -> None:
    """A table under a new name was set aside a moment after, and `cdc snapshot` waited for it without end."""
    pipeline.prepare("create table new (id int primary key)", "create table known (id int primary key)")
    said = [
        RequestState(id=f"snapshot:public.{table}", table=f"public.{table}", after_lsn=0, reason="it is read", serial=7)
        for table in ("new", "known")
    ]
    said[0] = replace(said[0], first=True)
    open_state(pipeline.settings).write([(one.key(), one.to_json()) for one in said])
    joined = open_rereads(pipeline.settings).ask(["new", "known"], WantedRows())
    found = requests_of(pipeline.state())
    assert {one.table: (one.by_hand, one.serial) for one in found} == {
        "public.new": (True, 7),
        "public.known": (False, 7),
    }
    assert sorted(found, key=lambda one: one.table) == sorted(joined, key=lambda one: one.table)


def test_h120_a_request_written_again_behind_its_end_goes(pipeline: Pipeline) -> None:
    """Who joins a reading in the moment of its end writes its request again, and nobody may join that."""
    pipeline.prepare(PLAIN)
    with pipeline.capturing():
        request = ask(pipeline, first=True)
        over(pipeline, request)
        open_state(pipeline.settings).write([(request.key(), replace(request, by_hand=True).to_json())])
        wait_until(lambda: requests_of(pipeline.state()) == [], 20, pipeline.state)
        assert over(pipeline, ask(pipeline)).state == "done"
