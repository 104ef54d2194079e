"""The first snapshot, undisturbed."""

from __future__ import annotations

from collections import Counter

import pytest

from cdc.process.errors import UsageError
from cdc.record.position import Position
from tests.integration.snapshot.pipeline import Pipeline

MANY_SHAPES = (
    "create type mood as enum ('sad', 'ok', 'happy')",
    "create table empty (id int primary key)",
    "create table composite (a text, b int, note text, primary key (b, a))",
    "insert into composite select 'a' || g, g % 7, 'x' from generate_series(1, 500) g",
    "create table by_uuid (id uuid primary key default gen_random_uuid(), doc jsonb, tags text[], m mood)",
    """insert into by_uuid (doc, tags, m) select jsonb_build_object('n', g, 'deep', array[g, null]),
       array['a', null, 'with "quotes"'], 'happy' from generate_series(1, 300) g""",
    'create table "Odd ""name"", with\ttab" ("Id" int, "id" text, "per%cent" numeric, primary key ("Id"))',
    """insert into "Odd ""name"", with\ttab"
       select g, E'line\\nbreak\\t\\\\ and \\\\N', 'NaN' from generate_series(1, 50) g""",
    "create table wide (id bigint primary key, body text, raw bytea)",
    "alter table wide alter body set storage external",
    """insert into wide select g, repeat(md5(g::text), 2000), decode(repeat(md5(g::text), 200), 'hex')
       from generate_series(1, 60) g""",
    "create table tree (region text, id int, v timestamptz, primary key (region, id)) partition by list (region)",
    "create table tree_eu partition of tree for values in ('eu') partition by range (id)",
    "create table tree_eu_low partition of tree_eu for values from (0) to (100)",
    "create table tree_eu_high partition of tree_eu for values from (100) to (100000)",
    "create table tree_us partition of tree for values in ('us')",
    "create table tree_empty partition of tree for values in ('moon')",
    """insert into tree select r, g, 'epoch'::timestamptz + g * interval '1 ms'
       from generate_series(1, 700) g, unnest('{eu,us}'::text[]) r""",
    "create table parent (id int primary key, v text)",
    "create table child (extra int, primary key (id)) inherits (parent)",
    "insert into parent select g, 'p' from generate_series(1, 10) g",
    "insert into child select g, 'c', 1 from generate_series(11, 20) g",
    "create table holes (id int primary key, v text)",
    "insert into holes select g, repeat('x', 100) from generate_series(1, 5000) g",
    "delete from holes where id % 3 = 0 or id > 4000",
)
TABLES = (
    "public.empty",
    "public.composite",
    "public.by_uuid",
    'public.Odd "name", with\ttab',
    "public.wide",
    "public.tree",
    "public.holes",
    "public.child",
)


@pytest.mark.slow
def test_every_row_once_whatever_the_table_looks_like(pipeline: Pipeline) -> None:
    pipeline.execute(*MANY_SHAPES)
    pipeline.document["source"]["tables"] = ["public.*"]
    pipeline.prepare()
    summary = pipeline.run(workers=3)
    pipeline.assert_equal(*TABLES)
    counts = {table.table: table.rows for table in summary.tables}
    for table in TABLES:
        records = pipeline.records(pipeline.schema(table).topic)
        copies = Counter(record.key for record in records)
        assert not [key for key, times in copies.items() if times > 1], f"{table} has rows twice"
        assert len(copies) == counts[table] == len(pipeline.source(table))
    assert counts["public.tree"] == 1400, "partitions once (D13)"
    assert len(pipeline.chunks()) > 20
    assert {chunk.state for chunk in pipeline.chunks()} == {"done"}
    head = pipeline.head()
    assert head is not None
    assert (head.state, head.rows) == ("complete", summary.rows)
    assert head.consistent_point == head.last_cut_lsn == summary.consistent_point
    assert pipeline.told.shares == dict.fromkeys(counts, 1.0)
    assert pipeline.requests() == {}


@pytest.mark.slow
def test_h18_rows_and_stream_meet_at_the_consistent_point(pipeline: Pipeline) -> None:
    pipeline.execute(
        "create table t (id int primary key, v int)", "insert into t select g, 0 from generate_series(1, 3000) g"
    )
    pipeline.prepare()
    pipeline.told.after(
        2,
        lambda: pipeline.execute(
            "update t set v = 1 where id % 2 = 0",
            "delete from t where id % 5 = 0",
            "insert into t select g, 2 from generate_series(3001, 3100) g",
        ),
    )
    pipeline.run()
    copied = pipeline.copied("public.t")
    assert len(copied) == 3000, "the cut is older than what happened meanwhile"
    assert {row["v"] for row in copied.values()} == {0}
    pipeline.assert_equal("public.t")


