"""The fixtures give every test a fresh corner of real servers."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
import redis
import requests
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.conftest import Stack
from tests.fresh import new_database
from tests.processes import ProcessStack
from tests.programs import RunCdc, Spawn
from tests.waiting import wait_until


def test_a_database_is_empty_and_can_decode(database: str) -> None:
    with psycopg.connect(database) as connection:
        tables = connection.execute("select count(*) from pg_tables where schemaname = 'public'").fetchone()
        wal_level = connection.execute("show wal_level").fetchone()
        version = connection.info.server_version
    assert tables == (0,)
    assert wal_level == ("logical",)
    assert version >= 180000


def test_slots_and_prepared_transactions_go_with_their_database(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table t (id int primary key)")
        connection.execute("select pg_create_logical_replication_slot(current_database() || '_s', 'pgoutput')")
        connection.execute("begin; insert into t values (1); prepare transaction 'left over'")
        slots = connection.execute("select count(*) from pg_replication_slots where database = current_database()")
        assert slots.fetchone() == (1,)


LEFT = [
    "create table t (id int primary key, v text); create view w as select * from t; insert into t values (1)",
    "create type mood as enum ('a'); create domain d as int; create type pair as (a int, b mood)",
    "create function f() returns int language sql return 1; create procedure p() language sql begin atomic; end",
    "create table part (id int) partition by range (id); create publication all_of_it for all tables",
    "create schema other; create table other.t (id serial); create sequence s; create materialized view m as select 1",
]


@pytest.mark.parametrize("left", LEFT)
def test_a_database_is_handed_on_with_nothing_in_it(postgres: str, left: str) -> None:
    with new_database(postgres) as dsn, psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(left)
    with new_database(postgres) as again, psycopg.connect(again) as connection:
        assert again == dsn
        found = connection.execute("select oid::regclass::text from pg_class where oid >= 16384").fetchall()
        found += connection.execute("select typname from pg_type where oid >= 16384").fetchall()
        found += connection.execute("select proname from pg_proc where oid >= 16384").fetchall()
        found += connection.execute("select pubname from pg_publication").fetchall()
        found += connection.execute("select nspname from pg_namespace where oid >= 16384").fetchall()
    assert [name for (name,) in found if not name.startswith(("pg_temp", "pg_toast_temp"))] == []


@pytest.mark.parametrize(
    "changed",
    [
        "revoke create on schema public from pg_database_owner",
        "revoke execute on function pg_current_wal_lsn() from public",
        "do $$ begin execute format('alter database %I set work_mem = 1024', current_database()); end $$",
        "do $$ begin execute format('revoke connect on database %I from public', current_database()); end $$",
        'create collation mine from "C"',
        "alter default privileges grant select on tables to public",
    ],
)
def test_a_database_that_is_not_as_new_is_dropped(postgres: str, changed: str) -> None:
    with new_database(postgres) as dsn, psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(changed)
    with new_database(postgres) as another:
        assert another != dsn


def test_topics_are_never_made_by_themselves(kafka: str, topic_prefix: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.list_topics(f"{topic_prefix}.made.by.asking", timeout=10)
    admin.create_topics([NewTopic(f"{topic_prefix}.made", 3, 1)])[f"{topic_prefix}.made"].result()
    found = wait_until(
        lambda: {name: topic for name, topic in admin.list_topics(timeout=10).topics.items() if topic_prefix in name}
    )
    assert {name: len(topic.partitions) for name, topic in found.items()} == {f"{topic_prefix}.made": 3}


def test_a_cache_database_is_empty(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        assert client.dbsize() == 0
        client.set("left", "over")


def test_the_search_server_takes_versioned_documents(opensearch: str, index_prefix: str) -> None:
    where = f"{opensearch}/{index_prefix}-a/_doc/1?version_type=external_gte&version="
    answers = [requests.put(where + version, json={"n": 1}, timeout=30).status_code for version in ("5", "5", "4")]
    assert answers == [201, 200, 409]


def test_the_search_server_has_the_settings_of_its_part(opensearch: str, stack: Stack) -> None:
    answer = requests.get(f"{opensearch}/_cluster/settings?include_defaults&flat_settings", timeout=30).json()
    assert answer["defaults"]["cluster.routing.allocation.disk.threshold_enabled"] == "false"
    if isinstance(stack, ProcessStack):
        nodes = requests.get(f"{opensearch}/_nodes/transport", timeout=30).json()["nodes"]
        addresses = [address for node in nodes.values() for address in node["transport"]["bound_address"]]
        assert addresses == [f"127.0.0.1:{stack.status()['ports']['opensearch_transport']}"]


def test_a_part_that_stands_still_goes_on(redis_url: str, stack: Stack) -> None:
    with redis.Redis.from_url(redis_url, socket_timeout=0.2) as client:
        client.set("held", "here")
        with stack.paused("redis"), pytest.raises(redis.TimeoutError):
            client.get("held")
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        assert client.get("held") == "here"


def test_a_spawned_program_writes_to_files(spawn: Spawn) -> None:
    program = spawn("python", "-c", "import os, sys; print(os.environ['X']); sys.exit(3)", env={"X": "seen"})
    assert program.wait() == 3
    assert program.stdout == "seen\n"


def test_a_command_runs_to_its_end(run_cdc: RunCdc, tmp_path: Path) -> None:
    done = run_cdc("--version", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "headrace 0.1.0\n")
