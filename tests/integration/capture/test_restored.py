"""Postgres and Kafka put back as an older copy of their files: what capture and stores say, and the way back (H6, H84).

compose/RESTORE.md names these tests.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc.process.crash_points import CRASH_EXIT
from cdc.process.errors import Exit
from cdc.stack.local import free_ports
from cdc.stack.supervised_server import outside_folder
from cdc.wiring.pipeline import build_snapshot, prepare_pipeline
from snapshot.source.ports import NoReport
from tests.fresh import fresh_name, new_database
from tests.integration.capture.follower import Follower, assert_stores_equal
from tests.integration.capture.pipeline import Pipeline, refused
from tests.processes import ProcessStack
from tests.programs import Spawn
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
TABLE = "create table t (id int primary key, v text)"


class Servers:
    """A stack of this file's own. The files of a part can be kept and put back."""

    def __init__(self, stack: ProcessStack) -> None:
        self.stack = stack
        found = stack.ensure("postgres", "kafka")
        self.postgres, self.kafka = found["postgres"]["dsn"], found["kafka"]["bootstrap_servers"]

    def keep(self, part: str) -> None:
        """Copy its files, as a snapshot of the disk does."""
        self.stack.stop_part(part)
        place = self._files(part)
        copy = place.with_name(f"{place.name}.kept")
        shutil.rmtree(copy, ignore_errors=True)
        subprocess.run(["cp", "-a", str(place), str(copy)], check=True)
        self._start(part)

    def put_back(self, part: str) -> None:
        """The files as they were kept."""
        self.stack.stop_part(part)
        place = self._files(part)
        shutil.rmtree(place)
        place.with_name(f"{place.name}.kept").rename(place)
        self._start(part)

    def _files(self, part: str) -> Path:
        inside, outside = self.stack.folder / part, outside_folder(self.stack.folder / part)
        return (outside if (outside / "data").exists() else inside) / "data"

    def _start(self, part: str) -> None:
        self.stack.start_part(part)
        self.stack.wait(part)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    stack = ProcessStack(tmp_path_factory.mktemp("restored"))
    stack.start(ports=free_ports(), durable=False)
    try:
        yield Servers(stack)
    finally:
        stack.wipe()


@pytest.fixture
def pipeline(servers: Servers, tmp_path: Path, spawn: Spawn) -> Iterator[Pipeline]:
    """A pipeline on these servers."""
    with new_database(servers.postgres) as dsn:
        document = {
            "name": fresh_name(),
            "source": {"dsn": dsn, "tables": ["public.*"]},
            "log": {"bootstrap_servers": servers.kafka, "partitions": 2},
            "capture": {"http_address": ""},
            "snapshot": {"watch": "0s"},
        }
        yield Pipeline(dsn, document, tmp_path, spawn)


def streamed(pipeline: Pipeline, *statements: str) -> None:
    """Run them while capture runs, until the log has them."""
    with pipeline.capturing():
        pipeline.execute(*statements)
        pipeline.settle()


def progress_lsn(pipeline: Pipeline) -> int:
    """How far the log is."""
    progress = pipeline.progress()
    assert progress is not None
    return progress.lsn


def begun_anew(pipeline: Pipeline, live: Follower) -> None:
    """The way back: a new epoch and its rows, then changes. The stores equal the source, those that followed too."""
    pipeline.new_epoch()
    build_snapshot(pipeline.settings, NoReport(), workers=1).run()
    streamed(pipeline, "insert into t values (300, 'anew')", "delete from t where id = 2")
    assert_stores_equal(pipeline, live, "t")


def test_h6_h157_a_source_put_back_older_is_refused(servers: Servers, pipeline: Pipeline) -> None:
    """Its slot, system identifier and timeline are those that were kept. Its WAL is behind the log: it has written less
    than a segment of its own since."""
    pipeline.prepare_with_rows(TABLE, "insert into t select g, 'first' from generate_series(1, 20) g")
    live = Follower(pipeline)
    streamed(pipeline, "insert into t values (100, 'kept')")
    servers.keep("postgres")
    streamed(
        pipeline, "select pg_switch_wal()", "insert into t values (200, 'lost')", "update t set v = 'lost' where id = 1"
    )
    live.follow()
    servers.put_back("postgres")
    refused(pipeline.start(), Exit.IDENTITY, "it was set back")
    begun_anew(pipeline, live)
    assert pipeline.slot_state().epoch == 2


def test_h203_a_source_put_back_behind_a_later_cut(servers: Servers, pipeline: Pipeline) -> None:
    """A first snapshot that went on in a later cut, of which the server has no rows any more."""
    pipeline.execute(TABLE, "insert into t select g, 'first' from generate_series(1, 20) g")
    prepare_pipeline(pipeline.settings)
    for at in ("slot_recorded", "snapshot_completed"):
        env = {"CDC_CRASH_AT": at}
        assert pipeline.spawn("cdc", "--config", pipeline.config(), "snapshot", env=env).wait(60) == CRASH_EXIT
        if at == "slot_recorded":
            servers.keep("postgres")
            pipeline.execute(
                "select pg_switch_wal()", "insert into t values (200, 'lost')", "delete from t where id = 2"
            )
    servers.put_back("postgres")
    refused(pipeline.start(), Exit.IDENTITY, "it was set back")
    begun_anew(pipeline, Follower(pipeline))


