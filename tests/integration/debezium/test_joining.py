"""H257: a table that joins has its rows asked for where no former task takes the signal, and no kill forgets it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cdc.errors import ConfigError, TopicError
from cdc.topic_specs import TopicSpec
from connectors.connect.connector import Connector
from connectors.debezium.connector_config import signal_topic
from connectors.debezium.connector_status import STOPPED
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted import read_range
from tests.integration.debezium.between import Between, between
from tests.integration.debezium.conftest import Pipeline
from tests.integration.debezium.test_topics import rows
from tests.waiting import wait_until


@pytest.fixture
def passed(connect: str) -> Iterator[Between]:
    with between(connect) as here:
        yield here


def taking(pipeline: Pipeline, *tables: str, url: str | None = None) -> Connector:
    pipeline.document["source"]["tables"] = [f"public.{table}" for table in tables]
    return pipeline.connector(**({} if url is None else {"url": url}))


@pytest.fixture
def following(pipeline: Pipeline) -> Pipeline:
    """A connector that has read ``a``, and rows in ``b``, which it does not know."""
    pipeline.run("insert into a values (1)", "insert into b values (1), (2)")
    assert taking(pipeline, "a").deploy().added == ()
    pipeline.arrived("public.a", 1)
    return pipeline


def read(pipeline: Pipeline) -> None:
    """Wait until all rows of ``b`` are in its topic."""

    def all_there() -> bool:
        # An incremental snapshot goes on with the log.
        pipeline.run("update b set v = 'w' where id = 1")
        assert rows(pipeline, f"{pipeline.document['name']}.public.b") == {("b", 1), ("b", 2)}
        return True

    wait_until(all_there, 90, "b was read")


def test_h257_the_signal_waits_for_the_next_task(following: Pipeline, passed: Between) -> None:
    done = taking(following, "a", "b", url=passed.url).deploy()
    assert (done.action, done.added) == ("updated", ("public.b",))
    settings = following.settings()
    (signal,) = read_range(settings.log, signal_topic(settings), 0)
    assert done.signal.encode() in (signal.value() or b"")
    sent_ms = signal.timestamp()[1]
    assert passed.first("/stop") <= sent_ms <= passed.first("/config") <= passed.first("/resume")
    read(following)


def test_h257_a_deploy_killed_before_the_start_is_heard(following: Pipeline, passed: Between) -> None:
    """The next one finds nothing that joined: configuration and notes say that the table is known."""
    passed.refused.add("/resume")
    with pytest.raises(ConfigError, match="refused by a test"):
        taking(following, "a", "b", url=passed.url).deploy()
    connector = taking(following, "a", "b")
    assert connector.condition().state == STOPPED
    done = connector.deploy()
    assert (done.action, done.added, done.status.runs) == ("unchanged", (), True)
    read(following)


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


def test_h257_a_connector_made_again_reads_what_joined(following: Pipeline) -> None:
    """Its offsets outlive one that is removed by hand, so that it takes no first snapshot."""
    connector = taking(following, "a")
    connector.stop()
    assert connector.offsets()
    connector.client.delete(connector.name)
    done = taking(following, "a", "b").deploy()
    assert (done.action, done.added) == ("created", ("public.b",))
    read(following)
