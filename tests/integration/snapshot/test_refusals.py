"""What stops a snapshot: one sentence, a hint, an exit code; and what it leaves behind."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import psycopg
import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from psycopg.conninfo import make_conninfo

from cdc.process.errors import ActiveError, CdcError, ConfigError, Exit, PoisonError, SlotError, SourceError, TopicError
from cdc.wiring import open_state
from connectors.postgres.server.connections import writer_lock
from snapshot.first.slot_creation import making
from tests.integration.snapshot.pipeline import Pipeline
from tests.programs import RunCdc, Spawn
from tests.waiting import wait_until

THREE_ROWS = ("create table t (id int primary key, v text)", "insert into t select g, 'x' from generate_series(1, 3) g")


def refusal(pipeline: Pipeline) -> CdcError:
    with pytest.raises(CdcError) as caught:
        pipeline.run()
    assert caught.value.hint
    return caught.value


def slot_exists(pipeline: Pipeline) -> bool:
    found = pipeline.one("select count(*) from pg_replication_slots where slot_name = %s", pipeline.settings.slot)
    return bool(found)


def test_before_init_there_is_nothing_to_write_to(pipeline: Pipeline) -> None:
    pipeline.execute(*THREE_ROWS)
    error = refusal(pipeline)
    assert isinstance(error, TopicError | ConfigError)
    assert "cdc init" in error.hint
    assert not slot_exists(pipeline)


@pytest.mark.slow
def test_h52_without_the_publication_no_slot_is_made(pipeline: Pipeline) -> None:
    pipeline.execute(*THREE_ROWS)
    pipeline.prepare()
    pipeline.execute(f"drop publication {pipeline.settings.publication}")
    error = refusal(pipeline)
    assert isinstance(error, ConfigError)
    assert "publication" in error.message
    assert not slot_exists(pipeline)


@pytest.mark.slow
def test_a_table_outside_the_publication_is_refused(pipeline: Pipeline) -> None:
    pipeline.execute(*THREE_ROWS, "create table u (id int primary key)")
    pipeline.prepare()
    pipeline.execute(f"alter publication {pipeline.settings.publication} drop table u")
    error = refusal(pipeline)
    assert "public.u is not in the publication" in error.message
    assert not slot_exists(pipeline)


def test_a_table_that_came_after_init_has_no_topic(pipeline: Pipeline) -> None:
    pipeline.execute(*THREE_ROWS)
    pipeline.prepare()
    pipeline.execute(
        "create table u (id int primary key)", f"alter publication {pipeline.settings.publication} add table u"
    )
    assert "has not been made" in refusal(pipeline).message


def test_a_table_without_a_key_is_refused(pipeline: Pipeline) -> None:
    pipeline.execute(*THREE_ROWS)
    pipeline.prepare()
    pipeline.execute("alter table t drop constraint t_pkey")
    error = refusal(pipeline)
    assert "no key" in error.message


@pytest.mark.slow
def test_h61_a_topic_made_anew_is_refused(pipeline: Pipeline, kafka: str) -> None:
    pipeline.execute(*THREE_ROWS)
    pipeline.prepare()
    topic = f"{pipeline.name}.public.t"
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.delete_topics([topic])[topic].result()
    wait_until(lambda: topic not in admin.list_topics(timeout=5).topics, describe="the topic goes")
    error = refusal(pipeline)
    assert isinstance(error, TopicError)
    assert topic in error.message
    assert not slot_exists(pipeline)


def test_a_slot_of_somebody_else_is_not_touched(pipeline: Pipeline) -> None:
    pipeline.execute(*THREE_ROWS)
    pipeline.prepare()
    pipeline.one("select pg_create_logical_replication_slot(%s, 'pgoutput')::text", pipeline.settings.slot)
    error = refusal(pipeline)
    assert isinstance(error, SlotError)
    assert error.exit == Exit.SLOT
    assert "this pipeline did not make it" in error.message
    assert slot_exists(pipeline)


@pytest.mark.slow
def test_a_slot_that_was_made_again_behind_our_back_is_refused(pipeline: Pipeline) -> None:
    pipeline.execute(*THREE_ROWS)
    pipeline.prepare()
    half_way(pipeline)
    slot = pipeline.settings.slot
    pipeline.execute(
        f"select pg_drop_replication_slot('{slot}')",
        "insert into t values (99)",
        f"select pg_create_logical_replication_slot('{slot}', 'pgoutput')",
    )
    error = refusal(pipeline)
    assert isinstance(error, SlotError)
    assert error.exit == Exit.SLOT


@pytest.mark.slow
def test_a_slot_that_was_dropped_is_not_made_again(pipeline: Pipeline) -> None:
    pipeline.execute(*THREE_ROWS)
    pipeline.prepare()
    half_way(pipeline)
    pipeline.execute(f"select pg_drop_replication_slot('{pipeline.settings.slot}')")
    error = refusal(pipeline)
    assert isinstance(error, SlotError)
    assert not slot_exists(pipeline), "rows read under the old cut and deleted since would stay for ever"


@pytest.mark.slow
def test_h5_another_server_behind_the_same_address(pipeline: Pipeline) -> None:
    pipeline.execute(*THREE_ROWS)
    pipeline.prepare()
    half_way(pipeline)
    slot = orjson.loads(pipeline.slot().to_json())
    slot["system_identifier"] = "1"
    open_state(pipeline.settings).write([(pipeline.slot().key(), orjson.dumps(slot))])
    error = refusal(pipeline)
    assert error.exit == Exit.IDENTITY


def half_way(pipeline: Pipeline) -> None:
    """A snapshot that was interrupted after its slot was made."""

    def interrupt(_: object = None) -> None:
        raise KeyboardInterrupt

    pipeline.told.after(0, interrupt)
    with pytest.raises(KeyboardInterrupt):
        pipeline.run()
    assert slot_exists(pipeline)


@pytest.mark.slow
def test_h24_slot_creation_says_whom_it_waits_for_and_gives_up(pipeline: Pipeline) -> None:
    pipeline.execute(*THREE_ROWS)
    pipeline.prepare()
    pipeline.document["snapshot"]["lock_timeout"] = "1500ms"
    with psycopg.connect(pipeline.dsn, application_name="month end") as open_one:
        open_one.execute("insert into t values (10, 'open')")
        error = refusal(pipeline)
        pid = open_one.info.backend_pid
        assert isinstance(error, SourceError)
        assert f"pid {pid} (month end" in error.message
        assert f"pid {pid} (month end" in pipeline.told.text(), "said while it waits"
        assert not slot_exists(pipeline), "nothing half made is left"
    pipeline.run()
    pipeline.assert_equal("public.t")


@pytest.mark.slow
def test_h24_a_half_made_slot_of_a_killed_run_is_cleaned_up(pipeline: Pipeline, spawn: Spawn) -> None:
    pipeline.execute(*THREE_ROWS)
    pipeline.prepare()
    pipeline.document["snapshot"]["lock_timeout"] = "60s"
    config = pipeline.config()
    with psycopg.connect(pipeline.dsn) as open_one:
        open_one.execute("insert into t values (10, 'open')")
        killed = spawn("cdc", "--config", config, "snapshot")
        wait_until(lambda: "waits for older transactions" in killed.stderr, 30, lambda: killed.stderr)
        killed.kill()
        orphan = maker(pipeline)
        assert orphan is not None, "its walsender does not notice: it waits for a lock"
        again = spawn("cdc", "--config", config, "snapshot")
        wait_until(lambda: "waits for older transactions" in again.stderr, 30, lambda: again.stderr)
        assert "half made" in again.stderr
        assert maker(pipeline) != orphan
    assert again.wait() == 0, again.stderr
    pipeline.assert_equal("public.t")


def walsender(pipeline: Pipeline) -> int | None:
    found = pipeline.one("select active_pid from pg_replication_slots where slot_name = %s", pipeline.settings.slot)
    return int(found) if found is not None else None


def maker(pipeline: Pipeline) -> int | None:
    """The session that makes the slot."""
    name = making(pipeline.settings.slot)
    found = pipeline.one("select active_pid from pg_replication_slots where slot_name = %s", name)
    return int(found) if found is not None else None


def test_one_writer_at_a_time(pipeline: Pipeline, spawn: Spawn) -> None:
    pipeline.execute(*THREE_ROWS)
    pipeline.prepare()
    with capture_lock(pipeline) as pid:
        second = spawn("cdc", "--config", pipeline.config(), "snapshot")
        assert second.wait(60) == Exit.ACTIVE
        assert f"pid {pid}" in second.stderr
        assert "hint: " in second.stderr
        assert not slot_exists(pipeline)


@contextmanager
def capture_lock(pipeline: Pipeline) -> Iterator[int]:
    """Hold the lock as a running capture does."""
    with pipeline.session() as session:
        session.execute("select pg_advisory_lock(%s, %s)", writer_lock(pipeline.name))
        yield session.info.backend_pid


def test_h76_capture_cannot_begin_while_a_snapshot_runs(pipeline: Pipeline) -> None:
    pipeline.execute(
        "create table t (id int primary key, v text)",
        "insert into t select g, repeat('x', 100) from generate_series(1, 3000) g",
    )
    pipeline.prepare()
    tries: list[bool] = []
    kind, number = writer_lock(pipeline.name)
    pipeline.told.after(2, lambda: tries.append(pipeline.one("select pg_try_advisory_lock(%s, %s)", kind, number)))
    pipeline.run()
    assert tries == [False]
    assert pipeline.one("select pg_try_advisory_lock(%s, %s)", kind, number) is True


def test_a_second_snapshot_waits_for_nobody(pipeline: Pipeline) -> None:
    pipeline.execute(*THREE_ROWS)
    pipeline.prepare()
    refused: list[CdcError] = []

    def second() -> None:
        with pytest.raises(ActiveError) as caught:
            pipeline.run()
        refused.append(caught.value)

    pipeline.told.after(1, second)
    pipeline.run()
    assert "being written by another session" in refused[0].message


@contextmanager
def role(pipeline: Pipeline, *grants: str, options: str = "") -> Iterator[str]:
    """A new login role with replication; its name. The pipeline uses it meanwhile."""
    name = f"r{secrets.token_hex(4)}"
    password = secrets.token_hex(8)
    pipeline.execute(f"create role {name} login replication password '{password}' {options}")
    pipeline.execute(*(grant.replace("ROLE", name) for grant in grants))
    dsn = pipeline.document["source"]["dsn"]
    passfile = pipeline.folder / "pgpass"
    passfile.write_text(f"*:*:*:{name}:{password}\n")
    passfile.chmod(0o600)
    pipeline.document["source"]["dsn"] = make_conninfo(dsn, user=name, passfile=str(passfile))
    try:
        yield name
    finally:
        pipeline.document["source"]["dsn"] = dsn
        pipeline.execute(f"drop owned by {name}", f"drop role {name}")


def test_h27_row_security_is_an_error_and_never_fewer_rows(pipeline: Pipeline) -> None:
    pipeline.execute(*THREE_ROWS, "alter table t enable row level security", "create policy p on t using (id = 1)")
    pipeline.prepare()
    with role(pipeline, "grant select on t to ROLE", "grant usage on schema public to ROLE") as name:
        error = refusal(pipeline)
        assert "row security" in error.message
        assert "bypassrls" in error.hint
        assert not slot_exists(pipeline)
        pipeline.execute(f"alter role {name} bypassrls")
        assert pipeline.run().rows == 3


def test_h27_row_security_that_comes_meanwhile_is_an_error_too(pipeline: Pipeline) -> None:
    pipeline.execute(
        "create table t (id int primary key, v text)",
        "insert into t select g, repeat('x', 100) from generate_series(1, 5000) g",
    )
    pipeline.prepare()
    hide = ("alter table t enable row level security", "create policy p on t using (id = 1)")
    with role(pipeline, "grant select on t to ROLE", "grant usage on schema public to ROLE"):
        pipeline.told.after(2, lambda: pipeline.execute(*hide))
        error = refusal(pipeline)
    assert isinstance(error, ConfigError)
    assert "row security" in error.message
    pipeline.execute("alter table t disable row level security")
    pipeline.run()
    pipeline.assert_equal("public.t")


def test_h92_the_roles_timeouts_do_not_end_the_held_snapshot(pipeline: Pipeline) -> None:
    pipeline.execute(
        "create table t (id int primary key, v text)",
        "insert into t select g, repeat('x', 100) from generate_series(1, 3000) g",
    )
    pipeline.prepare()
    grants = (
        "grant select on t to ROLE",
        "grant usage on schema public to ROLE",
        "alter role ROLE set idle_in_transaction_session_timeout = '200ms'",
        "alter role ROLE set idle_session_timeout = '200ms'",
        "alter role ROLE set statement_timeout = '200ms'",
        "alter role ROLE set lock_timeout = '1ms'",
        "alter role ROLE set transaction_timeout = '200ms'",
    )
    with role(pipeline, *grants):
        pipeline.told.after(2, lambda: pipeline.one("select pg_sleep(1)::text"))
        pipeline.run()
    assert "is gone" not in pipeline.told.text()
    head = pipeline.head()
    assert head is not None
    assert head.last_cut_lsn == head.consistent_point, "it was one cut all along"
    pipeline.assert_equal("public.t")


def test_h58_an_oversized_row_stops_with_its_name_then_goes_on(pipeline: Pipeline, kafka: str) -> None:
    pipeline.execute(
        "create table t (id int primary key, v text)",
        "alter table t alter v set storage external",
        "insert into t select g, repeat('x', 100) from generate_series(1, 2000) g",
        # It does not compress, so that it is the broker that refuses it.
        "insert into t select 2001, string_agg(md5(g::text || random()), '') from generate_series(1, 6000) g",
    )
    pipeline.document["log"] |= {"max_message_bytes": "128kB", "oversized": "stop"}
    pipeline.prepare()
    error = refusal(pipeline)
    assert isinstance(error, PoisonError)
    assert error.exit == Exit.POISON
    assert f"{pipeline.name}.public.t" in error.message
    assert "2001" not in error.message, "the key itself is data"
    assert any(chunk.state != "done" for chunk in pipeline.chunks())
    pipeline.document["log"]["max_message_bytes"] = "1MB"
    raise_limit(kafka, f"{pipeline.name}.public.t", 1024**2)
    pipeline.run()
    pipeline.assert_equal("public.t")


def raise_limit(kafka: str, topic: str, limit: int) -> None:
    entry = ConfigEntry("max.message.bytes", str(limit), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.incremental_alter_configs([resource])[resource].result()


def test_the_command_talks_on_stderr_and_prints_data_on_stdout(pipeline: Pipeline, run_cdc: RunCdc) -> None:
    pipeline.execute(*THREE_ROWS)
    config = pipeline.config()
    early = run_cdc("--config", config, "snapshot")
    assert early.returncode in (Exit.CONFIG, Exit.TOPIC)
    assert early.stderr.startswith("error: ")
    assert "hint: cdc init" in early.stderr
    pipeline.prepare()
    done = run_cdc("--config", config, "snapshot", "--workers", "1", "--json")
    assert done.returncode == 0, done.stderr
    document = orjson.loads(done.stdout)
    assert document["rows"] == 3
    assert [table["table"] for table in document["tables"]] == ["public.t"]
    assert "public.t: 3 rows, done" in done.stderr
    again = run_cdc("--config", config, "snapshot")
    assert "complete" in again.stdout
    unknown = run_cdc("--config", config, "snapshot", "public.nothing")
    assert unknown.returncode == Exit.USAGE, unknown.stderr
    assert "hint: " in unknown.stderr


def test_the_manuals_commands_do_what_it_says(pipeline: Pipeline, run_cdc: RunCdc) -> None:
    manual = (Path(__file__).parents[3] / "snapshot" / "README.md").read_text(encoding="utf-8")
    # The second block asks a capture that runs: test_later.py has it.
    block, *_ = re.findall(r"```console\n(.*?)```", manual, re.DOTALL)
    commands = [line.removeprefix("$ cdc ") for line in block.splitlines()]
    assert commands
    pipeline.execute(*THREE_ROWS)
    config = pipeline.config()
    for command in commands:
        done = run_cdc("--config", config, *command.split())
        assert done.returncode == 0, done.stderr
    pipeline.assert_equal("public.t")