@pytest.mark.slow
def test_h227_an_epochs_number_that_is_given_twice(servers: Servers, pipeline: Pipeline) -> None:
    """Kafka is put back to before an epoch that a store has: the next epoch has its number, and other positions."""
    found = servers.stack.ensure("redis")
    pipeline.document["sinks"] = {"cache": {"kind": "redis", "url": found["redis"]["url"]}}
    pipeline.document["spark"] = {"checkpoint": str(pipeline.folder / "checkpoints"), "http_address": ""}
    pipeline.prepare_with_rows(TABLE, "insert into t select g, 'first' from generate_series(1, 20) g")
    streamed(pipeline, "insert into t values (100, 'kept')")
    servers.keep("kafka")
    pipeline.new_epoch()
    build_snapshot(pipeline.settings, NoReport(), workers=1).run()
    streamed(pipeline, "insert into t select g, 'lost' from generate_series(200, 230) g")
    command = ("cdc", "--config", pipeline.config())
    assert pipeline.spawn(*command, "sink", "--until-caught-up").wait(120) == 0
    servers.put_back("kafka")
    wait_until(lambda: pipeline.count("t"), 30)
    refused(pipeline.start(), Exit.SLOT, "--new-epoch")
    pipeline.execute(
        "delete from t where id in (3, 203)", "insert into t select g, 'new' from generate_series(300, 330) g"
    )
    assert pipeline.new_epoch() == 2
    build_snapshot(pipeline.settings, NoReport(), workers=1).run()
    with pipeline.capturing():
        pipeline.execute("update t set v = 'anew' where id > 5")
        refused(pipeline.spawn(*command, "sink"), Exit.TOPIC, "cdc rebuild cache", timeout_s=120)
        rebuilt = pipeline.spawn(*command, "rebuild", "cache")
        assert rebuilt.wait(120) == 0, rebuilt.stderr
        sink = pipeline.spawn(*command, "sink")
        verified = pipeline.spawn(*command, "verify", "--timeout", "300")
        assert verified.wait(120) == 0, verified.stdout + verified.stderr + sink.stderr
        assert sink.terminate(90) == 0, sink.stderr


@pytest.mark.parametrize("way", [pytest.param("rebuild", marks=pytest.mark.long), "sink"])
def test_h4_h6_h63_h194_a_kafka_put_back_older(servers: Servers, pipeline: Pipeline, way: str) -> None:
    """The slot has moved on since: the changes between are nowhere. A store names offsets that the topics do not have,
    and have again once a new epoch's rows are there: other records. They come to it by a rebuild, and as well by the
    sink alone, which goes back to where the epoch began."""
    found = servers.stack.ensure("redis")
    pipeline.document["sinks"] = {"cache": {"kind": "redis", "url": found["redis"]["url"]}}
    pipeline.document["spark"] = {"checkpoint": str(pipeline.folder / "checkpoints"), "http_address": ""}
    pipeline.prepare_with_rows(TABLE, "insert into t select g, 'first' from generate_series(1, 20) g")
    streamed(pipeline, "insert into t values (100, 'kept')")
    servers.keep("kafka")
    streamed(pipeline, "insert into t select g, 'lost' from generate_series(200, 230) g")
    command = ("cdc", "--config", pipeline.config())
    assert pipeline.spawn(*command, "sink", "--until-caught-up").wait(120) == 0
    held, count = pipeline.confirmed(), pipeline.count("t")
    servers.put_back("kafka")
    assert wait_until(lambda: pipeline.count("t"), 30) < count
    refused(pipeline.start(), Exit.SLOT, "beyond", "it was advanced")
    assert pipeline.confirmed() == held
    refused(pipeline.spawn(*command, "sink"), Exit.TOPIC, "cdc rebuild cache", timeout_s=120)
    pipeline.execute(
        "delete from t where id in (3, 203)", "insert into t select g, 'new' from generate_series(300, 330) g"
    )
    pipeline.new_epoch()
    build_snapshot(pipeline.settings, NoReport(), workers=1).run()
    with pipeline.capturing():
        if way == "rebuild":
            rebuilt = pipeline.spawn(*command, "rebuild", "cache")
            assert rebuilt.wait(120) == 0, rebuilt.stderr
        pipeline.execute("update t set v = 'anew' where id > 5")
        sink = pipeline.spawn(*command, "sink")
        verified = pipeline.spawn(*command, "verify", "--timeout", "300")
        assert verified.wait(120) == 0, verified.stdout + verified.stderr + sink.stderr
        assert ("store_goes_back" in sink.stderr) is (way == "sink")
        assert sink.terminate(90) == 0, sink.stderr
