"""What committed changes become, from a real Postgres into a real Kafka."""

from __future__ import annotations

import pytest

from tests.integration.capture.pipeline import Pipeline

PLACEHOLDER = "__debezium_unavailable_value"


@pytest.mark.slow
def test_insert_update_delete_and_change_of_a_key(pipeline: Pipeline) -> None:
    pipeline.prepare("create table t (id int primary key, v text)")
    with pipeline.capturing():
        pipeline.execute(
            "insert into t values (1, 'a'), (2, 'b')",
            "update t set v = 'A' where id = 1",
            "update t set id = 3 where id = 2",
            "delete from t where id = 1",
        )
        pipeline.settle()
        assert pipeline.shorts("t") == [
            'c {"id":1}',
            'c {"id":2}',
            'u {"id":1}',
            'd {"id":2}',
            '(d) {"id":2}',
            'c {"id":3}',
            'd {"id":1}',
            '(d) {"id":1}',
        ]
        pipeline.assert_equal("t")
        created = pipeline.by_position("t")[0]
        assert set(created.headers) == {"pos", "op", "ver"}
        assert created.value["source"]["commit_lsn"] == created.pos.commit_lsn
        assert [r.pos.tx_seq for r in pipeline.by_position("t")] == [1, 2, 1, 1, 2, 3, 1, 2]


@pytest.mark.slow
def test_h44_truncate_reaches_every_partition(pipeline: Pipeline) -> None:
    pipeline.prepare("create table t (id int primary key)", "create table u (id int primary key)")
    with pipeline.capturing():
        pipeline.execute("insert into t select generate_series(1, 20)", "truncate t, u", "insert into t values (7)")
        pipeline.settle()
        marks = [record for record in pipeline.records("t") if record.op == "t"]
        assert sorted(record.partition for record in marks) == [0, 1, 2]
        assert {record.key for record in marks} == {'{"__truncate":"public.t"}'}
        pipeline.assert_equal("t", "u")


@pytest.mark.slow
def test_h38_h69_unchanged_toast_is_the_value(pipeline: Pipeline) -> None:
    """The usual ORM pattern: insert and update of one key in one transaction, and in two right after each other."""
    pipeline.prepare("create table t (id int primary key, big text, n int)")
    pipeline.execute("alter table t alter big set storage external")
    with pipeline.capturing():
        for number in range(1, 41):
            pipeline.transaction(
                f"insert into t values ({number}, repeat('{number}x', 3000), 0)",
                f"update t set n = 1 where id = {number}",
            )
            pipeline.execute(f"update t set n = 2 where id = {number}")
            if number % 3 == 0:
                # A row that left its key before it was asked for has a placeholder there: not what this is about.
                pipeline.settle()
                pipeline.execute(f"update t set id = {number + 1000} where id = {number}")
        pipeline.settle()
        assert not [
            r for r in pipeline.records("t") if r.value and r.value["after"] and r.value["after"]["big"] is None
        ]
        assert not [r for r in pipeline.records("t") if PLACEHOLDER in str(r.value)]
        pipeline.assert_equal("t")


@pytest.mark.slow
def test_h38_full_identity_takes_the_old_value(pipeline: Pipeline) -> None:
    pipeline.prepare(
        "create table t (id int primary key, big text, n int)",
        "alter table t alter big set storage external",
        "alter table t replica identity full",
    )
    with pipeline.capturing():
        pipeline.execute("insert into t values (1, repeat('x', 5000), 0)", "update t set n = 1", "update t set id = 2")
        pipeline.settle()
        assert all(r.value["after"]["big"] == "x" * 5000 for r in pipeline.records("t") if r.op in "cu")
        pipeline.assert_equal("t")


@pytest.mark.slow
def test_h38_a_row_that_is_gone_has_a_placeholder_then_a_delete(pipeline: Pipeline) -> None:
    pipeline.prepare("create table t (id int primary key, big text, n int)")
    pipeline.execute(
        "alter table t alter big set storage external",
        "insert into t values (1, repeat('x', 5000), 0)",
        "update t set n = 1",
        "delete from t",
    )
    with pipeline.capturing():
        pipeline.settle()
        updated = next(record for record in pipeline.by_position("t") if record.op == "u")
        assert updated.value["after"]["big"] == PLACEHOLDER
        pipeline.assert_equal("t")


@pytest.mark.slow
def test_h87_column_gone_at_the_head_is_the_placeholder(pipeline: Pipeline) -> None:
    pipeline.prepare("create table t (id int primary key, big text, n int)")
    pipeline.execute(
        "alter table t alter big set storage external",
        "insert into t values (1, repeat('x', 5000), 0), (2, repeat('y', 5000), 0)",
        "update t set n = 1",
        "alter table t drop column big",
        "update t set n = 2 where id = 1",
    )
    with pipeline.capturing():
        pipeline.settle()
        updated = [record for record in pipeline.by_position("t") if record.op == "u"]
        assert [record.value["after"].get("big") for record in updated] == [PLACEHOLDER, PLACEHOLDER, None]
        assert [record.headers["ver"] for record in updated] == [b"1", b"1", b"2"]


