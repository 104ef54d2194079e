"""What changes at the servers while capture runs is noticed within ten seconds, and a wait ends nothing else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer

from cdc.figures.capture_metrics import Health
from cdc.process.clock import SYSTEM_CLOCK
from cdc.process.crash_points import CRASH_EXIT
from cdc.process.errors import Exit
from cdc.record.state import FormState, find_all
from cdc.record.tables_aside import Cause, TableState, asides_of
from cdc.record.topic_names import partition_of
from cdc.wiring.pipeline import open_status, prepare_pipeline
from connectors.kafka.admin import TopicAdmin
from tests.integration.capture.later import same
from tests.integration.capture.pipeline import Pipeline, refused
from tests.integration.capture.test_later_gate import stalled
from tests.integration.capture.test_refusals import alter_topic
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
ALL = "create publication {} for all tables with (publish_via_partition_root = true)"
TABLE = "create table t (id int primary key, v text)"


def publish_all(pipeline: Pipeline) -> None:
    pipeline.execute(ALL.format(pipeline.settings.publication))


def test_h62_a_topic_deleted_while_capture_runs_ends_it(pipeline: Pipeline) -> None:
    pipeline.prepare(TABLE, "create table u (id int primary key)")
    run = pipeline.stream()
    TopicAdmin(pipeline.settings.log).delete([pipeline.topic("t")])
    gone = f"the topic {pipeline.topic('t')} does not exist any more"
    # Two looks see it, the second one second behind the first.
    wait_until(lambda: gone in run.stderr, 10)
    refused(run, Exit.TOPIC, gone)


def test_h62_a_topic_set_to_forget_ends_capture_and_is_set_back(pipeline: Pipeline) -> None:
    pipeline.prepare(TABLE)
    run = pipeline.stream()
    pipeline.execute("insert into t values (1, 'a')")
    pipeline.settle()
    alter_topic(pipeline, "cleanup.policy", "delete")
    text = refused(run, Exit.TOPIC, "cleanup.policy=delete", "must be compact")
    assert "kafka-configs --alter" in text
    alter_topic(pipeline, "cleanup.policy", "compact")
    with pipeline.capturing():
        pipeline.execute("insert into t values (2, 'b')")
        pipeline.settle()
    pipeline.assert_equal("t")


def test_h101_a_foreign_record_is_written_over_and_ends_nothing(pipeline: Pipeline) -> None:
    """Between two runs, and while capture runs; a row that it may have pushed out of the log comes again."""
    pipeline.prepare(TABLE)
    producer = Producer({"bootstrap.servers": pipeline.settings.log.bootstrap_servers})

    def foreign(*headers: tuple[str, bytes]) -> None:
        key = b'{"id":1}'
        producer.produce(pipeline.topic("t"), b"{}", key, partition=partition_of(key, 3), headers=list(headers))
        assert producer.flush(20) == 0

    def last() -> object:
        return [record for record in pipeline.records("t") if record.key == '{"id":1}'][-1].value.get("after")

    run = pipeline.stream()
    pipeline.execute("insert into t values (1, 'a')")
    pipeline.settle()
    assert run.terminate() == 0
    foreign()
    run = pipeline.stream()
    assert pipeline.said(run, "foreign_records")
    assert last() == {"id": 1, "v": "a"}
    foreign(("pos", b"0000007f000000000000000800000001"))
    wait_until(lambda: run.stderr.count('"event":"foreign_records"') == 2, 40, lambda: run.stderr)
    wait_until(lambda: pipeline.said(run, "streaming") and last() == {"id": 1, "v": "a"}, 30, last)
    pipeline.execute("update t set v = 'b' where id = 1")
    pipeline.settle()
    assert run.terminate() == 0
    assert last() == {"id": 1, "v": "b"}


def test_h96_tables_that_swap_their_names_are_not_mixed(pipeline: Pipeline) -> None:
    pipeline.document["snapshot"] = {"watch": "200ms"}
    pipeline.prepare(TABLE, "create table u (id int primary key, v text)")
    run = pipeline.stream()
    pipeline.execute("insert into t values (1, 'of t')", "insert into u values (2, 'of u')")
    pipeline.settle()
    wait_until(lambda: len(find_all(pipeline.state(), FormState)) == 2, 30)
    pipeline.transaction(
        "alter table t rename to w", "alter table u rename to t", "alter table w rename to u",
        "insert into t values (3, 'of the former u')",
    )  # fmt: skip
    wait_until(lambda: len(asides_of(pipeline.state())) == 2, 30, lambda: run.stderr)
    assert "has the name of another captured table" in asides_of(pipeline.state())["public.t"].detail
    assert pipeline.shorts("t") == ['c {"id":1}']
    prepare_pipeline(pipeline.settings)
    wait_until(lambda: not asides_of(pipeline.state()), 60, lambda: asides_of(pipeline.state()))
    pipeline.settle()
    for table in ("t", "u"):
        same(pipeline, table)
    assert run.terminate() == 0


def test_h96_a_table_that_takes_anothers_name_leaves_no_rows(pipeline: Pipeline) -> None:
    """The watch looks too late to see it: the stream itself tells of the other relation."""
    pipeline.document["snapshot"] = {"watch": "1s"}
    pipeline.execute(
        f"create publication {pipeline.settings.publication} for all tables with (publish_via_partition_root = true)"
    )
    pipeline.prepare(TABLE)
    with pipeline.capturing():
        pipeline.execute("insert into t values (1, 'kept')")
        pipeline.settle()
        wait_until(lambda: find_all(pipeline.state(), FormState), 30)
        pipeline.execute(
            "alter table t rename to aside",
            TABLE,
            "insert into t values (7, 'of the other')",
            "drop table t",
            "alter table aside rename to t",
        )
        wait_until(lambda: same(pipeline, "t") is None, 40)  # type: ignore[func-returns-value]


AWAY = {
    "a partition is detached": (
        "for table public.t",
        "alter table t detach partition t2",
        "delete from t2; insert into t2 values (120, 'not sent')",
        "alter table t attach partition t2 for values from (100) to (200)",
    ),
    "a partition of a partition is detached": (
        "for table public.t",
        "alter table t3 detach partition t31",
        "delete from t31; insert into t31 values (220, 'not sent')",
        "alter table t3 attach partition t31 for values from (200) to (250)",
    ),
    "a partition is unlogged": (
        "for table public.t",
        "alter table t2 set unlogged",
        "delete from t2; insert into t2 values (120, 'not sent')",
        "alter table t2 set logged",
    ),
    "a table is unlogged": (
        "for all tables",
        "alter table u set unlogged",
        "delete from u; insert into u values (20, 'not sent')",
        "alter table u set logged",
    ),
    "a table leaves the schema": (
        "for tables in schema public",
        "alter table u set schema elsewhere",
        "delete from elsewhere.u; insert into elsewhere.u values (20, 'not sent')",
        "alter table elsewhere.u set schema public",
    ),
}
"""What is published, what takes a part of it away, what nobody sends meanwhile, and what puts it back."""


@pytest.mark.parametrize("what", AWAY)
def test_h139_what_leaves_and_comes_back_is_read(pipeline: Pipeline, what: str) -> None:
    published, leaves, unsent, comes = AWAY[what]
    table = "t" if "partition" in what else "u"
    pipeline.document["snapshot"] = {"watch": "1s"}
    pipeline.document["source"]["tables"] = [f"public.{table}"]
    pipeline.execute(
        "create schema elsewhere",
        "create table u (id int primary key, v text)",
        "create table t (id int primary key, v text) partition by range (id)",
        "create table t1 partition of t for values from (0) to (100)",
        "create table t2 partition of t for values from (100) to (200)",
        "create table t3 partition of t for values from (200) to (300) partition by range (id)",
        "create table t31 partition of t3 for values from (200) to (250)",
        f"create publication {pipeline.settings.publication} {published} with (publish_via_partition_root = true)",
    )
    pipeline.prepare()
    with pipeline.capturing():
        pipeline.execute(f"insert into {table} values (10, 'a')")
        if table == "t":
            pipeline.execute("insert into t values (110, 'b'), (210, 'c')")
        pipeline.settle()
        wait_until(lambda: find_all(pipeline.state(), FormState), 30)
        pipeline.execute(leaves, *unsent.split("; "), comes)
        wait_until(lambda: same(pipeline, table) is None, 40)  # type: ignore[func-returns-value]


def test_h96_a_table_that_is_not_followed_makes_capture_unready(pipeline: Pipeline) -> None:
    pipeline.prepare(TABLE, "create table u (id int primary key)", "create table gone (id int primary key)")
    publication = pipeline.settings.publication
    with pipeline.capturing() as capturing:
        health = Health(capturing.figures, SYSTEM_CLOCK)
        pipeline.execute("drop table gone")
        wait_until(lambda: capturing.figures.looked_s is not None, 20)
        assert health.ready() == (True, "streaming")
        pipeline.execute(f"alter publication {publication} drop table t", "alter table u rename to renamed")
        wait_until(lambda: len(capturing.figures.not_followed) == 2, 20, lambda: capturing.figures.not_followed)
        ready, why = health.ready()
        assert not ready
        assert f"public.t is not in the publication {publication}" in why
        assert "public.u was renamed to public.renamed" in why
        with open_status(pipeline.settings) as reader:
            assert not reader.read().not_followed.keys() ^ {"public.t"}, "of the other no relation was noted"
        pipeline.execute(f"alter publication {publication} add table t", "alter table renamed rename to u")
        wait_until(lambda: health.ready()[0], 20)
        pipeline.execute(f"alter publication {publication} set (publish = 'insert')")
        wait_until(lambda: "leaves out delete, truncate, update" in health.ready()[1], 20)


@contextmanager
def unseen(pipeline: Pipeline, *statements: str) -> Iterator[None]:
    """Executed in one transaction, which is streamed, and visible to nobody before this ends."""

    def execute() -> None:
        with pipeline.session() as session:
            session.execute("set synchronous_commit = on")
            with session.transaction():
                for statement in statements:
                    session.execute(statement.encode())

    writer = threading.Thread(target=execute)
    with stalled(pipeline):
        writer.start()
        waits = "select count(*) from pg_stat_activity where wait_event = 'SyncRep' and datname = current_database()"
        wait_until(lambda: pipeline.one(waits) == 1, 20)
        yield
    writer.join(30)
    assert not writer.is_alive()


DDL = (
    "create domain price as int",
    "create type colour as enum ('red')",
    "create table made (id int primary key, p price, c colour)",
    "insert into made values (1, 7, 'red')",
)


LATE = (
    *DDL[:3],
    "alter table u add c colour",
    "insert into made values (1, 7, 'red')",
    "update u set c = 'red' where id = 1",
    "insert into t values (9, 'of the same transaction')",
)


def late(pipeline: Pipeline) -> None:
    """Tables whose DDL will not be visible, and one beside them."""
    publish_all(pipeline)
    pipeline.prepare(TABLE, "create table u (id int primary key, v text)")


def positions(pipeline: Pipeline, table: str) -> list[tuple[str, int]]:
    """Each record of a table with its number in the transaction, in the order of the stream."""
    return [(record.short, record.pos.tx_seq) for record in pipeline.by_position(table)]


def test_h97_h140_a_table_whose_ddl_is_not_visible_waits_alone(pipeline: Pipeline) -> None:
    late(pipeline)
    with pipeline.capturing() as capturing:
        pipeline.execute("insert into t values (1, 'a')", "insert into u values (1, 'a')")
        before = pipeline.settle()
        with unseen(pipeline, *LATE):
            wait_until(lambda: capturing.figures.waiting().keys() == {"public.made", "public.u"}, 20)
            held = pipeline.fence()
            pipeline.execute("insert into t values (2, 'b')")
            wait_until(lambda: len(pipeline.shorts("t")) == 3, 20, "the others flow")
            wait_until(lambda: len(asides_of(pipeline.state())) == 2, 20, "status says so")
            assert {one.state for one in asides_of(pipeline.state()).values()} == {TableState.WAITING}
            assert "public.made" not in pipeline.topics().tables
            assert pipeline.shorts("u") == ['c {"id":1}']
            after = pipeline.progress()
            assert after is not None
            assert before <= after.lsn <= held
        pipeline.execute("update u set v = 'b'", "insert into u values (2, 'b')")
        wait_until(lambda: "public.made" in pipeline.topics().tables, 20)
        pipeline.settle()
        wait_until(lambda: not asides_of(pipeline.state()), 20)
        (record,) = [record for record in pipeline.records("made") if record.op == "c"]
        assert (record.value["after"], record.pos.tx_seq) == ({"id": 1, "p": 7, "c": "red"}, 1)
        assert positions(pipeline, "u") == [
            ('c {"id":1}', 1),
            ('u {"id":1}', 2),
            ('u {"id":1}', 1),
            ('c {"id":2}', 1),
        ]
        assert ('c {"id":9}', 3) in positions(pipeline, "t")
        assert capturing.figures.reconnects == 0
    for table in ("t", "u"):
        pipeline.assert_equal(table)


def test_h140_killed_while_a_shape_is_waited_for_nothing_is_lost(pipeline: Pipeline) -> None:
    late(pipeline)
    pipeline.execute("insert into u values (1, 'a')")
    run = pipeline.stream(CDC_CRASH_AT="table_unread")
    with unseen(pipeline, *LATE):
        assert run.wait(60) == CRASH_EXIT
        # Another start meets the same.
        run = pipeline.stream(CDC_CRASH_AT="unread_decoded")
        wait_until(lambda: pipeline.shorts("t") == ['c {"id":9}'], 20)
    assert run.wait(60) == CRASH_EXIT
    with pipeline.capturing():
        pipeline.settle()
        wait_until(lambda: same(pipeline, "made") is None, 40)  # type: ignore[func-returns-value]
    for table in ("t", "u"):
        pipeline.assert_equal(table)


def test_h140_past_the_limit_an_unread_table_is_set_aside(pipeline: Pipeline) -> None:
    pipeline.document["capture"]["waiting_limit"] = "50kB"
    late(pipeline)
    with pipeline.capturing() as capturing:
        pipeline.execute("insert into t values (1, 'a')")
        pipeline.settle()
        with unseen(pipeline, *DDL, "insert into made select g, g, 'red' from generate_series(2, 3000) g"):
            wait_until(lambda: asides_of(pipeline.state()), 30)
            (aside,) = asides_of(pipeline.state()).values()
            assert (aside.table, aside.state, aside.cause) == ("public.made", TableState.ASIDE, Cause.LOCKED)
            pipeline.execute("insert into t values (2, 'b')")
            pipeline.settle()
        wait_until(lambda: not asides_of(pipeline.state()), 60, lambda: asides_of(pipeline.state()))
        pipeline.execute("insert into made values (5000, 1, 'red')")
        pipeline.settle()
        assert capturing.figures.reconnects == 0
    same(pipeline, "made")
    pipeline.assert_ordered("made")


def test_h97_h115_a_wait_for_a_standby_is_ended_by_a_stop(pipeline: Pipeline) -> None:
    late(pipeline)
    run = pipeline.stream()
    pipeline.execute("insert into u values (1, 'a')")
    pipeline.settle()
    with unseen(pipeline, *LATE):
        confirmed = pipeline.confirmed()
        wait_until(lambda: pipeline.said(run, "table_waits"), 20)
        assert run.terminate() == 0, run.stderr
        assert pipeline.confirmed() >= confirmed
    with pipeline.capturing():
        pipeline.settle()
        (record,) = [record for record in pipeline.records("made") if record.op == "c"]
        assert record.value["after"] == {"id": 1, "p": 7, "c": "red"}
    pipeline.assert_equal("u")
