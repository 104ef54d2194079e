"""Every refusal is a sentence, a hint and an exit code; nothing is skipped and nothing acknowledged."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType  # type: ignore[attr-defined]

from cdc.process.errors import ConfigError, Exit
from cdc.record.state import SlotState
from cdc.wiring import open_state
from cdc.wiring.pipeline import prepare_pipeline
from connectors.kafka.admin import TopicAdmin
from connectors.postgres.server.connections import writer_lock
from tests.integration.capture.pipeline import Pipeline, refused
from tests.waiting import wait_until

TABLE = "create table t (id int primary key, v text)"


def test_capture_before_init(pipeline: Pipeline) -> None:
    refused(pipeline.start(), Exit.TOPIC, "does not exist", "cdc init")


@pytest.mark.slow
def test_waits_for_the_snapshot_and_says_so(pipeline: Pipeline) -> None:
    pipeline.prepare(TABLE)
    state = open_state(pipeline.settings)
    complete = next(value for key, value in state.read().items() if key == b'{"what":"snapshot"}')
    state.write([(b'{"what":"snapshot"}', complete.replace(b'"complete"', b'"running"'))])
    run = pipeline.start()
    wait_until(lambda: pipeline.said(run, "waiting_for_snapshot"), 30, lambda: run.stderr)
    pipeline.execute("insert into t values (1, 'a')")
    assert pipeline.count("t") == 0
    state.write([(b'{"what":"snapshot"}', complete)])
    pipeline.settle()
    assert pipeline.shorts("t") == ['c {"id":1}']
    assert run.terminate() == 0


@pytest.mark.slow
def test_h5_h6_another_server_behind_the_dsn(pipeline: Pipeline) -> None:
    pipeline.prepare(TABLE)
    known, state = pipeline.slot_state(), open_state(pipeline.settings)
    for changed in (
        replace(known, system_identifier="1"),
        replace(known, timeline=known.timeline + 1),
        replace(known, database_oid=1),
    ):
        state.write([(changed.key(), changed.to_json())])
        refused(pipeline.start(), Exit.IDENTITY, "the pipeline was made on")


@pytest.mark.slow
def test_h5_slot_dropped_and_h4_made_anew(pipeline: Pipeline) -> None:
    pipeline.prepare(TABLE)
    with pipeline.capturing():
        pipeline.execute("insert into t values (1, 'a')")
        pipeline.settle()
    pipeline.one("select pg_drop_replication_slot(%s)", pipeline.slot)
    refused(pipeline.start(), Exit.SLOT, "does not exist any more")
    pipeline.execute("insert into t values (2, 'lost')")
    pipeline.one("select pg_create_logical_replication_slot(%s, 'pgoutput')", pipeline.slot)
    refused(pipeline.start(), Exit.SLOT, "beyond", "made anew")
    assert pipeline.count("t") == 1


@pytest.mark.slow
def test_h4_h81_slot_advanced_behind_our_back(pipeline: Pipeline) -> None:
    pipeline.prepare(TABLE)
    pipeline.execute("insert into t values (1, 'skipped')")
    pipeline.one("select pg_replication_slot_advance(%s, pg_current_wal_lsn())", pipeline.slot)
    refused(pipeline.start(), Exit.SLOT, "was advanced")


@pytest.mark.slow
def test_h53_slot_given_up_by_the_server(pipeline: Pipeline) -> None:
    pipeline.prepare(TABLE)
    pipeline.execute("alter system set max_slot_wal_keep_size = '1MB'", "select pg_reload_conf()")
    try:
        for _ in range(3):
            pipeline.execute("insert into t select g, 'x' from generate_series(1, 1000) g", "delete from t")
            pipeline.execute("select pg_switch_wal()", "checkpoint")
        wait_until(
            lambda: (
                pipeline.one("select wal_status from pg_replication_slots where slot_name = %s", pipeline.slot)
                == "lost"
            ),
            30,
        )
        refused(pipeline.start(), Exit.SLOT, "gave up the slot")
    finally:
        pipeline.execute("alter system reset max_slot_wal_keep_size", "select pg_reload_conf()")


@pytest.mark.slow
def test_h52_publication_gone_or_made_too_late(pipeline: Pipeline) -> None:
    pipeline.prepare(TABLE)
    publication = pipeline.settings.publication
    pipeline.execute(f"drop publication {publication}", "insert into t values (1, 'unseen')")
    refused(pipeline.start(), Exit.SLOT, f"the publication {publication} is gone")
    pipeline.execute(f"create publication {publication} for table t with (publish_via_partition_root = true)")
    refused(pipeline.start(), Exit.SLOT, "publication")
    assert pipeline.confirmed() <= pipeline.slot_state().consistent_point


@pytest.mark.slow
def test_h52_publication_dropped_while_streaming(pipeline: Pipeline) -> None:
    pipeline.prepare(TABLE)
    run = pipeline.stream()
    pipeline.execute(f"drop publication {pipeline.settings.publication}", "insert into t values (1, 'unseen')")
    refused(run, Exit.SLOT, "publication")


@pytest.mark.slow
def test_h14_h15_second_capture_is_refused(pipeline: Pipeline) -> None:
    pipeline.prepare(TABLE)
    first = pipeline.stream()
    refused(pipeline.start(), Exit.ACTIVE, "another capture", "cdc capture")
    pipeline.execute("insert into t values (1, 'a')")
    assert first.process.poll() is None
    assert first.terminate() == 0


@pytest.mark.slow
def test_h14_slot_in_use_names_the_process(pipeline: Pipeline) -> None:
    pipeline.prepare(TABLE)
    reader = pipeline.document | {"name": f"{pipeline.name}x"}
    other = Pipeline(
        pipeline.dsn, {**reader, "source": {**reader["source"], "slot": pipeline.slot}}, pipeline.folder, pipeline.spawn
    )
    with pipeline.capturing():
        pid = pipeline.one("select active_pid from pg_replication_slots where slot_name = %s", pipeline.slot)
        run = other.spawn("cdc", "--config", other.config(), "drop", "--yes")
        refused(run, Exit.ACTIVE, str(pid))


@pytest.mark.slow
def test_h58_row_larger_than_the_broker_takes(pipeline: Pipeline) -> None:
    pipeline.document["log"] |= {"max_message_bytes": 200_000, "oversized": "stop"}
    pipeline.prepare(TABLE)
    secret = "hunter2" * 40_000
    run = pipeline.stream()
    with pipeline.session() as session:
        session.execute("insert into t values (1, 'small'), (2, %s), (3, 'after')", [secret])
    text = refused(run, Exit.POISON, "public.t", "sha256:", "max_message_bytes")
    assert "hunter2" not in text
    assert "hunter2" not in run.stderr
    assert [r for r in pipeline.shorts("t") if '"id":2' in r] == []
    pipeline.document["log"]["max_message_bytes"] = 2_000_000
    alter_topic(pipeline, "max.message.bytes", "2000000")
    with pipeline.capturing():
        pipeline.settle()
    pipeline.assert_equal("t")


@pytest.mark.slow
def test_h57_h70_h62_record_refused_by_the_broker_alone(pipeline: Pipeline) -> None:
    """The topic's limit is lowered behind our back: what was refused is written later, not lost behind others."""
    pipeline.document["log"]["compression"] = "none"
    pipeline.prepare(TABLE)
    run = pipeline.stream()
    pipeline.execute("insert into t select g, 'warm' from generate_series(1, 50) g")
    pipeline.settle()
    alter_topic(pipeline, "max.message.bytes", "20000")
    large = itertools.count(1000)

    def ended() -> bool:
        """A broker that has not heard of the limit yet takes some of them."""
        pipeline.execute(
            f"insert into t values ({next(large)}, repeat('x', 50000))",
            f"insert into t select g, 'y' from generate_series({next(large)}, {next(large)}) g",
        )
        return run.process.poll() is not None

    wait_until(ended, 60)
    refused(run, Exit.POISON, "public.t")
    alter_topic(pipeline, "max.message.bytes", "1048576")
    with pipeline.capturing():
        pipeline.settle()
    pipeline.assert_equal("t")


