"""H257: the rows of a table that joins are asked for in the offsets of a connector that stands still."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cdc.capture.topic_specs import TopicSpec
from cdc.process.clock import SYSTEM_CLOCK, Clock, SystemClock
from cdc.process.errors import ConfigError, TopicError
from connectors.debezium.client import ConnectError
from connectors.debezium.connector import Connector
from connectors.debezium.offsets import reads_incrementally
from connectors.debezium.status import STOPPED
from connectors.kafka.admin import TopicAdmin
from tests.integration.debezium.between import Between, between
from tests.integration.debezium.conftest import Pipeline
from tests.integration.debezium.following import restless
from tests.integration.debezium.test_topics import rows
from tests.programs import RunCdc
from tests.waiting import wait_until


@pytest.fixture
def passed(connect: str) -> Iterator[Between]:
    with between(connect) as here:
        yield here


class HastyClock(SystemClock):
    """Every look finds that an hour has gone, so that nothing is waited for."""

    def __init__(self) -> None:
        self._looks = 0

    def monotonic(self) -> float:
        self._looks += 1
        return 3600.0 * self._looks


class EndedClock(SystemClock):
    """Somebody presses Ctrl-C in the first wait."""

    def sleep(self, seconds: float) -> None:
        raise KeyboardInterrupt


def taking(pipeline: Pipeline, *tables: str, clock: Clock = SYSTEM_CLOCK, **debezium: Any) -> Connector:
    pipeline.document["source"]["tables"] = [f"public.{table}" for table in tables]
    return Connector(pipeline.settings(**debezium), clock=clock)


@pytest.fixture
def following(pipeline: Pipeline) -> Pipeline:
    """A connector that has read ``a``, and rows in ``b``, which it does not know."""
    pipeline.run("insert into a values (1)", "insert into b values (1), (2)")
    assert taking(pipeline, "a").deploy().added == ()
    pipeline.arrived("public.a", 1)
    return pipeline


def read(pipeline: Pipeline, *ids: int) -> None:
    """Wait until these rows of ``b`` are in its topic, and those of the fixture."""

    def all_there() -> bool:
        # An incremental snapshot goes on with the log.
        pipeline.run("update b set v = 'w' where id = 1")
        assert rows(pipeline, f"{pipeline.document['name']}.public.b") == {("b", one) for one in (1, 2, *ids)}
        return True

    wait_until(all_there, 60, "b was read")


@pytest.mark.slow
def test_h257_the_request_waits_for_the_next_task(following: Pipeline, passed: Between) -> None:
    done = taking(following, "a", "b", url=passed.url).deploy()
    assert (done.action, done.added, bool(done.snapshot)) == ("updated", ("public.b",), True)
    assert passed.first("/stop") <= passed.first("/offsets") <= passed.first("/config") <= passed.first("/resume")
    read(following)
    assert taking(following, "a", "b").unread() == []


@pytest.mark.slow
def test_h257_tables_join_while_the_database_is_written(following: Pipeline, database: str) -> None:
    """Asked by a signal, one task of five ended: Debezium reads then in two threads, into one window."""
    following.run("create function v() returns text language sql as $$ select repeat('v', 20) $$")
    tables = ["a"]
    with restless(database):
        for joining in ("c", "d", "e"):
            following.run(
                f"create table {joining} (id int primary key, v text)",
                f"insert into {joining} select i, v() from generate_series(1, 5000) i",
            )
            tables.append(joining)
            assert taking(following, *tables).deploy().added == (f"public.{joining}",)
            following.arrived(f"public.{joining}", 5000, 60)
    assert taking(following, *tables).condition().runs
    for joining in tables[1:]:
        assert {key["id"] for key, _ in following.records(f"public.{joining}")} == {*range(1, 5001)}


@pytest.mark.slow
def test_h257_a_refused_deploy_lets_capture_go_on(following: Pipeline) -> None:
    settings = following.settings()
    topic, admin = f"{settings.name}.public.b", TopicAdmin(settings.log)
    spec = TopicSpec(topic=topic, partitions=2, replication_factor=1, config={"cleanup.policy": "delete"})
    admin.create([spec])
    with pytest.raises(TopicError, match=topic):
        taking(following, "a", "b").deploy()
    following.run("insert into a values (2)")
    following.arrived("public.a", 2)
    admin.delete([topic])
    wait_until(lambda: topic not in admin.names(), 20, "the topic is gone")
    assert taking(following, "a", "b").deploy().added == ("public.b",)
    read(following)


@pytest.mark.slow
def test_h257_a_killed_deploy_and_a_removed_connector(following: Pipeline, passed: Between) -> None:
    """The next deploy finds nothing that joined: configuration and notes say that the table is known."""
    passed.refused.add("/resume")
    with pytest.raises(ConfigError, match="refused by a test") as left:
        taking(following, "a", "b", url=passed.url).deploy()
    assert left.value.hint.startswith("the connector is left stopped: cdc connect resume; ")
    connector = taking(following, "a", "b")
    wait_until(lambda: connector.condition().state == STOPPED, 20, "it is left stopped")
    done = connector.deploy()
    assert (done.action, done.added, done.status.runs) == ("unchanged", (), True)
    read(following)
    back_behind_a_removed_connector(following)


def back_behind_a_removed_connector(following: Pipeline) -> None:
    """The notes know the table, and nobody knows what the connector that is gone had passed over."""
    connector = taking(following, "a")
    connector.deploy()
    following.run("insert into b values (3)", "insert into a values (3)")
    following.arrived("public.a", 2)
    connector.stop()
    connector.client.delete(connector.name)
    assert taking(following, "a", "b").deploy().added == ("public.a", "public.b")
    read(following, 3)


@pytest.mark.slow
def test_a_table_that_cannot_be_read_fails_the_connector(following: Pipeline, passed: Between) -> None:
    """Whether its rows are wanted is not the connector's to say: it goes on with them, or without the table."""
    passed.refused.add("/resume")
    with pytest.raises(ConfigError):
        taking(following, "a", "b", url=passed.url).deploy()
    role = following.role
    following.run(
        f'alter role "{role}" nosuperuser replication',
        f'alter table b owner to "{role}"',
        f'revoke select on b from "{role}"',
        f'grant select on a to "{role}"',
    )
    connector = taking(following, "a", "b")
    with pytest.raises(ConnectError) as failed:
        connector.resume()
    assert failed.value.hint.endswith("cdc connect signal stop TABLE lets the connector go on meanwhile")
    connector.snapshot_control("stop", ["public.b"])
    assert not reads_incrementally(connector.offsets())
    following.run("insert into a values (2)")
    following.arrived("public.a", 2, 60)
    assert next(message for message, _ in connector.unread()).startswith("the rows of public.b were asked for ")

    following.run(f'grant select on b to "{role}"')
    assert taking(following, "a", "b").deploy().added == ("public.b",)
    read(following)


