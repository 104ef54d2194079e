"""The one way back from lost changes: a new epoch, and stores that equal the source after it (H5, H6, H23)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from cdc.capture.topic_specs import table_topic_spec
from cdc.process.crash_points import CRASH_EXIT
from cdc.process.errors import ConfigError, Exit, UsageError
from cdc.record.progress import EpochsState
from cdc.record.state import SlotIntent
from cdc.record.topic_names import view_topic, views_topic
from cdc.views.known_views import KnownView
from cdc.wiring import open_state
from cdc.wiring.pipeline import build_snapshot
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted_topic import KafkaCompactedTopic
from snapshot.source.ports import NoReport
from tests.integration.capture.follower import Follower, assert_stores_equal
from tests.integration.capture.pipeline import Pipeline, refused
from tests.waiting import wait_until

TABLES = (
    "create table t (id int primary key, v text)",
    "create table u (id int primary key, v text)",
    "insert into t select g, 'first' from generate_series(1, 40) g",
    "insert into u select g, 'first' from generate_series(1, 40) g",
)
BEFORE = (
    "update t set v = 'streamed' where id <= 20",
    "delete from u where id = 1",
    "insert into u values (99, 'new')",
)
GAP = (
    "delete from t where id between 10 and 30",
    "update t set v = 'gap' where id = 1",
    "insert into t values (100, 'gap')",
    "truncate u",
    "insert into u values (5, 'gap')",
)
AFTER = ("update t set v = 'after' where id = 100", "insert into t values (15, 'again')", "delete from u where id = 5")


def begun(pipeline: Pipeline, *more: str) -> Follower:
    """A pipeline that was snapshotted and streamed, and a store that followed it."""
    pipeline.prepare_with_rows(*TABLES, *more)
    with pipeline.capturing():
        pipeline.execute(*BEFORE)
        pipeline.settle()
    live = Follower(pipeline)
    assert_stores_equal(pipeline, live, "t", "u")
    return live


def dropped(pipeline: Pipeline) -> None:
    pipeline.one("select pg_drop_replication_slot(%s)", pipeline.slot)


def made_anew(pipeline: Pipeline) -> None:
    dropped(pipeline)
    pipeline.execute("delete from t where id = 31")
    pipeline.one("select pg_create_logical_replication_slot(%s, 'pgoutput')", pipeline.slot)


def advanced(pipeline: Pipeline) -> None:
    pipeline.execute("delete from t where id = 31")
    pipeline.one("select pg_replication_slot_advance(%s, pg_current_wal_lsn())", pipeline.slot)


def unpublished(pipeline: Pipeline) -> None:
    pipeline.execute(f"drop publication {pipeline.settings.publication}", "delete from t where id = 31")


def another_server(pipeline: Pipeline) -> None:
    """As if the dsn led to a server restored from a backup, where LSNs start over and the slot is not."""
    known = replace(pipeline.slot_state(), system_identifier="7", consistent_point=1 << 60)
    open_state(pipeline.settings).write([(known.key(), known.to_json())])
    dropped(pipeline)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lose", "code"),
    [
        (dropped, Exit.SLOT),
        (made_anew, Exit.SLOT),
        (advanced, Exit.SLOT),
        (unpublished, Exit.SLOT),
        (another_server, Exit.IDENTITY),
    ],
)
def test_h5_h6_h23_after_a_new_epoch_the_stores_equal_the_source(
    pipeline: Pipeline, lose: Callable[[Pipeline], None], code: Exit
) -> None:
    live = begun(pipeline)
    lose(pipeline)
    pipeline.execute(*GAP)
    refused(pipeline.start(), code, timeout_s=10)
    pipeline.new_epoch()
    build_snapshot(pipeline.settings, NoReport(), workers=2).run()
    live.follow()
    with pipeline.capturing():
        pipeline.execute(*AFTER)
        pipeline.settle()
    assert pipeline.slot_state().epoch == 2
    assert_stores_equal(pipeline, live, "t", "u")
    found = pipeline.progress()
    assert found is not None
    assert found.epoch == 2


@pytest.mark.slow
def test_h51_a_changed_key_is_carried_by_a_new_epoch(pipeline: Pipeline) -> None:
    # Any other table would be set aside alone.
    pipeline.document["history"] = {"tables": ["public.t"]}
    live = begun(pipeline, "alter table t replica identity full")
    with pipeline.session() as session:
        session.execute("alter table t drop constraint t_pkey, add column w int not null default 0")
        session.execute("alter table t add primary key (w, id)")
        session.execute("insert into t values (500, 'b', 7)")
    refused(pipeline.start(), Exit.CONFIG, "the key of public.t was (id integer)")
    pipeline.new_epoch()
    build_snapshot(pipeline.settings, NoReport(), workers=1).run()
    with pipeline.capturing():
        pipeline.execute("update t set v = 'x' where id = 500", "delete from t where id = 2")
        pipeline.settle()
    assert_stores_equal(pipeline, live, "t", "u")


@pytest.mark.slow
def test_h23_killed_at_every_step_the_new_epoch_begins(pipeline: Pipeline) -> None:
    live = begun(pipeline)
    dropped(pipeline)
    pipeline.execute(*GAP)
    config = pipeline.config()
    for point in ("epoch_slot_dropped", "epoch_noted"):
        crashed = pipeline.spawn("cdc", "--config", config, "init", "--new-epoch", "--yes", env={"CDC_CRASH_AT": point})
        assert crashed.wait(60) == CRASH_EXIT, crashed.stderr
    # Noted and not finished: neither a capture nor a snapshot may take the former epoch's slot for this one's.
    refused(pipeline.start(), Exit.CONFIG, "was begun and not finished")
    with pytest.raises(ConfigError, match="was begun and not finished"):
        build_snapshot(pipeline.settings, NoReport()).run()
    pipeline.new_epoch()
    for point in ("slot_made", "chunk_recorded", "sweep_marked"):
        crashed = pipeline.spawn("cdc", "--config", config, "snapshot", env={"CDC_CRASH_AT": point})
        assert crashed.wait(60) == CRASH_EXIT, crashed.stderr
        live.follow()
        pipeline.execute("delete from t where id in (select min(id) from t)")
    build_snapshot(pipeline.settings, NoReport()).run()
    with pipeline.capturing():
        pipeline.execute(*AFTER)
        pipeline.settle()
    assert_stores_equal(pipeline, live, "t", "u")


@pytest.mark.slow
def test_a_new_epoch_needs_a_stopped_capture_and_the_slots_name(pipeline: Pipeline) -> None:
    pipeline.prepare("create table t (id int primary key, v text)")
    init = ("cdc", "--config", pipeline.config(), "init", "--new-epoch")
    with pipeline.capturing():
        refused(pipeline.spawn(*init, "--yes"), Exit.ACTIVE, "is being written", "cdc capture", timeout_s=20)
    assert pipeline.spawn(*init).wait(20) != 0, "nobody typed the slot's name"
    assert pipeline.slot_state().epoch == 1
    assert pipeline.one("select count(*) from pg_replication_slots where slot_name = %s", pipeline.slot) == 1


@pytest.mark.slow
def test_a_new_epoch_leaves_the_slot_of_another_pipeline_alone(pipeline: Pipeline) -> None:
    """Of the same name, on a server that this pipeline was not made on."""
    pipeline.prepare("create table t (id int primary key, v text)")
    known = replace(pipeline.slot_state(), system_identifier="7")
    intent = SlotIntent.find(pipeline.state())
    assert intent is not None
    elsewhere = replace(intent, system_identifier="7")
    open_state(pipeline.settings).write([(known.key(), known.to_json()), (elsewhere.key(), elsewhere.to_json())])
    run = pipeline.spawn("cdc", "--config", pipeline.config(), "init", "--new-epoch", "--yes")
    refused(run, Exit.SLOT, "did not make it on this server", "pg_drop_replication_slot", timeout_s=20)
    wait_until(lambda: pipeline.one("select count(*) from pg_replication_slots where slot_name = %s", pipeline.slot), 5)
    assert pipeline.slot_state() == known


@pytest.mark.slow
def test_a_new_epoch_cannot_begin_without_its_rows(pipeline: Pipeline) -> None:
    pipeline.prepare("create table t (id int primary key, v text)")
    pipeline.new_epoch()
    with pytest.raises(UsageError, match="cannot begin without its rows"):
        build_snapshot(pipeline.settings, NoReport()).run(rows=False)


@pytest.mark.slow
def test_h229_a_new_epoch_is_noted_for_the_topics_of_views(pipeline: Pipeline) -> None:
    """Behind a Kafka that was put back a store may be further in a view's topic than that reached: it goes back."""
    pipeline.prepare("create table t (id int primary key)")
    settings = pipeline.settings
    topic, gone = view_topic(settings.name, "v", 1), view_topic(settings.name, "w", 1)
    admin = TopicAdmin(settings.log)
    admin.create([table_topic_spec(settings.log, topic), table_topic_spec(settings.log, views_topic(settings.name))])
    partitions = admin.describe([topic])[topic].partitions
    views = KafkaCompactedTopic(settings.log, views_topic(settings.name))
    for name, one in (("v", topic), ("w", gone)):
        known = KnownView(view=name, generation=1, topic=one, topic_id="", partitions=partitions, digest="", shape="{}")
        views.write([(known.key, known.to_json())])
    assert pipeline.new_epoch() == 2
    epochs = EpochsState.find(open_state(settings).read())
    assert epochs is not None
    starts = epochs.behind(1)
    assert starts[topic] == dict.fromkeys(range(partitions), 0)
    assert gone not in starts
