"""A topic that takes no record, because too few of its replicas are in sync: waited for, and said."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from cdc.process.errors import Exit
from cdc.record.topic_names import progress_topic
from cdc.stack.local import free_ports
from tests.integration.capture.pipeline import Pipeline
from tests.integration.capture.test_refusals import alter_topic
from tests.programs import RunCdc, Spawn
from tests.two_brokers import TwoBrokers, two_brokers
from tests.waiting import wait_until

TABLES = ("create table t (id int primary key, v text)", "create table u (id int primary key)")
OPTION = "min.insync.replicas"
SAID = "takes no record: 1 of its 2 replicas are in sync, and min.insync.replicas asks for 2"


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoBrokers]:
    with two_brokers(tmp_path_factory.mktemp("brokers")) as running:
        yield running


@pytest.fixture
def replicated(brokers: TwoBrokers, database: str, tmp_path: Path, spawn: Spawn) -> Pipeline:
    """A pipeline whose topics want both brokers."""
    document = {
        "name": f"p{Path(tmp_path).name[-8:].replace('_', '')}".lower(),
        "source": {"dsn": database, "tables": ["public.*"]},
        "log": {"bootstrap_servers": brokers.address, "partitions": 3, "replication_factor": 2},
        "capture": {"http_address": f"127.0.0.1:{free_ports(['connect'])['connect']}"},
        "snapshot": {"watch": "0s"},
    }
    pipeline = Pipeline(database, document, tmp_path, spawn)
    pipeline.prepare(*TABLES)
    for topic in (pipeline.topic("t"), progress_topic(pipeline.name)):
        alter_topic(pipeline, OPTION, "2", topic)
    return pipeline


def ready(pipeline: Pipeline) -> bool:
    try:
        return bool(urlopen(f"http://{pipeline.document['capture']['http_address']}/readyz", timeout=10).status == 200)
    except HTTPError as refused:
        refused.close()
        return False


@pytest.mark.slow
def test_h57_too_few_replicas_in_sync_are_waited_for(
    replicated: Pipeline, brokers: TwoBrokers, run_cdc: RunCdc
) -> None:
    """In flight, at a start, and at a stop: nothing is acknowledged that the brokers have not taken."""
    pipeline = replicated
    run = pipeline.stream()
    pipeline.execute("insert into t values (1, 'before')")
    pipeline.settle()
    with brokers.one_away():
        wait_until(lambda: SAID in run.stderr, 90, lambda: run.stderr)
        pipeline.fence()
        before = int(pipeline.one("select pg_current_wal_insert_lsn() - '0/0'"))
        pipeline.execute("insert into t select g, 'meanwhile' from generate_series(2, 500) g")
        wait_until(lambda: not ready(pipeline), 90, lambda: run.stderr)
        assert pipeline.confirmed() <= before
        checked = run_cdc("--config", pipeline.config(), "check", cwd=pipeline.folder)
        assert SAID in checked.stdout, checked.stdout
        run.kill()
        run = pipeline.start()
        wait_until(lambda: run.process.poll() is not None or '"streaming"' in run.stderr, 60, lambda: run.stderr)
        assert run.process.poll() in (None, Exit.UNAVAILABLE), run.stderr
        assert pipeline.confirmed() <= before
    if run.process.poll() is not None:
        run = pipeline.stream()
    pipeline.settle(90)
    # A record of the killed one may have come behind the end that this one found: then it begins again at its first.
    pipeline.settle(90)
    wait_until(lambda: ready(pipeline), 60, lambda: run.stderr)
    assert run.terminate() == Exit.OK, run.stderr
    pipeline.assert_equal("t")
    assert len({record.key for record in pipeline.records("t")}) == 500
