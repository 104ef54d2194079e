"""What was changed and changed back between two looks, and types that change under rows nobody writes (H96, H98)."""

from __future__ import annotations

from contextlib import closing

import pytest

from cdc.process.crash_points import CRASH_EXIT
from cdc.process.errors import ConfigError
from cdc.record.state import FormState, PartitionsState, RequestState, TopicsState, find_all
from connectors.operate.verify import gone_tables, open_cut, verified_tables
from tests.integration.capture.later import reread, same, swept
from tests.integration.capture.pipeline import Capturing, Pipeline
from tests.waiting import wait_until


def watched(pipeline: Pipeline, *tables: str) -> None:
    """The watch knows these, and nothing is being read again."""

    def quiet() -> bool:
        state = pipeline.state()
        known = {form.table for form in find_all(state, FormState)}
        return {f"public.{table}" for table in tables} <= known and not find_all(state, RequestState)

    wait_until(quiet, 30)


def assert_same(pipeline: Pipeline, *tables: str) -> None:
    for table in tables:
        wait_until(lambda table=table: same(pipeline, table) is None, 40, table)  # type: ignore[misc,func-returns-value]


@pytest.mark.slow
def test_h96_what_was_not_published_for_a_moment_is_read_again(pipeline: Pipeline) -> None:
    """Each change is taken back in the transaction that follows, long before the watch looks."""
    pipeline.document["snapshot"] = {"watch": "1s"}
    publication = pipeline.settings.publication
    pipeline.prepare(*(f"create table {name} (id int primary key, v int)" for name in ("added", "filtered", "kept")))
    with pipeline.capturing() as capturing:
        pipeline.execute(*(f"insert into {name} values (1, 1), (2, 2)" for name in ("added", "filtered", "kept")))
        pipeline.settle()
        watched(pipeline, "added", "filtered", "kept")
        pipeline.execute(
            f"alter publication {publication} drop table added",
            "update added set v = 10 where id = 1",
            "delete from added where id = 2",
            f"alter publication {publication} add table added",
            f"alter publication {publication} set table added, kept, filtered where (id > 1)",
            "update filtered set v = 10 where id = 1",
            f"alter publication {publication} set table added, kept, filtered",
        )
        assert_same(pipeline, "added", "filtered")
        assert reread(pipeline, "snapshot:public.kept") is None, "its own entry stayed as it was"
        watched(pipeline, "kept")
        pipeline.execute(
            f"alter publication {publication} set (publish = 'insert')",
            "update kept set v = 10 where id = 1",
            f"alter publication {publication} set (publish = 'insert, update, delete, truncate')",
        )
        assert_same(pipeline, "added", "filtered", "kept")
        assert capturing.figures.reconnects == 0


@pytest.mark.slow
def test_h96_a_reading_says_how_many_rows_differed(pipeline: Pipeline) -> None:
    pipeline.document["snapshot"] = {"watch": "1s"}
    publication = pipeline.settings.publication
    pipeline.prepare(*(f"create table {name} (id int primary key, v int)" for name in ("lost", "equal")))
    with pipeline.capturing() as capturing:
        pipeline.execute(
            *(f"insert into {name} select i, i from generate_series(1, 9) i" for name in ("lost", "equal"))
        )
        pipeline.settle()
        watched(pipeline, "lost", "equal")
        pipeline.execute(
            f"alter publication {publication} drop table lost, equal",
            "update lost set v = 0 where id < 3",
            "delete from lost where id = 9",
            "insert into lost values (10, 10)",
            f"alter publication {publication} add table lost, equal",
            "update equal set v = 0 where id = 1",
        )
        assert_same(pipeline, "lost", "equal")
        watched(pipeline, "lost", "equal")
        lost, equal = (reread(pipeline, f"snapshot:public.{name}") for name in ("lost", "equal"))
        assert lost is not None
        assert equal is not None
        assert (lost.state, lost.differing, lost.detail) == ("done", 4, "4 rows differed from the log")
        assert (equal.state, equal.differing, equal.detail) == ("done", 0, "no row differed from the log")
        assert capturing.figures.reconnects == 0


