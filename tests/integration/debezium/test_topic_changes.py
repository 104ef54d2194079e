"""A store and an eager view, both running, while a table's topic grows, is another one, or is made anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from cdc.errors import Exit
from cdc.topic_specs import table_topic_spec
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.clients import client_config
from tests.integration.debezium.conftest import Pipeline
from tests.integration.debezium.test_eager_views import Views
from tests.integration.debezium.test_resets import holds, spark_section
from tests.integration.debezium.test_topics import hold
from tests.programs import RunCdc, Spawn, Spawned
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


class Followed:
    """A pipeline with a cache and an eager view, both of which are kept."""

    def __init__(self, views: Views, redis_url: str, spawn: Spawn) -> None:
        self.views, self.pipeline, self.url = views, views.pipeline, redis_url
        self.name = views.pipeline.document["name"]
        self.spawn = spawn
        self.written()
        self.pipeline.run(
            "insert into a select i, 's' || i % 7, i from generate_series(1, 20) i",
            "insert into b select i, 'b' || i from generate_series(1, 20) i",
        )
        views.good("connect", "deploy")
        self.start()

    def start(self) -> None:
        self.runner = self.spawn("cdc", "--config", self.views.config, "view", "run")
        self.sink = self.spawn("cdc", "--config", self.views.config, "sink")

    def written(self) -> None:
        """The settings as the pipeline's document has them."""
        self.views.config = self.pipeline.toml(
            self.views.folder,
            views__named=self.views.section,
            sinks__cache={"kind": "redis", "url": self.url, "tables": ["public.*"]},
            spark=spark_section(self.views.folder),
        )

    def shows(self, ids: set[int]) -> None:
        """Wait until the cache has these rows of ``a``, and the view's documents are what the source says."""
        holds(self.sink, self.url, self.name, "public.a", ids)
        self.views.until_equal(self.runner)

    def stop(self) -> None:
        for program in (self.runner, self.sink):
            assert program.terminate() == 0, program.stderr


@pytest.fixture
def followed(pipeline: Pipeline, tmp_path: Path, run_cdc: RunCdc, redis_url: str, spawn: Spawn) -> Iterator[Followed]:
    yield Followed(Views(pipeline, tmp_path, run_cdc), redis_url, spawn)


def test_h212_partitions_that_are_added_are_read(followed: Followed) -> None:
    """Debezium's producer writes to all there are, so that most keys move to another one."""
    followed.shows(set(range(1, 21)))
    topic = f"{followed.name}.public.a"
    settings = followed.pipeline.settings().log
    client = AdminClient(client_config(settings))
    for done in client.create_partitions([NewPartitions(topic, 5)]).values():
        done.result()
    followed.pipeline.connector().restart(failed_only=False)
    followed.pipeline.run(
        "update a set v = 'more' where id <= 10",
        "delete from a where id > 15",
        "insert into a select i, 'new', i from generate_series(30, 40) i",
    )
    followed.shows({*range(1, 16), *range(30, 41)})
    ends = TopicAdmin(settings).end_offsets({topic: 5})[topic]
    assert sum(ends[partition] > 0 for partition in (2, 3, 4)) > 1
    assert "view_starts_again" in followed.runner.stderr
    assert orjson.loads(followed.views.good("verify", "--timeout", "60", "--json"))["differences"] == 0
    followed.stop()


def test_h213_a_running_view_follows_a_table_to_its_new_topic(followed: Followed) -> None:
    """The rows below the new epoch are swept, and those above it are where the view has not read before."""
    followed.shows(set(range(1, 21)))
    source = followed.pipeline.document["source"]
    source["topics"] = {"public.a": f"{followed.name}.y"}
    followed.written()
    followed.views.good("connect", "offsets", "--reset", "--yes")
    followed.pipeline.run("delete from a where id = 2")
    followed.views.good("connect", "deploy")
    followed.pipeline.run("insert into a values (77, 'new', 77)")
    ids = {1, *range(3, 21), 77}
    hold(followed.pipeline, {f"{followed.name}.y": {("a", key) for key in ids}})
    followed.shows(ids)
    followed.stop()


def anew(followed: Followed, topic: str) -> None:
    """Delete a topic and make it, as somebody by hand may do."""
    settings = followed.pipeline.settings().log
    admin = TopicAdmin(settings)
    client = AdminClient(client_config(settings))
    for done in client.delete_topics([topic]).values():
        done.result()
    wait_until(lambda: topic not in admin.names(), 30, "the topic is gone")
    wait_until(lambda: admin.create([table_topic_spec(settings, topic)]) or None, 30, "it is made anew")


def test_h213_a_topic_made_anew_stops_an_eager_view(followed: Followed) -> None:
    """Its first records lie below what the view has read, and would be passed over for ever."""
    followed.shows(set(range(1, 21)))
    followed.stop()
    followed.pipeline.connector().stop()
    anew(followed, f"{followed.name}.public.b")
    followed.pipeline.connector().resume()
    followed.pipeline.run("update b set v = 'after' where id = 5")
    followed.pipeline.arrived("public.b", 1)
    runner: Spawned = followed.spawn("cdc", "--config", followed.views.config, "view", "run")
    assert runner.wait(60) == Exit.TOPIC, runner.stderr
    assert "was deleted and made anew" in runner.stderr
