"""A capture taken for dead still writes: what it leaves behind is made right within seconds (H15, H75, H76)."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable
from typing import Any

import orjson
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from cdc.process.errors import Exit
from cdc.record.progress import PROGRESS_KEY, WriterState
from cdc.record.state import ReadingState, RequestState, find_all
from cdc.record.topic_names import progress_topic, state_topic
from cdc.wiring.pipeline import build_snapshot
from connectors.kafka.compacted_topic import KafkaCompactedTopic, read_range
from snapshot.source.ports import NoReport
from tests.conftest import Stack
from tests.faults.proxy import Fault, Proxy
from tests.integration.capture.follower import Follower, source_rows
from tests.integration.capture.pipeline import Pipeline
from tests.programs import Spawned
from tests.waiting import wait_until

TABLE = "create table t (id int primary key, v text)"
Raw = tuple[str, int, bytes, bytes | None, Any]
"""Topic, partition, key, value, headers."""


def raw_records(pipeline: Pipeline, topic: str, partitions: int = 3) -> list[Raw]:
    """Every record as it is, partition by partition."""
    found: list[Raw] = []
    for partition in range(partitions):
        for message in read_range(pipeline.settings.log, topic, partition):
            key, value = message.key(), message.value()
            assert isinstance(key, bytes)
            found.append((topic, partition, key, value if isinstance(value, bytes) else None, message.headers()))
    return found


def write_late(kafka: str, records: Iterable[Raw]) -> None:
    """As the queue of a process that wakes: its records as they were, at their old positions."""
    producer = Producer({"bootstrap.servers": kafka, "enable.idempotence": True})
    for topic, partition, key, value, headers in records:
        producer.produce(topic, key=key, value=value, partition=partition, headers=headers)
    assert producer.flush(20) == 0


def after_compaction(pipeline: Pipeline, table: str) -> list[bytes]:
    """The rows a store gets that is built from the last record of each key, which is what compaction keeps."""
    last = {(partition, key): value for _, partition, key, value, _ in raw_records(pipeline, pipeline.topic(table))}
    rows = (orjson.loads(value)["after"] for (_, key), value in last.items() if value is not None and b"__" not in key)
    return sorted(orjson.dumps(row, option=orjson.OPT_SORT_KEYS) for row in rows if row is not None)


def mended(pipeline: Pipeline, run: Spawned, deadline_s: float = 12) -> dict[str, Any]:
    wait_until(lambda: pipeline.said(run, "late_records_mended"), deadline_s, lambda: run.stderr)
    said = pipeline.said(run, "late_records_mended")
    assert said is not None
    return said


def with_history(pipeline: Pipeline) -> list[Raw]:
    """A table whose rows moved on; the records of before."""
    pipeline.execute(
        "insert into t select g, 'old' from generate_series(1, 30) g", "delete from t where id in (3, 4)", "truncate t"
    )
    pipeline.execute("insert into t select g, 'older' from generate_series(1, 30) g", "delete from t where id > 25")
    pipeline.settle()
    before = raw_records(pipeline, pipeline.topic("t"))
    pipeline.execute("update t set v = 'new' where id <= 10", "delete from t where id between 11 and 15")
    pipeline.execute("insert into t values (26, 'again'), (3000, 'other')")
    pipeline.settle()
    return before


@pytest.mark.parametrize("also", ["nothing", "a change at the same time"])
@pytest.mark.slow
def test_h76_late_records_are_mended_while_capture_runs(pipeline: Pipeline, kafka: str, also: str) -> None:
    pipeline.prepare(TABLE)
    run = pipeline.stream()
    before = with_history(pipeline)
    assert after_compaction(pipeline, "t") == source_rows(pipeline, "t")
    write_late(kafka, before)
    if also != "nothing":
        pipeline.execute("update t set v = 'newest' where id = 1")
    else:
        assert after_compaction(pipeline, "t") != source_rows(pipeline, "t"), "compaction would keep the wrong ones"
    said = mended(pipeline, run)
    assert said["tables_to_read"] == 0
    assert said["written_again"] <= said["records"]
    pipeline.execute("update t set v = 'next' where id = 2")
    pipeline.settle()
    assert after_compaction(pipeline, "t") == source_rows(pipeline, "t")
    assert pipeline.compacted("t") == {
        f'{{"id":{row["id"]}}}': row for row in map(orjson.loads, source_rows(pipeline, "t"))
    }
    assert run.terminate() == 0


@pytest.mark.slow
def test_h76_late_records_that_came_while_no_capture_ran(pipeline: Pipeline, kafka: str) -> None:
    pipeline.prepare(TABLE)
    with pipeline.capturing():
        before = with_history(pipeline)
    write_late(kafka, before)
    run = pipeline.stream()
    assert mended(pipeline, run)["tables_to_read"] == 0
    pipeline.settle()
    assert after_compaction(pipeline, "t") == source_rows(pipeline, "t")
    assert run.terminate() == 0
    count = pipeline.count("t")
    again = pipeline.stream()
    pipeline.settle()
    assert (pipeline.said(again, "late_records_mended"), pipeline.count("t")) == (None, count), "once is enough"


@pytest.mark.slow
def test_h76_a_late_record_that_nothing_disproves_asks_for_rows(pipeline: Pipeline, kafka: str) -> None:
    pipeline.prepare(TABLE)
    with pipeline.capturing():
        before = with_history(pipeline)
    topic, partition, _, value, headers = before[0]
    write_late(kafka, [(topic, partition, b'{"id":77}', value, headers)])
    run = pipeline.stream()
    assert mended(pipeline, run)["tables_to_read"] == 1
    asked = [v for k, v in pipeline.state().items() if orjson.loads(k)["what"] == RequestState.WHAT]
    assert [RequestState.from_json(value).table for value in asked] == ["public.t"]


@pytest.mark.slow
def test_h81_a_late_progress_record_does_not_move_the_start(pipeline: Pipeline, kafka: str) -> None:
    pipeline.prepare(TABLE)
    topic = progress_topic(pipeline.name)
    with pipeline.capturing():
        pipeline.execute("insert into t values (1, 'a')")
        pipeline.settle()
        (*_, old) = raw_records(pipeline, topic, 1)
        pipeline.execute("insert into t values (2, 'b')")
        pipeline.settle()
    assert old[2] == PROGRESS_KEY
    write_late(kafka, [old])
    with pipeline.capturing():
        pipeline.execute("insert into t values (3, 'c')")
        pipeline.settle()
    pipeline.assert_equal("t")


@pytest.mark.slow
def test_h15_h76_a_stopped_capture_wakes_after_its_successor(pipeline: Pipeline, stack: Stack) -> None:
    """The broker stands still, so its queue is full; it is stopped; the broker goes on; another one takes over; it
    wakes and sends what it had."""
    pipeline.prepare(TABLE, "insert into t select g, 'first' from generate_series(1, 20000) g")
    zombie = pipeline.stream()
    pipeline.execute("update t set v = 'second' where id <= 100")
    pipeline.settle()
    with stack.paused("kafka"):
        pipeline.execute("update t set v = md5(random()::text) || repeat(md5(random()::text), 30)")
        received = pipeline.fence()
        wait_until(lambda: _sent(pipeline) > received, 30)
        zombie.process.send_signal(signal.SIGSTOP)
    pipeline.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where application_name like 'cdc capture%' and datname = current_database()"
    )
    heir = pipeline.stream()
    pipeline.settle(60)
    pipeline.execute("update t set v = 'third' where id % 2 = 0", "delete from t where id % 5 = 0")
    pipeline.settle(60)
    count = pipeline.count("t")
    zombie.process.send_signal(signal.SIGCONT)
    wait_until(lambda: pipeline.said(zombie, "reconnecting"), 30, lambda: zombie.stderr)
    wait_until(lambda: pipeline.count("t") > count, 10, "what it still had was not sent")
    # Whichever has the lock then mends it: the heir starts anew when it notices, and the other wants it back.
    wait_until(lambda: any("late_records_mended" in run.stderr for run in (heir, zombie)), 20, lambda: heir.stderr)
    pipeline.settle(60)
    assert after_compaction(pipeline, "t") == source_rows(pipeline, "t")
    for run in (zombie, heir):
        run.kill()
    last = pipeline.stream()
    assert_right_when_compacted(pipeline)
    assert last.terminate() == 0


def _sent(pipeline: Pipeline) -> int:
    """How far the server has sent its changes."""
    return int(
        pipeline.one(
            "select coalesce(max(sent_lsn) - '0/0', 0) from pg_stat_replication where application_name = %s",
            "cdc capture stream",
        )
    )


@pytest.mark.slow
def test_h6_h76_a_capture_of_an_ended_epoch_wakes_first(pipeline: Pipeline, kafka: str) -> None:
    """Behind the new epoch's rows, of which compaction would then keep none."""
    pipeline.prepare(TABLE)
    with pipeline.capturing():
        before = with_history(pipeline)
    pipeline.new_epoch()
    build_snapshot(pipeline.settings, NoReport(), workers=1).run()
    write_late(kafka, before)
    run = pipeline.stream()
    assert mended(pipeline, run)["tables_to_read"] == 0
    pipeline.execute("update t set v = 'next' where id = 2")
    pipeline.settle()
    assert after_compaction(pipeline, "t") == source_rows(pipeline, "t")
    rebuilt = Follower(pipeline)
    rebuilt.follow()
    assert rebuilt.rows("t") == source_rows(pipeline, "t")
    assert run.terminate() == 0


