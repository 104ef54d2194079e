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
