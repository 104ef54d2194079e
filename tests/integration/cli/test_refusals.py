"""Bad input and trouble: each refusal is one sentence, a hint and a documented exit code, never a traceback."""

from __future__ import annotations

import socket
from subprocess import CompletedProcess

import psycopg
import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # re-exported without saying so

from cdc.process.errors import Exit
from cdc.stack.local import free_ports
from tests.integration.cli.conftest import OwnPostgres
from tests.integration.cli.pipeline import Pipeline, act_as, assert_refused
from tests.programs import Spawn
from tests.waiting import wait_until

EVERY = ("check", "init", "snapshot", "run")
BESIDE = ("snapshot", "status", "check")
"""Of those that need the log. The others are tried in test_away.py."""


@pytest.mark.parametrize("command", EVERY)
def test_postgres_that_does_not_answer(pipeline: Pipeline, no_server: str, command: str) -> None:
    pipeline.document["source"]["dsn"] = f"host=127.0.0.1 port={no_server} dbname=shop user=cdc"
    done = pipeline.cdc(command)
    assert_refused(done, Exit.UNAVAILABLE, f"127.0.0.1:{no_server}", "[source] dsn")


@pytest.mark.parametrize("command", BESIDE)
def test_kafka_that_does_not_answer(pipeline: Pipeline, no_server: str, command: str) -> None:
    pipeline.document["log"]["bootstrap_servers"] = f"127.0.0.1:{no_server}"
    pipeline.document["sinks"] = {"warehouse": {"kind": "delta", "path": "warehouse"}}
    done = pipeline.cdc(command)
    assert_refused(done, Exit.UNAVAILABLE, f"cannot reach Kafka at 127.0.0.1:{no_server}", "bootstrap_servers")


@pytest.mark.parametrize(
    ("sink", "product"),
    [
        ({"kind": "redis", "url": "redis://127.0.0.1:{port}/0"}, "Redis"),
        ({"kind": "opensearch", "url": "http://127.0.0.1:{port}"}, "OpenSearch"),
        ({"kind": "sql", "url": "postgresql+psycopg://cdc@127.0.0.1:{port}/x"}, "the database"),
    ],
)
def test_a_store_that_does_not_answer(pipeline: Pipeline, no_server: str, sink: dict[str, str], product: str) -> None:
    pipeline.document["sinks"] = {"store": {**sink, "url": sink["url"].format(port=no_server)}}
    done = pipeline.cdc("check")
    assert_refused(done, Exit.UNAVAILABLE, f"store: cannot reach {product}", no_server)


@pytest.mark.slow
def test_a_wrong_password(role: str, pipeline: Pipeline, spawn: Spawn) -> None:
    """All at once: a refused login is tried for a quarter of a minute."""
    act_as(pipeline, role)
    words, env = ("cdc", "--config", pipeline.config), {"SECRET": "canary-of-refusals"}
    for program in [spawn(*words, command, env=env) for command in EVERY]:
        code = program.wait(90)
        done = CompletedProcess(program.process.args, code, program.stdout, program.stderr)
        assert_refused(done, Exit.CONFIG, "refuses the login", "[source] password is env:SECRET: check what it holds")
        assert "canary" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://cdc:s3canary@[::1/shop",
        "postgresql://cdc:s3%zzcanary@127.0.0.1/shop",
        "host=127.0.0.1 s3canary",
        "host=127.0.0.1 pass=s3canary",
    ],
)
def test_a_dsn_that_cannot_be_parsed_is_not_quoted(pipeline: Pipeline, dsn: str) -> None:
    pipeline.document["source"]["dsn"] = dsn
    for command in ("check", "init"):
        done = pipeline.cdc(command)
        assert_refused(done, Exit.CONFIG, "[source] dsn is not a libpq connection string", "[source] password")
        assert "canary" not in done.stdout + done.stderr


def test_an_unknown_setting(pipeline: Pipeline) -> None:
    pipeline.document["log"]["partitons"] = 3
    for command in ("config lint", "check", "run"):
        assert_refused(pipeline.cdc(*command.split()), Exit.CONFIG, "log.partitons", 'did you mean "partitions"?')


@pytest.mark.slow
def test_an_unknown_sink(pipeline: Pipeline) -> None:
    pipeline.document["sinks"] = {"cache": {"kind": "redis", "url": "redis://127.0.0.1"}}
    for command in ("verify cahce", "wait cahce 0/1", "sink cahce"):
        assert_refused(pipeline.cdc(*command.split()), Exit.USAGE, "cahce", "cache")


@pytest.mark.slow
def test_h29_h73_capture_reads_a_table_that_comes_after_the_slot(pipeline: Pipeline) -> None:
    pipeline.good("init")
    pipeline.good("snapshot", "--workers", "1")
    pipeline.sql("create table late (id int primary key)", "insert into late values (1)")
    pipeline.document["source"]["tables"] = ["public.*"]
    made = pipeline.cdc("init")
    assert made.returncode == 0, made.stderr
    assert "public.late came after the slot: cdc run reads its rows" in made.stderr
    assert "public.late, waiting" in pipeline.cdc("status").stdout


