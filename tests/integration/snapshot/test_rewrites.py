"""Tables that change their files, columns or partitions while they are read (H71, H86)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.integration.snapshot.pipeline import Pipeline
from tests.integration.snapshot.writers import SCHEMA, TABLES, writing
from tests.programs import Spawn

ROWS = (
    "create table t (id int primary key, v int, pad text)",
    "insert into t select g, g, repeat('x', 100) from generate_series(1, 5000) g",
    "create table other (id int primary key)",
    "insert into other select generate_series(1, 3000)",
)

REWRITES = {
    "vacuum full": ("vacuum full t",),
    "cluster": ("create index t_v on t (pad, v desc)", "cluster t using t_v"),
    "alter type using": ("alter table t alter v type int using v * 2",),
}


def shuffled(pipeline: Pipeline) -> None:
    """Move rows about in the file, so that a rewrite gives nearly every row another place."""
    pipeline.execute(
        "delete from t where id % 2 = 0",
        "vacuum t",
        "insert into t select g, g, repeat('x', 100) from generate_series(2, 5000, 2) g",
    )


@pytest.mark.slow
@pytest.mark.parametrize("rewrite", sorted(REWRITES))
def test_h71_rewritten_between_two_chunks(pipeline: Pipeline, rewrite: str) -> None:
    pipeline.execute(*ROWS)
    shuffled(pipeline)
    pipeline.prepare()
    pipeline.told.after(4, lambda: pipeline.execute(*REWRITES[rewrite]))
    pipeline.run()
    assert "changed under the snapshot" in pipeline.told.text()
    assert pipeline.copied("public.t") == pipeline.source("public.t")
    pipeline.assert_equal("public.other")
    asked = pipeline.requests()
    assert set(asked) == {"public.t"}, "it has to be read again behind the stream"
    head = pipeline.head()
    assert head is not None
    assert asked["public.t"].after_lsn >= head.last_cut_lsn


@pytest.mark.slow
@pytest.mark.parametrize("rewrite", ["vacuum full", "cluster"])
def test_h71_rewritten_with_writers_about(pipeline: Pipeline, rewrite: str) -> None:
    statements = {"vacuum full": ("vacuum full hot",), "cluster": ("cluster hot using hot_pkey",)}
    pipeline.execute(*SCHEMA)
    pipeline.prepare()
    with writing(pipeline.dsn, seed=11):
        for call in (3, 6, 9):
            pipeline.told.after(call, lambda: pipeline.execute(*statements[rewrite]))
        pipeline.run()
    assert "changed under the snapshot" in pipeline.told.text()
    pipeline.assert_equal(*TABLES)


@pytest.mark.slow
def test_h71_rewritten_between_the_slot_and_the_next_run(pipeline: Pipeline, spawn: Spawn) -> None:
    pipeline.execute(*ROWS)
    shuffled(pipeline)
    pipeline.prepare()
    crashed = spawn("cdc", "--config", pipeline.config(), "snapshot", env={"CDC_CRASH_AT": "slot_recorded"})
    assert crashed.wait(60) == 137, crashed.stderr
    pipeline.execute("alter table t alter v type int using v * 2")
    pipeline.run()
    assert "public.t was rewritten or truncated" in pipeline.told.text()
    assert pipeline.copied("public.t") == pipeline.source("public.t")
    assert set(pipeline.requests()) == {"public.t"}


@pytest.mark.slow
def test_h71_rewritten_after_it_was_read(pipeline: Pipeline) -> None:
    """No row moves from under a chunk, but events from before would bring old values back."""
    pipeline.execute(*ROWS)
    pipeline.prepare()

    def rewrite(share: Callable[[], float]) -> Callable[[], None]:
        def act() -> None:
            if share() == 1.0:
                pipeline.execute("alter table t alter v type int using v * 2")
            else:
                pipeline.told.after(0, act)

        return act

    pipeline.told.after(0, rewrite(lambda: pipeline.told.shares.get("public.t", 0)))
    pipeline.run()
    assert "changed under the snapshot" not in pipeline.told.text()
    assert pipeline.copied("public.t") == pipeline.source("public.t"), "read again at the end"
    assert set(pipeline.requests()) == {"public.t"}, "and again behind the stream"


@pytest.mark.slow
def test_truncated_between_two_chunks(pipeline: Pipeline) -> None:
    pipeline.execute(*ROWS)
    pipeline.prepare()
    pipeline.told.after(
        4, lambda: pipeline.execute("truncate t", "insert into t select g, 0, 'n' from generate_series(1, 7) g")
    )
    pipeline.run()
    assert len(pipeline.source("public.t")) == 7
    pipeline.assert_equal("public.t", "public.other")


@pytest.mark.slow
def test_columns_added_and_dropped_meanwhile(pipeline: Pipeline) -> None:
    pipeline.execute(*ROWS)
    pipeline.prepare()
    first = pipeline.schema("public.t")
    pipeline.told.after(
        4, lambda: pipeline.execute("alter table t drop column pad", "alter table t add column later int default 5")
    )
    pipeline.run()
    copied = pipeline.copied("public.t")
    assert copied == pipeline.source("public.t")
    assert all(set(row) == {"id", "v", "later"} for row in copied.values())
    assert pipeline.schema("public.t").version > first.version
    assert set(pipeline.requests()) == {"public.t"}


@pytest.mark.slow
def test_h86_partitions_come_and_go_meanwhile(pipeline: Pipeline) -> None:
    pipeline.execute(
        "create table p (id int primary key, pad text) partition by range (id)",
        "create table p1 partition of p for values from (0) to (2000)",
        "create table p2 partition of p for values from (2000) to (4000)",
        "create table p3 (id int primary key, pad text)",
        "insert into p select g, repeat('x', 100) from generate_series(1, 3999) g",
        "insert into p3 select g, repeat('x', 100) from generate_series(4000, 4999) g",
    )
    pipeline.document["source"]["tables"] = ["public.p"]
    pipeline.prepare()
    pipeline.told.after(
        3,
        lambda: pipeline.execute(
            "alter table p attach partition p3 for values from (4000) to (5000)", "alter table p detach partition p2"
        ),
    )
    pipeline.run()
    source, copied = pipeline.source("public.p"), pipeline.copied("public.p")
    assert len(source) == 2999
    assert all(copied.get(key) == row for key, row in source.items()), (
        "the attached partition's rows are there; nothing would stream them"
    )
    assert set(pipeline.requests()) == {"public.p"}, "what was read of the detached one needs a sweep"


@pytest.mark.slow
@pytest.mark.parametrize("killed", [True, False])
def test_h86_a_partition_is_renamed_meanwhile(pipeline: Pipeline, killed: bool) -> None:
    pipeline.execute(
        "create table p (id int primary key, pad text) partition by range (id)",
        "create table p1 partition of p for values from (0) to (2500)",
        "create table p2 partition of p for values from (2500) to (9000)",
        "insert into p select g, repeat('x', 100) from generate_series(1, 5000) g",
    )
    pipeline.prepare()

    def rename() -> None:
        pipeline.execute("alter table p1 rename to p1_old")
        if killed:
            raise KeyboardInterrupt

    pipeline.told.after(1, rename)
    if killed:
        with pytest.raises(KeyboardInterrupt):
            pipeline.run()
    pipeline.run()
    assert "has renamed partitions now" in pipeline.told.text()
    pipeline.assert_equal("public.p")


@pytest.mark.slow
def test_a_table_dropped_meanwhile_is_named(pipeline: Pipeline) -> None:
    pipeline.execute(*ROWS)
    pipeline.prepare()
    pipeline.told.after(3, lambda: pipeline.execute("drop table t"))
    pipeline.run()
    assert "public.t is not captured any more" in pipeline.told.text()
    pipeline.assert_equal("public.other")


@pytest.mark.slow
def test_a_table_that_grows_while_it_is_read(pipeline: Pipeline) -> None:
    pipeline.execute(*ROWS)
    pipeline.prepare()
    pipeline.told.after(
        2, lambda: pipeline.execute("insert into t select g, g, repeat('y', 300) from generate_series(5001, 20000) g")
    )
    pipeline.run()
    assert len(pipeline.copied("public.t")) == 5000
    pipeline.assert_equal("public.t", "public.other")


@pytest.mark.slow
def test_h73_a_table_added_to_a_resumed_snapshot_waits(pipeline: Pipeline) -> None:
    pipeline.execute(*ROWS)
    pipeline.document["source"]["tables"] = ["public.t", "public.other"]
    pipeline.prepare()

    def interrupt() -> None:
        raise KeyboardInterrupt

    pipeline.told.after(3, interrupt)
    with pytest.raises(KeyboardInterrupt):
        pipeline.run()
    publication = pipeline.settings.publication
    pipeline.execute(
        "create table late (id int primary key)",
        "insert into late values (1)",
        f"alter publication {publication} add table late",
    )
    pipeline.document["source"]["tables"] += ["public.late"]
    pipeline.run()
    assert pipeline.requests()["public.late"].reason == "public.late came after the slot"
    pipeline.assert_equal("public.t", "public.other")