@pytest.mark.slow
def test_h260_a_table_without_its_rows_is_asked_for_again(
    following: Pipeline, passed: Between, run_cdc: RunCdc, tmp_path: Path
) -> None:
    """Somebody gave the connector its offsets of before."""
    taking(following, "a").stop()
    stored = taking(following, "a").offsets()
    passed.refused.add("/resume")
    with pytest.raises(ConfigError):
        taking(following, "a", "b", url=passed.url).deploy()
    connector = taking(following, "a", "b")
    assert reads_incrementally(connector.offsets())
    connector.client.put_offsets(connector.name, stored)
    connector.resume()
    following.run("insert into a values (2)")
    following.arrived("public.a", 2, 60)
    [(message, _)] = connector.unread()
    assert message.startswith("the rows of public.b were asked for ")
    shown = run_cdc("--config", following.toml(tmp_path), "connect", "status")
    assert message.split(" asked for ")[0] in shown.stdout
    assert message.split(" asked for ")[0] in run_cdc("--config", tmp_path / "cdc.toml", "check").stdout

    again = taking(following, "a", "b").deploy()
    assert (again.action, again.added) == ("unchanged", ("public.b",))
    read(following)
    assert connector.unread() == []


@pytest.mark.slow
def test_h260_an_empty_table_is_not_waited_for(following: Pipeline) -> None:
    """Neither when it gets its first row, which is streamed, nor when it is gone."""
    following.run("delete from b", "create table c (id int primary key)", "insert into c values (1)")
    connector = taking(following, "a", "b")
    assert connector.deploy().added == ("public.b",)
    following.run("insert into b values (7)")
    following.arrived("public.b", 1)
    assert connector.unread() == []

    every = taking(following, "*")
    assert every.deploy().added == ("public.c",)
    following.run("drop table c")
    assert every.unread() == []