@pytest.mark.slow
def test_h15_h76_a_dead_captures_request_meets_a_stalled_broker(pipeline: Pipeline, kafka: str) -> None:
    """Its process is gone, and its request is not: it stands in the network until its successor is far beyond it."""
    pipeline.prepare(TABLE, "insert into t select g, 'first' from generate_series(1, 30) g")
    direct = pipeline.document["log"]
    with Proxy(int(kafka.rpartition(":")[2]), kafka=True) as proxy:
        pipeline.document["log"] = {**direct, "bootstrap_servers": f"127.0.0.1:{proxy.port}"}
        dead = pipeline.stream()
        pipeline.execute("update t set v = 'second' where id <= 20")
        pipeline.settle()
        proxy.set(Fault(stall=True, one_way="up"))
        pipeline.execute("update t set v = 'held ' || md5(random()::text) || md5(random()::text) where id <= 25")
        wait_until(lambda: proxy.held_bytes > 1500, 30)
        dead.kill()
        pipeline.document["log"] = direct
        heir = pipeline.stream()
        pipeline.execute("update t set v = 'third' where id % 2 = 0", "delete from t where id % 5 = 0")
        pipeline.settle()
        count = pipeline.count("t")
        proxy.heal()
        wait_until(lambda: pipeline.count("t") > count, 10, "what was held did not arrive")
    assert after_compaction(pipeline, "t") != source_rows(pipeline, "t"), "compaction would keep the wrong ones"
    assert mended(pipeline, heir)["tables_to_read"] == 0
    pipeline.settle()
    assert_right_when_compacted(pipeline)
    assert heir.terminate() == 0


