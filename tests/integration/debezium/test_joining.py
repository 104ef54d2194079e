"""H257: a table that joins has its rows asked for where no former task takes the signal, and no kill forgets it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition

from cdc.capture.topic_specs import TopicSpec
from cdc.process.clock import SYSTEM_CLOCK, Clock, SystemClock
from cdc.process.errors import ConfigError, TopicError
from connectors.debezium.client import ConnectError
from connectors.debezium.config import signal_topic
from connectors.debezium.connector import Connector
from connectors.debezium.status import STOPPED
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted_topic import read_range
from tests.integration.debezium.asked_again import LaterClock, read_or_told
from tests.integration.debezium.between import Between, between
from tests.integration.debezium.conftest import Pipeline
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

    read_or_told(pipeline, "b", all_there)


@pytest.mark.slow
def test_h257_the_signal_waits_for_the_next_task(following: Pipeline, passed: Between) -> None:
    done = taking(following, "a", "b", url=passed.url).deploy()
    assert (done.action, done.added) == ("updated", ("public.b",))
    settings = following.settings()
    (signal,) = read_range(settings.log, signal_topic(settings), 0)
    assert done.signal.encode() in (signal.value() or b"")
    sent_ms = signal.timestamp()[1]
    assert passed.first("/stop") <= sent_ms <= passed.first("/config") <= passed.first("/resume")
    read(following)
    assert taking(following, "a", "b").unread() == []


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
def test_h260_a_forgotten_request_is_told_and_asked_again(
    following: Pipeline, passed: Between, kafka: str, run_cdc: RunCdc, tmp_path: Path
) -> None:
    """A task that ends before its offset is stored has taken the signal, and the next one knows nothing of it."""
    passed.refused.add("/resume")
    with pytest.raises(ConfigError):
        taking(following, "a", "b", url=passed.url).deploy()
    settings = following.settings()
    taken = Consumer({"bootstrap.servers": kafka, "group.id": f"{settings.name}-signals"})
    taken.commit(offsets=[TopicPartition(signal_topic(settings), 0, 1)], asynchronous=False)
    taken.close()

    connector = taking(following, "a", "b")
    assert connector.deploy().added == ()
    following.run("insert into a values (2)")
    following.arrived("public.a", 2)
    [(message, _)] = connector.unread()
    assert message.startswith("the rows of public.b were asked for ")
    shown = run_cdc("--config", following.toml(tmp_path), "connect", "status")
    assert message.split(" asked for ")[0] in shown.stdout
    assert message.split(" asked for ")[0] in run_cdc("--config", tmp_path / "cdc.toml", "check").stdout

    again = taking(following, "a", "b", clock=LaterClock()).deploy()
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
        assert (done.added, done.signal) == (("public.b",), "")
        [(message, _)] = taking(following, "a", "b").unread()
        assert message == "the rows that public.b had when it joined are not asked for yet"
    assert taking(following, "a", "b").deploy().signal
    read(following, 5)


@pytest.mark.slow
def test_h261_rows_that_do_not_show_yet_are_not_forgotten(following: Pipeline, database: str) -> None:
    """The table looks empty while they are not committed, and another table that joins has the notes written anew."""
    following.run("delete from b", "create table c (id int primary key)")
    with psycopg.connect(database) as open_one:
        open_one.execute("insert into b values (5)")
        for tables in (("a", "b"), ("a", "b", "c")):
            assert taking(following, *tables, deploy_timeout="6s").deploy().signal == ""
        asked = [message for message, _ in taking(following, "a", "b", "c").unread()]
        assert any(message.startswith("the rows that public.b had") for message in asked)
    assert "public.b" in taking(following, "a", "b", "c").deploy().added

    def all_there() -> bool:
        following.run("update b set v = 'w' where id = 5")
        return rows(following, f"{following.document['name']}.public.b") == {("b", 5)}

    read_or_told(following, "b", all_there)


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
    assert (done.added, bool(done.signal)) == (("public.b",), True)
    wait_until(
        lambda: rows(following, f"{following.document['name']}.public.b") == {("b", 1), ("b", 2)}, 90, "b was read"
    )