@pytest.mark.slow
def test_h96_changes_between_snapshot_and_first_look_are_seen(pipeline: Pipeline) -> None:
    """The snapshot noted how each table was published, and its types; capture has not run yet."""
    pipeline.document["snapshot"] = {"watch": "200ms"}
    publication = pipeline.settings.publication
    pipeline.prepare_with_rows(
        "create type mood as enum ('glad', 'sad')",
        *(f"create table {name} (id int primary key, v int)" for name in ("added", "filtered", "kept")),
        "create table felt (id int primary key, m mood)",
        *(f"insert into {name} values (1, 1), (2, 2)" for name in ("added", "filtered", "kept")),
        "insert into felt values (1, 'glad')",
    )
    pipeline.execute(
        f"alter publication {publication} drop table added",
        "delete from added where id = 2",
        f"alter publication {publication} add table added",
        f"alter publication {publication} set table added, kept, felt, filtered where (id > 1)",
        "update filtered set v = 10 where id = 1",
        "alter type mood rename value 'glad' to 'merry'",
    )
    with pipeline.capturing():
        watched(pipeline, "added", "filtered", "kept", "felt")
        wait_until(lambda: reread(pipeline, "snapshot:public.filtered") is not None, 30)
        assert_same(pipeline, "added", "felt")
        assert reread(pipeline, "snapshot:public.kept") is None, "its own entry stayed as it was"


@pytest.mark.slow
def test_h96_h144_a_setting_declines_a_publication_changed_back(pipeline: Pipeline) -> None:
    pipeline.document["snapshot"] = {"watch": "200ms", "reread_republished": False}
    publication = pipeline.settings.publication
    pipeline.prepare("create table t (id int primary key)")
    with pipeline.capturing():
        pipeline.execute("insert into t values (1)")
        watched(pipeline, "t")
        (before,) = find_all(pipeline.state(), FormState)
        pipeline.execute(
            f"alter publication {publication} drop table t, add table t".replace(
                ", add", f"; alter publication {publication} add"
            )
        )
        wait_until(lambda: find_all(pipeline.state(), FormState)[0].entries != before.entries, 20)
        assert reread(pipeline, "snapshot:public.t") is None
        assert not find_all(pipeline.state(), RequestState)
        # Declining that declines nothing else.
        pipeline.execute(
            f"alter publication {publication} drop table t; alter publication {publication} add table t; "
            "alter table t alter id type int using id + 1"
        )
        assert_same(pipeline, "t")


TYPES = (
    "create type mood as enum ('glad', 'sad')",
    "create type pair as (a int, m mood)",
    "create domain feeling as mood",
    "create domain pairs as pair[]",
    "create table plain (id int primary key, m mood)",
    "create table listed (id int primary key, m feeling[])",
    "create table nested (id int primary key, p pairs)",
    "create table keyed (m mood primary key, v int)",
    "create table other (id int primary key, v text)",
)
TABLES = ("plain", "listed", "nested", "keyed", "other")


FLAT = ("plain", "listed", "keyed", "other")


def pairs(pipeline: Pipeline) -> object:
    """The composites of the one row, as the topic has them last."""
    return swept(pipeline, "nested")['{"id":1}']["p"]


@pytest.fixture
def typed(pipeline: Pipeline) -> Pipeline:
    pipeline.document["snapshot"] = {"watch": "200ms"}
    pipeline.prepare(*TYPES)
    return pipeline


def filled(pipeline: Pipeline, capturing: Capturing) -> None:
    pipeline.execute(
        "insert into plain values (1, 'glad'), (2, 'sad')",
        "insert into listed values (1, '{glad,sad}')",
        "insert into nested values (1, array[row(1, 'glad')]::pair[])",
        "insert into keyed values ('glad', 1), ('sad', 2)",
        "insert into other values (1, 'glad')",
    )
    pipeline.settle()
    watched(pipeline, *TABLES)
    assert capturing.figures.reconnects == 0


