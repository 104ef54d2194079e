"""Records that lie beyond what the source has written: no capture of ours wrote them, and none is misled (H157)."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from cdc.process.errors import Exit
from cdc.record.position import Position
from cdc.record.progress import PROGRESS_KEY, Progress
from cdc.record.state import RequestState
from cdc.record.topic_names import partition_of, progress_topic
from connectors.kafka.feed import read_marks
from tests.integration.capture.pipeline import Pipeline, refused
from tests.waiting import wait_until

TABLE = "create table t (id int primary key, v text)"
FUTURE = Position(1, 1 << 40, 1)
PARTITIONS = 3


def write(pipeline: Pipeline, topic: str, partition: int, key: bytes, value: bytes, op: str = "") -> None:
    headers: list[tuple[str, str | bytes | None]] = [("pos", FUTURE.text().encode()), ("op", op.encode())]
    headers.append(("ver", b"1"))
    producer = Producer({"bootstrap.servers": pipeline.settings.log.bootstrap_servers})
    producer.produce(topic, key=key, value=value, partition=partition, headers=headers if op else None)
    assert producer.flush(20) == 0


def write_everywhere(pipeline: Pipeline, op: str) -> None:
    """A record of the pipeline's own epoch, from a source that was further."""
    value = b'{"op":"t"}' if op == "t" else b'{"op":"u","before":null,"after":{"id":1,"v":"foreign"}}'
    for number in range(1, 20):
        key = b'{"__truncate":"public.t"}' if op == "t" else b'{"id":%d}' % number
        partition = number % PARTITIONS if op == "t" else partition_of(key, PARTITIONS)
        write(pipeline, pipeline.topic("t"), partition, key, value, op)


def last_of(pipeline: Pipeline) -> dict[str, object]:
    """What stands last of each key. Truncates are no rows."""
    found = {record.key: record.value.get("after") for record in pipeline.records("t") if record.value}
    return {key: row for key, row in found.items() if "__" not in key}


@pytest.mark.parametrize("op", ["u", "t"])
@pytest.mark.parametrize("running", [True, False])
@pytest.mark.slow
def test_h157_a_record_of_the_future_keeps_no_change_out(pipeline: Pipeline, op: str, running: bool) -> None:
    """It was taken for the newest that its partition holds, and every change until then for one that is there."""
    pipeline.prepare(TABLE)
    run = pipeline.stream()
    pipeline.execute("insert into t select g, 'a' from generate_series(1, 20) g")
    pipeline.settle()
    if not running:
        assert run.terminate() == 0
    write_everywhere(pipeline, op)
    pipeline.execute("update t set v = 'b'")
    if not running:
        run = pipeline.stream()
    wait_until(lambda: pipeline.said(run, "foreign_records"), 40, lambda: run.stderr)
    pipeline.execute("insert into t values (21, 'b')")
    pipeline.settle()
    assert run.terminate() == 0
    with pipeline.capturing():
        pipeline.execute("update t set v = 'c' where id > 10")
        pipeline.settle()
    progress = pipeline.progress()
    assert progress is not None
    assert not progress.ahead
    rows = last_of(pipeline)
    assert {rows[f'{{"id":{n}}}'] == {"id": n, "v": "b" if n <= 10 else "c"} for n in range(1, 22)} == {True}


@pytest.mark.slow
def test_h157_capture_refuses_to_begin_in_the_future(pipeline: Pipeline) -> None:
    """The server would pass over every commit up to there, without a word."""
    pipeline.prepare(TABLE)
    with pipeline.capturing():
        pipeline.execute("insert into t values (1, 'a')")
        pipeline.settle()
    foreign = Progress(epoch=1, lsn=FUTURE.commit_lsn, offsets={}).to_json()
    write(pipeline, progress_topic(pipeline.name), 0, PROGRESS_KEY, foreign)
    text = refused(pipeline.start(), Exit.IDENTITY, "the server has written no further than", "progress topic")
    assert "cdc init --new-epoch" in text


@pytest.mark.slow
def test_h157_a_table_is_read_again_that_was_passed_over(pipeline: Pipeline) -> None:
    """What an earlier version noted of a record of the future."""
    pipeline.prepare(TABLE)
    with pipeline.capturing():
        pipeline.execute("insert into t values (1, 'a')")
        pipeline.settle()
    noted = pipeline.progress()
    assert noted is not None
    ahead = {pipeline.topic("t"): {p: FUTURE.text() for p in range(PARTITIONS)}}
    value = Progress(epoch=1, lsn=noted.lsn, offsets=noted.offsets, ahead=ahead).to_json()
    write(pipeline, progress_topic(pipeline.name), 0, PROGRESS_KEY, value)
    run = pipeline.stream()
    said = pipeline.said(run, "late_records_mended")
    assert said is not None
    assert said["tables_to_read"] == 1
    asked = [RequestState.from_json(v).table for k, v in pipeline.state().items() if b'"request"' in k]
    pipeline.execute("insert into t values (2, 'b')")
    pipeline.settle()
    assert run.terminate() == 0
    assert asked in ([], ["public.t"]), "it may be over already"
    assert last_of(pipeline)['{"id":2}'] == {"id": 2, "v": "b"}


@pytest.mark.slow
def test_h159_unreadable_progress_ends_no_start(pipeline: Pipeline) -> None:
    """It stands last of its key, and only capture could write the next one."""
    pipeline.prepare(TABLE)
    with pipeline.capturing():
        pipeline.execute("insert into t values (1, 'a')")
        pipeline.settle()
    for value in (b"", b"{", b"[]", b'{"epoch":1,"lsn":-1,"offsets":{}}'):
        write(pipeline, progress_topic(pipeline.name), 0, PROGRESS_KEY, value)
    run = pipeline.stream()
    said = pipeline.said(run, "progress_unreadable")
    assert said is not None
    assert said["topic"] == progress_topic(pipeline.name)
    pipeline.execute("insert into t values (2, 'b')")
    pipeline.settle()
    assert run.terminate() == 0
    pipeline.assert_equal("t")
    assert read_marks(pipeline.settings.log, progress_topic(pipeline.name))[-1].lsn > 0


@pytest.mark.slow
def test_h159_capture_does_not_begin_without_readable_progress(pipeline: Pipeline) -> None:
    pipeline.prepare(TABLE)
    write(pipeline, progress_topic(pipeline.name), 0, PROGRESS_KEY, b"{")
    text = refused(pipeline.start(), Exit.POISON, "a record of the progress topic")
    assert "Traceback" not in text