@pytest.mark.slow
def test_h76_late_records_compacted_before_anybody_looked(pipeline: Pipeline, kafka: str) -> None:
    """No capture ran for longer than min.compaction.lag.ms: what was newer is gone, and the table is read again."""
    pipeline.prepare(TABLE)
    with pipeline.capturing():
        before = with_history(pipeline)
        pipeline.execute("delete from t where id = 7")
        pipeline.settle()
    write_late(kafka, before)
    compact(pipeline, "t", lambda: write_late(kafka, before))
    assert after_compaction(pipeline, "t") != source_rows(pipeline, "t")
    run = pipeline.stream()
    assert mended(pipeline, run)["tables_to_read"] == 1
    wait_until(lambda: find_all(pipeline.state(), ReadingState) and not find_all(pipeline.state(), RequestState), 60)
    pipeline.settle()
    # Rows whose deletes are gone stand below the sweep mark's floor, which is for readers to mind.
    rebuilt = Follower(pipeline)
    rebuilt.follow()
    assert rebuilt.rows("t") == source_rows(pipeline, "t")
    assert run.terminate() == 0


def compact(pipeline: Pipeline, table: str, write: Callable[[], object]) -> None:
    """Let the broker compact a topic now, up to where it ends; ``write`` gives each partition a newer segment."""
    topic = pipeline.topic(table)
    configure(
        pipeline, topic, {"min.compaction.lag.ms": "0", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.001"}
    )
    partitions = range(pipeline.topics().topics[topic]["partitions"])
    ends = {p: max(m.offset() or 0 for m in read_range(pipeline.settings.log, topic, p)) for p in partitions}

    def once_each() -> bool:
        write()
        old = [
            (p, m.key())
            for p in partitions
            for m in read_range(pipeline.settings.log, topic, p)
            if (m.offset() or 0) <= ends[p]
        ]
        return len(old) == len(set(old))

    wait_until(once_each, 60)
    configure(pipeline, topic, {"min.compaction.lag.ms": "60000"})


def configure(pipeline: Pipeline, topic: str, wanted: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": pipeline.settings.log.bootstrap_servers})
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in wanted.items()]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(10)


def assert_right_when_compacted(pipeline: Pipeline) -> None:
    """What is left of the topic is the source's rows, to whoever keeps the last and to whoever compares positions."""
    compact(pipeline, "t", lambda: pipeline.execute("update t set v = v || '.'"))
    pipeline.settle()
    assert after_compaction(pipeline, "t") == source_rows(pipeline, "t")
    rebuilt = Follower(pipeline)
    rebuilt.follow()
    assert rebuilt.rows("t") == source_rows(pipeline, "t")


@pytest.mark.slow
def test_h91_a_second_writer_behind_a_handover_ends_capture(pipeline: Pipeline, kafka: str) -> None:
    """Its records have no position of ours. What we wrote stands last again, and it is told once."""
    pipeline.prepare(TABLE)
    run = pipeline.stream()
    (topic, partition, key, value, _), *_ = with_history(pipeline)
    handed = WriterState(step="done")
    KafkaCompactedTopic(pipeline.settings.log, state_topic(pipeline.name)).write([(handed.key(), handed.to_json())])
    write_late(kafka, [(topic, partition, key, value, None)])
    assert run.process.wait(60) == Exit.ACTIVE, run.stderr
    assert "behind the handover: there are two writers" in run.stderr
    assert "hint: end the other one (cdc connect delete removes the connector)" in run.stderr
    assert after_compaction(pipeline, "t") == source_rows(pipeline, "t")
    again = pipeline.stream()
    pipeline.execute("update t set v = 'later' where id = 1")
    pipeline.settle()
    assert after_compaction(pipeline, "t") == source_rows(pipeline, "t")
    assert again.terminate() == 0