@pytest.mark.slow
def test_h61_h89_more_partitions_move_no_key(pipeline: Pipeline) -> None:
    pipeline.prepare(TABLE)
    with pipeline.capturing():
        pipeline.execute("insert into t select g, 'a' from generate_series(1, 50) g")
        pipeline.settle()
        from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]  # noqa: PLC0415

        admin = TopicAdmin(pipeline.settings.log)
        for future in admin._client.create_partitions([NewPartitions(pipeline.topic("t"), 7)]).values():
            future.result()
        pipeline.execute("update t set v = 'b'")
        pipeline.settle()
    with pipeline.capturing():
        pipeline.execute("update t set v = 'c'")
        pipeline.settle()
    pipeline.assert_equal("t")
    assert {record.partition for record in pipeline.records("t")} == {0, 1, 2}


@pytest.mark.slow
def test_h62_topic_deleted_and_made_anew(pipeline: Pipeline) -> None:
    pipeline.prepare(TABLE)
    admin = TopicAdmin(pipeline.settings.log)
    admin.delete([pipeline.topic("t")])
    wait_until(lambda: not admin.describe([pipeline.topic("t")]), 60)
    refused(pipeline.start(), Exit.TOPIC, "does not exist any more")


@pytest.mark.slow
def test_h62_a_topic_that_is_not_compacted_any_more(pipeline: Pipeline) -> None:
    """Deleting by age loses rows that nobody changes: noticed before anything is written."""
    pipeline.prepare(TABLE)
    alter_topic(pipeline, "cleanup.policy", "delete")
    text = refused(pipeline.start(), Exit.TOPIC, "cleanup.policy=delete", "must be compact")
    assert "kafka-configs --alter" in text
    alter_topic(pipeline, "cleanup.policy", "compact")
    with pipeline.capturing():
        pipeline.execute("insert into t values (1, 'a')")
        pipeline.settle()
    pipeline.assert_equal("t")


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        "alter table t drop constraint t_pkey, add primary key (id, v)",
        "alter table t rename column id to ident",
        "alter table t alter column id type text",
        "alter table t replica identity full; alter table t drop constraint t_pkey, add primary key (v)",
    ],
)
def test_h51_a_key_changed_by_ddl_is_noticed(pipeline: Pipeline, change: str) -> None:
    """The rows in the log would stay under their former keys for ever."""
    pipeline.document["history"] = {"tables": ["public.t"]}
    pipeline.prepare("create table t (id int primary key, v text not null)", "alter table t replica identity full")
    run = pipeline.stream()
    pipeline.execute("insert into t values (1, 'a')")
    pipeline.settle()
    pipeline.execute(*change.split("; "), "insert into t values ('2', 'b')")
    refused(run, Exit.CONFIG, "the key of public.t was (id integer)", "out of [history] tables")
    assert pipeline.shorts("t") == ['c {"id":1}']
    with pytest.raises(ConfigError, match=r"the key of public[.]t was"):
        prepare_pipeline(pipeline.settings)