@pytest.mark.slow
def test_h87_renamed_table_and_column_are_still_found(pipeline: Pipeline) -> None:
    pipeline.prepare("create table t (id int primary key, big text, n int)")
    pipeline.execute(
        "alter table t alter big set storage external",
        "insert into t values (1, repeat('x', 5000), 0)",
        "update t set n = 1",
        "alter table t rename column big to large",
    )
    with pipeline.capturing():
        pipeline.settle()
        updated = next(record for record in pipeline.by_position("t") if record.op == "u")
        assert updated.value["after"]["big"] == "x" * 5000


@pytest.mark.slow
def test_h45_partitions_come_under_their_root(pipeline: Pipeline) -> None:
    pipeline.prepare(
        "create table p (id int primary key, v text) partition by range (id)",
        "create table p1 partition of p for values from (0) to (100)",
        "create table p2 partition of p for values from (100) to (200)",
    )
    with pipeline.capturing():
        pipeline.execute("insert into p values (1, 'a'), (101, 'b')", "update p set id = 150 where id = 1")
        pipeline.settle()
        pipeline.assert_equal("p")
        assert [t for t in pipeline.topics().tables] == ["public.p"]
        pipeline.execute("truncate p", "insert into p values (5, 'c')")
        pipeline.settle()
        pipeline.assert_equal("p")


@pytest.mark.slow
def test_h36_stored_generated_columns_are_in_the_stream(pipeline: Pipeline) -> None:
    pipeline.prepare("create table t (id int primary key, n int, twice int generated always as (n * 2) stored)")
    with pipeline.capturing():
        pipeline.execute("insert into t values (1, 4)")
        pipeline.settle()
        assert pipeline.by_position("t")[0].value["after"] == {"id": 1, "n": 4, "twice": 8}


@pytest.mark.slow
def test_h41_h78_key_shift_keeps_every_row(pipeline: Pipeline) -> None:
    pipeline.prepare(
        "create table t (id int primary key deferrable initially deferred, v text)",
        "alter table t replica identity full",
    )
    with pipeline.capturing():
        pipeline.execute("insert into t select g, 'a' from generate_series(1, 50) g", "update t set id = id + 1")
        pipeline.execute("update t set id = 100 - id")
        pipeline.settle()
        pipeline.assert_equal("t")


@pytest.mark.slow
def test_h47_savepoints_prepared_transactions_and_messages(pipeline: Pipeline) -> None:
    pipeline.prepare("create table t (id int primary key)")
    with pipeline.capturing():
        with pipeline.session() as session:
            session.execute("begin")
            session.execute("insert into t values (1)")
            session.execute("select pg_logical_emit_message(false, 'now', 'outside')")
            session.execute("savepoint s")
            session.execute("insert into t values (2)")
            session.execute("rollback to savepoint s")
            session.execute("select pg_logical_emit_message(true, 'then', 'inside')")
            session.execute("commit")
            session.execute("begin")
            session.execute("insert into t values (3)")
            session.execute("prepare transaction 'later'")
            session.execute("begin")
            session.execute("select pg_logical_emit_message(false, 'now', 'of an aborted one')")
            session.execute("insert into t values (4)")
            session.execute("rollback")
            session.execute("insert into t values (5)")
            pipeline.settle()
            assert pipeline.shorts("t") == ['c {"id":1}', 'c {"id":5}']
            session.execute("commit prepared 'later'")
        pipeline.settle()
        assert pipeline.shorts("t") == ['c {"id":1}', 'c {"id":5}', 'c {"id":3}']
        pipeline.assert_equal("t")


@pytest.mark.slow
def test_h11_concurrent_transactions_come_in_commit_order(pipeline: Pipeline) -> None:
    pipeline.prepare("create table t (id int primary key, v int)")
    with pipeline.capturing():
        with pipeline.session() as first, pipeline.session() as second:
            first.execute("begin")
            first.execute("insert into t values (1, 1)")
            second.execute("insert into t values (2, 2)")
            second.execute("update t set v = 3 where id = 2")
            first.execute("insert into t values (3, 3)")
            first.execute("commit")
        pipeline.settle()
        assert pipeline.shorts("t") == ['c {"id":2}', 'u {"id":2}', 'c {"id":1}', 'c {"id":3}']


@pytest.mark.slow
def test_names_of_any_shape(pipeline: Pipeline) -> None:
    pipeline.document["source"]["tables"] = ["s p.*"]
    pipeline.prepare('create schema "s p"', 'create table "s p"."T ""x"" é" ("Id" int primary key, "a.b" text)')
    with pipeline.capturing():
        pipeline.execute('insert into "s p"."T ""x"" é" values (1, \'v\')')
        pipeline.settle()
        (topic,) = pipeline.topics().tables.values()
        assert topic == f"{pipeline.name}.s_p.T__x___"
        record = pipeline.records(topic.removeprefix(f"{pipeline.name}."))[0]
        assert (record.key, record.value["after"]) == ('{"Id":1}', {"Id": 1, "a.b": "v"})