@pytest.mark.slow
def test_h98_values_of_a_type_that_was_altered_are_read_again(typed: Pipeline) -> None:
    with typed.capturing() as capturing:
        filled(typed, capturing)
        typed.execute("alter type mood rename value 'glad' to 'happy'")
        assert_same(typed, *FLAT)
        wait_until(lambda: pairs(typed) == ["(1,happy)"], 40, lambda: pairs(typed))
        watched(typed, *TABLES)
        typed.execute("alter type pair add attribute b text")
        wait_until(lambda: pairs(typed) == ["(1,happy,)"], 40, lambda: pairs(typed))
        for table in ("plain", "listed", "keyed"):
            done = reread(typed, f"snapshot:public.{table}")
            assert done is not None, table
        assert reread(typed, "snapshot:public.other") is None


@pytest.mark.slow
def test_h98_an_altered_domain_has_its_tables_read_again(typed: Pipeline) -> None:
    with typed.capturing() as capturing:
        filled(typed, capturing)
        typed.execute("alter domain feeling set default 'sad'")
        wait_until(lambda: reread(typed, "snapshot:public.listed"), 40)
        typed.execute("alter domain pairs set not null")
        wait_until(lambda: reread(typed, "snapshot:public.nested"), 40)
        watched(typed, *TABLES)
        assert reread(typed, "snapshot:public.plain") is None
        assert reread(typed, "snapshot:public.other") is None
        assert_same(typed, "listed")


@pytest.mark.slow
def test_h98_a_key_of_a_renamed_label_leaves_no_ghost(typed: Pipeline) -> None:
    with typed.capturing() as capturing:
        filled(typed, capturing)
        typed.execute(
            "alter type mood rename value 'glad' to 'happy'",
            "delete from keyed where m = 'happy'",
            "alter type mood add value 'new'",
        )
        assert_same(typed, "keyed", "plain")
        watched(typed, *TABLES)
        typed.execute("insert into keyed values ('new', 3)")
        typed.settle()
        assert_same(typed, "keyed")


PARTED = (
    "create table parted (id int primary key, v text) partition by range (id)",
    "create table early partition of parted for values from (0) to (100)",
)
LATE = "partition of parted for values from (100) to (200)"


@pytest.mark.slow
@pytest.mark.parametrize("running", [True, False])
def test_h145_rows_of_a_partition_that_no_look_saw_go_with_it(pipeline: Pipeline, running: bool) -> None:
    """It is made, filled and dropped between two looks, or while capture is stopped. No event tells of the drop."""
    pipeline.document["snapshot"] = {"watch": "1s"}
    pipeline.prepare(*PARTED)
    passing = (f"create table late {LATE}", "insert into parted values (150, 'x'), (2, 'y')", "drop table late")
    with pipeline.capturing() as capturing:
        pipeline.execute("insert into parted values (1, 'a')")
        pipeline.settle()
        watched(pipeline, "parted")
        if running:
            pipeline.execute(*passing)
            assert_same(pipeline, "parted")
        assert capturing.figures.reconnects == 0
    if not running:
        pipeline.execute(*passing)
        with pipeline.capturing():
            assert_same(pipeline, "parted")


@pytest.mark.slow
def test_h145_a_partition_attached_twice_is_read_with_its_sweep(pipeline: Pipeline) -> None:
    pipeline.document["snapshot"] = {"watch": "1s"}
    pipeline.prepare(*PARTED)
    with pipeline.capturing():
        pipeline.execute("insert into parted values (1, 'a')")
        pipeline.settle()
        watched(pipeline, "parted")
    pipeline.execute(
        f"create table late {LATE}",
        "insert into parted values (150, 'x'), (151, 'y')",
        "alter table parted detach partition late",
        "delete from late where id = 150",
        "alter table parted attach partition late for values from (100) to (200)",
    )
    with pipeline.capturing():
        assert_same(pipeline, "parted")


@pytest.mark.slow
def test_h148_a_dead_capture_forgets_no_partition_that_went(pipeline: Pipeline) -> None:
    pipeline.document["snapshot"] = {"watch": "1h"}
    pipeline.prepare(*PARTED)
    with pipeline.capturing():
        pipeline.execute("insert into parted values (1, 'a')")
        pipeline.settle()
        watched(pipeline, "parted")
        pipeline.execute(f"create table late {LATE}", "insert into parted values (150, 'x')")
        pipeline.settle()
    pipeline.execute("drop table late", "insert into parted values (2, 'b')")
    pipeline.document["snapshot"] = {"watch": "1s"}
    with pipeline.capturing():
        assert_same(pipeline, "parted")
        wait_until(lambda: not find_all(pipeline.state(), PartitionsState), 20)