@pytest.mark.slow
def test_unreachable_servers(pipeline: Pipeline) -> None:
    pipeline.prepare(TABLE)
    document = pipeline.document
    pipeline.document = {**document, "log": {**document["log"], "bootstrap_servers": "127.0.0.1:1"}}
    refused(pipeline.start(), Exit.UNAVAILABLE, "127.0.0.1:1")
    pipeline.document = {**document, "source": {**document["source"], "dsn": "host=127.0.0.1 port=1 dbname=x user=y"}}
    refused(pipeline.start(), Exit.UNAVAILABLE, "cannot connect to Postgres")


@pytest.mark.slow
def test_wrong_password_and_taken_port(pipeline: Pipeline) -> None:
    pipeline.prepare(TABLE)
    source: dict[str, Any] = pipeline.document["source"]
    pipeline.document = {**pipeline.document, "source": {**source, "password": "env:WRONG"}}
    text = refused(pipeline.start(WRONG="canary-secret"), Exit.CONFIG, "refuses the login")
    assert "canary-secret" not in text
    pipeline.document = {**pipeline.document, "source": source, "capture": {"http_address": "127.0.0.1:1x"}}
    refused(pipeline.start(), Exit.CONFIG, "http_address")


def alter_topic(pipeline: Pipeline, option: str, value: str, topic: str = "") -> None:
    """Of the topic of ``t`` unless another is named."""
    entry = ConfigEntry(option, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic or pipeline.topic("t"), incremental_configs=[entry])
    admin = TopicAdmin(pipeline.settings.log)
    for future in admin._client.incremental_alter_configs([resource]).values():
        future.result()


@pytest.mark.slow
def test_h228_notes_from_while_the_lock_was_waited_for_count(pipeline: Pipeline) -> None:
    """As where another capture went on with a promoted server meanwhile, and died."""
    pipeline.prepare(TABLE)
    state = open_state(pipeline.settings)
    slot = SlotState.find(state.read())
    assert slot is not None
    with pipeline.session() as holder:
        holder.execute("select pg_advisory_lock_shared(%s, %s)", writer_lock(pipeline.settings.name))
        run = pipeline.start()
        wait_until(lambda: pipeline.said(run, "waiting_for_lock"), 30, lambda: run.stderr)
        other = replace(slot, system_identifier="4711")
        state.write([(other.key(), other.to_json())])
    refused(run, Exit.IDENTITY)