@pytest.mark.slow
def test_h261_an_older_transaction_is_waited_for_again(following: Pipeline, database: str) -> None:
    """The publication has the table when the next deploy looks, and the server sends no change of that transaction."""
    with psycopg.connect(database) as open_one:
        open_one.execute("insert into b values (5, 'unseen')")
        with pytest.raises(KeyboardInterrupt):
            taking(following, "a", "b", clock=EndedClock()).deploy()
        done = taking(following, "a", "b", deploy_timeout="6s").deploy()
        assert (done.added, done.snapshot) == (("public.b",), "")
        [(message, _)] = taking(following, "a", "b").unread()
        assert message == "the rows that public.b had when it joined are not asked for yet"
    assert taking(following, "a", "b").deploy().snapshot
    read(following, 5)


@pytest.mark.slow
def test_h261_rows_that_do_not_show_yet_are_not_forgotten(following: Pipeline, database: str) -> None:
    """The table looks empty while they are not committed, and another table that joins has the notes written anew."""
    following.run("delete from b", "create table c (id int primary key)")
    with psycopg.connect(database) as open_one:
        open_one.execute("insert into b values (5)")
        for tables in (("a", "b"), ("a", "b", "c")):
            assert taking(following, *tables, deploy_timeout="6s").deploy().snapshot == ""
        asked = [message for message, _ in taking(following, "a", "b", "c").unread()]
        assert any(message.startswith("the rows that public.b had") for message in asked)
    assert "public.b" in taking(following, "a", "b", "c").deploy().added

    def all_there() -> bool:
        following.run("update b set v = 'w' where id = 5")
        return rows(following, f"{following.document['name']}.public.b") == {("b", 5)}

    wait_until(all_there, 60, "b was read")


@pytest.mark.slow
def test_a_key_that_debezium_cannot_compare_is_read_in_one(following: Pipeline) -> None:
    """Asked for, it would fail the connector at each start."""
    following.run(
        "create table c (id int, at timestamptz, primary key (id, at))",
        "insert into c select i, '2026-01-01'::timestamptz + i * interval '1 second' from generate_series(1, 200) i",
    )
    following.run('create table "o dd" (id int primary key)', 'insert into "o dd" values (1)')
    connector = taking(following, "a", "b", "c", "o dd")
    done = connector.deploy()
    assert (done.added, bool(done.snapshot)) == (("public.b", "public.c", "public.o dd"), True)
    assert list(done.unread) == ["public.o dd", "public.c"]
    assert "does not read back a name with a blank" in done.unread["public.o dd"]
    assert "compares no key of type timestamp with time zone" in done.unread["public.c"]
    assert 'cdc connect signal snapshot "public.c" --blocking' in done.unread["public.c"]
    with pytest.raises(ConfigError, match=r"cannot read public\.c in parts"):
        connector.snapshot(["public.c"])
    read(following)
    assert [message for message, _ in connector.unread()] == [
        f"the rows that public.{table} had when it joined are not asked for yet" for table in ("c", "o dd")
    ]
    connector.snapshot(["public.c", "public.o dd"], blocking=True)
    connector.deploy()  # which does not take back that they were asked for
    following.arrived("public.c", 200, 60)
    following.arrived("public.o_dd", 1, 60)
    assert connector.unread() == []


@pytest.mark.slow
def test_h262_a_stop_that_takes_too_long_is_taken_back(following: Pipeline) -> None:
    with pytest.raises(ConnectError, match="did not stop in"):
        taking(following, "a", "b", clock=HastyClock()).deploy()
    following.run("insert into a values (2)")
    following.arrived("public.a", 2, 60)


@pytest.mark.slow
def test_h257_a_signal_table_holds_what_a_reading_notes(following: Pipeline) -> None:
    """The request comes by the topic, and the rows without a next transaction of the database."""
    following.run("create table signals (id varchar(42) primary key, type varchar(32), data varchar(2048))")
    taking(following, "a", signal_table="public.signals").deploy()
    done = taking(following, "a", "b", signal_table="public.signals").deploy()
    assert (done.added, bool(done.snapshot)) == (("public.b",), True)
    wait_until(
        lambda: rows(following, f"{following.document['name']}.public.b") == {("b", 1), ("b", 2)}, 90, "b was read"
    )