@pytest.mark.slow
def test_what_the_hints_call_beginning_anew_does_begin_anew(pipeline: Pipeline) -> None:
    """Without ``--topics`` the state stays, and ``cdc init`` misses the slot."""
    pipeline.good("init")
    pipeline.good("snapshot", "--workers", "1")
    pipeline.good("drop", "--yes")
    assert_refused(pipeline.cdc("init"), Exit.SLOT, "is gone")
    for said in ("deleted", "has none"):
        done = pipeline.cdc("drop", "--yes", "--topics")
        assert done.returncode == 0, done.stderr
        assert "topics: " in done.stderr
        assert said in done.stderr
    pipeline.good("init")
    pipeline.good("snapshot", "--workers", "1")


@pytest.mark.parametrize("command", ["check", "init"])
def test_a_table_that_is_missing(pipeline: Pipeline, command: str) -> None:
    pipeline.document["source"]["tables"] = ["public.order"]
    done = pipeline.cdc(command)
    assert_refused(done, Exit.CONFIG, "public.order", 'did you mean "public.orders"?')


@pytest.mark.parametrize("command", ["check", "init"])
def test_h42_a_table_without_a_key(pipeline: Pipeline, command: str) -> None:
    pipeline.sql("create table history (n int)")
    pipeline.document["source"]["tables"] = ["public.*"]
    done = pipeline.cdc(command)
    assert_refused(done, Exit.CONFIG, "public.history has no key", 'alter table "public"."history"')


@pytest.mark.parametrize("command", ["check", "init"])
def test_h42_a_deferrable_key_needs_full(pipeline: Pipeline, command: str) -> None:
    pipeline.sql("create table shifted (id int primary key deferrable)")
    pipeline.document["source"]["tables"] = ["public.*"]
    done = pipeline.cdc(command)
    assert_refused(done, Exit.CONFIG, "public.shifted", 'alter table "public"."shifted" replica identity full;')


def test_a_table_that_may_not_be_read(role: str, pipeline: Pipeline) -> None:
    act_as(pipeline, role, "alter role {role} replication")
    done = pipeline.cdc("check", SECRET="secret")
    assert_refused(done, Exit.CONFIG, "may not read public.orders", 'grant select on "public"."orders" to')


def test_a_role_that_may_not_replicate(role: str, pipeline: Pipeline) -> None:
    act_as(pipeline, role, "grant select on orders to {role}")
    done = pipeline.cdc("check", SECRET="secret")
    assert_refused(done, Exit.CONFIG, "refuses a replication session", f'alter role "{role}" replication;')


def test_a_role_that_may_not_make_the_publication(role: str, pipeline: Pipeline) -> None:
    owner = pipeline.dsn
    act_as(pipeline, role, "alter role {role} replication", "grant select on orders to {role}")
    done = pipeline.cdc("check", SECRET="secret")
    name = f"cdc_{pipeline.document['name']}"
    assert_refused(done, Exit.CONFIG, f"cannot make the publication {name}: it may not create in the database", "owner")
    assert "does not own public.orders" in done.stderr
    (statement,) = [part for part in done.stderr.split("run: ")[1:]]
    with psycopg.connect(owner, autocommit=True) as connection:
        connection.execute(statement.strip())
    done = pipeline.cdc("check", SECRET="secret")
    assert done.returncode == 0, done.stdout + done.stderr


def test_h27_a_table_whose_rows_are_hidden(role: str, pipeline: Pipeline) -> None:
    rights = ("alter role {role} replication", "grant select on orders to {role}")
    act_as(pipeline, role, *rights, "alter table orders enable row level security")
    done = pipeline.cdc("check", SECRET="secret")
    assert_refused(done, Exit.CONFIG, "row security hides rows of public.orders", f'alter role "{role}" bypassrls;')


def make_topic(pipeline: Pipeline, partitions: int, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": pipeline.document["log"]["bootstrap_servers"]})
    name = f"{pipeline.document['name']}.public.orders"
    topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config)
    for made in admin.create_topics([topic]).values():
        made.result()


@pytest.mark.parametrize("command", ["check", "init"])
def test_h62_a_topic_with_the_wrong_policy(pipeline: Pipeline, command: str) -> None:
    make_topic(pipeline, 2, **{"cleanup.policy": "delete"})
    done = pipeline.cdc(command)
    assert_refused(done, Exit.TOPIC, "cleanup.policy=delete, which must be compact", "kafka-configs --alter")


@pytest.mark.parametrize("command", ["check", "init"])
def test_h61_a_topic_with_another_partition_count(pipeline: Pipeline, command: str) -> None:
    make_topic(pipeline, 7, **{"cleanup.policy": "compact"})
    done = pipeline.cdc(command)
    assert_refused(done, Exit.TOPIC, "has 7 partitions, wanted are 2", "[log] partitions = 7")