@pytest.mark.slow
def test_h148_killed_noting_a_partition_capture_sweeps_its_rows(pipeline: Pipeline) -> None:
    pipeline.document["snapshot"] = {"watch": "1s"}
    pipeline.prepare(*PARTED)
    with pipeline.capturing():
        watched(pipeline, "parted")
    run = pipeline.stream(CDC_CRASH_AT="partition_noted")
    pipeline.execute(f"create table late {LATE}", "insert into parted values (150, 'x')")
    assert run.wait(60) == CRASH_EXIT
    pipeline.execute("drop table late", "insert into parted values (2, 'b')")
    with pipeline.capturing():
        assert_same(pipeline, "parted")


@pytest.mark.slow
def test_h145_a_partition_made_as_one_has_nothing_read_again(pipeline: Pipeline) -> None:
    """By a subtransaction, whose number is above that of the transaction that the stream names."""
    pipeline.document["snapshot"] = {"watch": "1s"}
    pipeline.prepare(*PARTED)
    with pipeline.capturing():
        pipeline.execute("insert into parted values (1, 'a')")
        pipeline.settle()
        watched(pipeline, "parted")
        pipeline.execute(
            "do $$ begin insert into parted values (2, 'b'); "
            f"begin create table late {LATE}; exception when duplicate_table then null; end; "
            "insert into parted values (150, 'x'); end $$"
        )
        pipeline.settle()
        wait_until(lambda: reread(pipeline, "snapshot:public.parted:partitions") is not None, 20)
        wait_until(lambda: not find_all(pipeline.state(), RequestState), 20)
        assert reread(pipeline, "snapshot:public.parted") is None, "a whole table may be large"
        assert_same(pipeline, "parted")


@pytest.mark.slow
def test_h143_a_table_that_is_gone_hides_no_other_from_the_watch(pipeline: Pipeline) -> None:
    """Of two listed tables one is dropped: the other is still looked at, and can be read again."""
    pipeline.document["snapshot"] = {"watch": "1s"}
    pipeline.document["source"]["tables"] = ["public.gone", "public.kept"]
    pipeline.prepare(
        "create type mood as enum ('good', 'bad')",
        "create table gone (id int primary key)",
        "create table kept (id int primary key, m mood)",
    )
    with pipeline.capturing():
        pipeline.execute("insert into kept values (1, 'good'), (2, 'bad')")
        pipeline.settle()
        watched(pipeline, "gone", "kept")
        pipeline.execute("drop table gone", "alter type mood rename value 'good' to 'fine'")
        assert_same(pipeline, "kept")
    topics = TopicsState.find(pipeline.state())
    assert topics is not None
    with closing(open_cut(pipeline.settings)) as source:
        with pytest.raises(ConfigError, match=r"the table public\.gone does not exist"):
            verified_tables(pipeline.settings, topics, source)
        tables = verified_tables(pipeline.settings, topics, source, missing=lambda _: None)
    assert [str(table) for table in tables] == ["public.kept"]
    assert gone_tables(pipeline.settings, topics, tables) == {
        "public.gone": "public.gone is not in the source any more"
    }


@pytest.mark.slow
@pytest.mark.parametrize("running", [True, False])
def test_h146_a_column_renamed_and_back_between_two_looks(pipeline: Pipeline, running: bool) -> None:
    """What was written in between has its value under the other name, and nothing is written later."""
    pipeline.document["snapshot"] = {"watch": "1s"}
    pipeline.prepare("create table t (id int primary key, v text)")
    passing = ("alter table t rename v to w", "update t set w = 'b' where id = 1", "alter table t rename w to v")
    with pipeline.capturing() as capturing:
        pipeline.execute("insert into t values (1, 'a'), (2, 'a')")
        pipeline.settle()
        watched(pipeline, "t")
        if running:
            pipeline.execute(*passing)
            assert_same(pipeline, "t")
        assert capturing.figures.reconnects == 0
    if not running:
        pipeline.execute(*passing)
        with pipeline.capturing():
            assert_same(pipeline, "t")