@pytest.mark.slow
def test_d24_one_worker_marks_the_ends(pipeline: Pipeline) -> None:
    pipeline.execute(
        "create table a (id int primary key, v text)",
        "create table b (id int primary key)",
        "create table c (id int primary key)",
        "insert into a select g, repeat('x', 200) from generate_series(1, 1000) g",
        "delete from a where id > 900",
        "insert into b values (1)",
    )
    pipeline.document["log"]["partitions"] = 1
    pipeline.prepare()
    pipeline.run(workers=1)
    of_a = [record.value["source"]["snapshot"] for record in pipeline.records(f"{pipeline.name}.public.a")]
    of_b = [record.value["source"]["snapshot"] for record in pipeline.records(f"{pipeline.name}.public.b")]
    assert of_a == ["first", *["true"] * 898, "last_in_data_collection"]
    assert of_b == ["last"]


@pytest.mark.slow
def test_none_makes_the_slot_and_copies_nothing(pipeline: Pipeline) -> None:
    pipeline.execute("create table t (id int primary key)", "insert into t values (1)")
    pipeline.prepare()
    summary = pipeline.run(rows=False)
    assert summary.rows == 0
    head = pipeline.head()
    assert head is not None
    assert head.state == "complete"
    assert pipeline.records(f"{pipeline.name}.public.t") == []
    pipeline.execute("insert into t values (2)")
    assert list(pipeline.followed(["public.t"])["public.t"]) == [b'{"id":2}']
    flushed = pipeline.one(
        "select confirmed_flush_lsn::text from pg_replication_slots where slot_name = %s", pipeline.settings.slot
    )
    assert flushed == str(summary.consistent_point)


@pytest.mark.slow
def test_a_second_run_says_that_it_is_complete_and_reads_nothing(pipeline: Pipeline) -> None:
    pipeline.execute("create table t (id int primary key)", "insert into t values (1)")
    pipeline.prepare()
    first = pipeline.run()
    pipeline.execute("insert into t values (2)")
    second = pipeline.run()
    assert not first.already_complete
    assert second.already_complete
    assert second.rows == 1
    assert len(pipeline.records(f"{pipeline.name}.public.t")) == 1


@pytest.mark.slow
def test_none_after_a_snapshot_has_begun_is_refused(pipeline: Pipeline) -> None:
    pipeline.execute("create table t (id int primary key)", "insert into t select generate_series(1, 5000)")
    pipeline.prepare()

    def interrupt() -> None:
        raise KeyboardInterrupt

    pipeline.told.after(2, interrupt)
    with pytest.raises(KeyboardInterrupt):
        pipeline.run()
    assert "goes on where it was" in pipeline.told.text()
    with pytest.raises(UsageError, match="has begun"):
        pipeline.run(rows=False)
    pipeline.run()
    pipeline.assert_equal("public.t")


@pytest.mark.slow
def test_h36_the_publication_decides_on_columns_and_rows(pipeline: Pipeline) -> None:
    pipeline.execute(
        "create table g (id int primary key, a int, twice int generated always as (a * 2) stored, s text, tenant int)",
        "insert into g (id, a, s, tenant) select n, n, 's', n % 2 from generate_series(1, 100) n",
        f"create publication {pipeline.settings.publication} for table g (id, a, tenant) where (tenant <> 0)"
        " with (publish_via_partition_root = true)",
        "alter table g replica identity full",
        "alter table g replica identity default",
    )
    pipeline.prepare()
    pipeline.run()
    copied = pipeline.copied("public.g")
    assert len(copied) == 50
    assert all(set(row) == {"id", "a", "tenant"} and row["tenant"] == 1 for row in copied.values())


@pytest.mark.slow
def test_the_positions_epoch_and_slot_are_kept(pipeline: Pipeline) -> None:
    pipeline.execute("create table t (id int primary key)", "insert into t values (1)")
    pipeline.prepare()
    summary = pipeline.run()
    slot = pipeline.slot()
    assert slot.slot == pipeline.settings.slot
    assert slot.consistent_point == summary.consistent_point
    assert slot.system_identifier == pipeline.one("select system_identifier::text from pg_control_system()")
    assert slot.database_oid == pipeline.one("select oid::int8 from pg_database where datname = current_database()")
    [record] = pipeline.records(f"{pipeline.name}.public.t")
    assert record.headers["pos"].decode() == Position(1, summary.consistent_point, 0).text()