@pytest.mark.slow
def test_h5_a_slot_of_the_name_that_is_somebody_elses(pipeline: Pipeline) -> None:
    slot = f"cdc_{pipeline.document['name']}"
    pipeline.sql(f"select pg_create_logical_replication_slot('{slot}', 'pgoutput')")
    for command in ("check", "init"):
        assert_refused(pipeline.cdc(command), Exit.SLOT, slot, "pg_drop_replication_slot")


@pytest.mark.slow
def test_h14_a_slot_that_somebody_reads(pipeline: Pipeline, spawn: Spawn) -> None:
    pipeline.begin()
    first = spawn("cdc", "--config", pipeline.config, "run")
    slot = f"cdc_{pipeline.document['name']}"

    def held() -> bool:
        with psycopg.connect(pipeline.dsn) as connection:
            query = "select active from pg_replication_slots where slot_name = %s"
            row = connection.execute(query, [slot]).fetchone()
        return row is not None and bool(row[0])

    wait_until(held, 30, describe=lambda: first.stderr)
    second = spawn("cdc", "--config", pipeline.config, "run")
    wait_until(lambda: second.process.poll() is not None or "wait" in second.stderr, 30, describe=lambda: second.stderr)
    assert "Traceback" not in second.stderr
    if second.process.poll() is not None:
        assert second.process.returncode == Exit.ACTIVE
    assert first.process.poll() is None


@pytest.mark.slow
def test_h135_a_second_capture_at_the_address_of_the_first(pipeline: Pipeline, spawn: Spawn) -> None:
    address = f"127.0.0.1:{free_ports()['connect']}"
    pipeline.document["capture"]["http_address"] = address
    pipeline.good("init")
    first = spawn("cdc", "--config", pipeline.config, "run")
    wait_until(lambda: _listens(address) or first.process.poll() is not None, 60, describe=lambda: first.stderr)
    done = pipeline.cdc("run")
    assert_refused(done, Exit.ACTIVE, f"{pipeline.document['name']} runs already", address, "stop the other one")
    assert first.process.poll() is None


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as line:
        return line.connect_ex((host, int(port))) == 0


@pytest.mark.slow
def test_a_checkpoint_folder_that_cannot_be_written(pipeline: Pipeline, redis_url: str) -> None:
    pipeline.document["spark"] |= {"checkpoint": "/proc/checkpoints", "http_address": ""}
    pipeline.document["sinks"] = {"cache": {"kind": "redis", "url": redis_url}}
    pipeline.good("init")
    assert_refused(pipeline.cdc("sink"), Exit.CONFIG, "/proc/checkpoints cannot be written", "[spark] checkpoint")


@pytest.mark.slow
def test_commands_out_of_order(pipeline: Pipeline) -> None:
    pipeline.document["sinks"] = {"warehouse": {"kind": "delta", "path": str(pipeline.folder / "warehouse")}}
    assert_refused(pipeline.cdc("events"), Exit.TOPIC, "cdc init")
    assert_refused(pipeline.cdc("status"), Exit.TOPIC, "cdc init")
    assert_refused(pipeline.cdc("verify"), Exit.TOPIC, "cdc init")
    pipeline.good("init")
    assert_refused(pipeline.cdc("verify"), Exit.CONFIG, "nothing to compare yet", "cdc snapshot")
    assert_refused(pipeline.cdc("events", "nothing"), Exit.USAGE, "no table nothing is captured", "public.orders")


@pytest.mark.slow
def test_h6_another_system_behind_the_same_address(pipeline: Pipeline, own_postgres: OwnPostgres) -> None:
    own_postgres.start()
    shared, pipeline.document["source"]["dsn"] = pipeline.dsn, own_postgres.dsn
    pipeline.sql("create table orders (id int primary key, status text)")
    pipeline.begin()
    pipeline.document["source"]["dsn"] = shared
    for command in ("check", "run"):
        done = pipeline.cdc(command)
        assert_refused(done, Exit.IDENTITY, "system identifier", "[source] dsn")


@pytest.mark.slow
def test_h54_a_server_that_is_not_prepared(pipeline: Pipeline, own_postgres: OwnPostgres) -> None:
    own_postgres.start(wal_level="replica")
    pipeline.document["source"]["dsn"] = own_postgres.dsn
    pipeline.sql("create table orders (id int primary key, status text)")
    for command in ("check", "init"):
        assert_refused(pipeline.cdc(command), Exit.CONFIG, "wal_level is replica", "set wal_level = 'logical'")
    own_postgres.start(max_replication_slots="2")
    pipeline.good("init")
    pipeline.sql("select pg_create_logical_replication_slot('other', 'pgoutput')")
    done = pipeline.cdc("check")
    assert_refused(done, Exit.CONFIG, "1 of 2 replication slots are taken", "max_replication_slots = 4")
    done = pipeline.cdc("snapshot")
    assert_refused(done, Exit.CONFIG, "max_replication_slots")
