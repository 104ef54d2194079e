"""Changes as a DataFrame, by ``format("headrace")`` on a real Spark and a real Kafka."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import count, window
from pyspark.sql.streaming.query import StreamingQuery

from cdc.record.schema import Column
from cdc.record.topic_names import VIEW_SCHEMA, TableName, view_topic, views_topic
from cdc.views.known_views import KnownView
from connectors.kafka.compacted_topic import KafkaCompactedTopic
from pyspark_headrace import current_rows, register, slots
from tests.integration.spark.handmade import NOTE, HandMadeLog, orders_schema
from tests.waiting import wait_until

Read = Callable[..., DataFrame]


@pytest.fixture
def read(spark_session: SparkSession, pipeline: HandMadeLog) -> Read:
    """A frame of the pipeline, its table ``public.orders`` unless told otherwise."""

    def frame(**options: str) -> DataFrame:
        return spark_session.read.format("headrace").options(**given(pipeline, **options)).load()

    return frame


def given(log: HandMadeLog, /, **options: str) -> dict[str, str]:
    """Options of a frame of the pipeline."""
    table = {} if "tables" in options else {"table": "public.orders"}
    return {"bootstrap_servers": log.bootstrap_servers, "pipeline": log.name, **table, **options}


class Collected:
    """What a stream brought, batch by batch."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.sizes: list[int] = []

    def __call__(self, batch: DataFrame, _number: int) -> None:
        found = [row.asDict() for row in batch.collect()]
        self.rows += found
        self.sizes.append(len(found))


@contextmanager
def streaming(
    session: SparkSession, checkpoint: Path, into: Collected, options: dict[str, str], **trigger: Any
) -> Iterator[StreamingQuery]:
    """A query over a frame's stream while the body runs."""
    frame = session.readStream.format("headrace").options(**options).load()
    writer = frame.writeStream.foreachBatch(into).option("checkpointLocation", str(checkpoint))
    query = (writer.trigger(**trigger) if trigger else writer).start()
    try:
        yield query
    finally:
        query.stop()


def refusal(failed: pytest.ExceptionInfo[PySparkException]) -> str:
    """The sentence of a refusal, and its hint."""
    (sentence,) = {line for line in str(failed.value).splitlines() if "FrameError: " in line or "Error: " in line}
    return sentence


@pytest.mark.slow
def test_a_frame_has_the_tables_columns_and_ours(read: Read, pipeline: HandMadeLog) -> None:
    pipeline.put([{"id": 1, "status": "new", "total": "1.50"}, {"id": 2, "status": None, "total": None}], op="c")
    pipeline.put([{"id": 1, "status": "paid", "total": "2.50"}, {"id": 2}])
    frame = read()
    assert frame.dtypes == [
        ("id", "bigint"), ("status", "string"), ("total", "decimal(12,2)"), ("_key", "string"), ("_pos", "string"),
        ("_op", "string"), ("_ver", "int"), ("_partition", "int"), ("_offset", "bigint"), ("_commit_ts", "timestamp"),
        ("_floor", "string"), ("_exact", "map<string,string>"),
    ]  # fmt: skip
    rows = [(r.id, r.status, str(r.total), r._op, r._commit_ts is None) for r in frame.orderBy("_pos").collect()]
    assert rows == [
        (1, "new", "1.50", "c", False),
        (2, None, "None", "c", False),
        (1, "paid", "2.50", "u", False),
        (2, None, "None", "d", False),
        (2, None, "None", "d", True),  # its tombstone
    ]
    assert [row.asDict()["id"] for row in current_rows(frame).collect()] == [1]


@pytest.fixture
def viewed(pipeline: HandMadeLog) -> HandMadeLog:
    """The pipeline with a view ``slim``, which is published."""
    table, topic = TableName(VIEW_SCHEMA, "slim"), view_topic(pipeline.name, "slim", 1)
    shape = pipeline.shapes["slim"] = replace(orders_schema(pipeline.name), table=table, topic=topic)
    pipeline.admin.create([pipeline.spec(topic), pipeline.spec(views_topic(pipeline.name))])
    topic_id = pipeline.admin.describe([topic])[topic].topic_id
    known = KnownView(
        view="slim",
        generation=1,
        topic=topic,
        topic_id=topic_id,
        partitions=pipeline.partitions,
        digest="d",
        shape=shape.to_json().decode(),
    )
    KafkaCompactedTopic(pipeline.log, views_topic(pipeline.name)).write([(known.key, known.to_json())])
    return pipeline


@pytest.mark.slow
def test_y17_a_view_is_a_table_of_a_frame(read: Read, viewed: HandMadeLog, spark_session: SparkSession) -> None:
    viewed.put([{"id": 1, "status": "new", "total": "1.50"}, {"id": 2, "status": "new", "total": None}], table="slim")
    viewed.put([{"id": 1, "status": "paid", "total": "2.50"}, {"id": 2}], table="slim")
    viewed.put([{"id": 7, "status": "other", "total": None}])
    frame = read(table="view.slim")
    assert frame.dtypes[:3] == [("id", "bigint"), ("status", "string"), ("total", "decimal(12,2)")]
    assert [(row["id"], row["status"], row["_ver"]) for row in current_rows(frame).collect()] == [(1, "paid", 1)]
    assert read(tables="view.*", raw="true").count() == 5, "a delete is two records"
    assert read(tables="*.*", raw="true").count() == 1, "as for a sink, a view is taken where its schema is named"
    stream = spark_session.readStream.format("headrace").options(**given(viewed, table="view.slim")).load()
    assert stream.dtypes == frame.dtypes
    with pytest.raises(PySparkException) as failed:
        read(table="view.slim", as_of="0/1").collect()
    assert "view.slim is a view, and as_of reads tables" in refusal(failed)
    with pytest.raises(PySparkException) as failed:
        read(table="view.slam").collect()
    assert "has no table view.slam" in refusal(failed)


@pytest.mark.slow
def test_y17_a_quiet_topic_s_last_window_closes_by_a_clock(
    spark_session: SparkSession, pipeline: HandMadeLog, tmp_path: Path
) -> None:
    """As the manual has it: Spark moves its watermark with rows alone, and a second stream brings them."""
    pipeline.put([{"id": number, "status": "new", "total": None} for number in range(3)])
    changes = spark_session.readStream.format("headrace").options(**given(pipeline)).load()
    clock = spark_session.readStream.format("rate").load().selectExpr("timestamp AS _commit_ts")
    counts = (
        changes.select("status", "_key", "_commit_ts")
        .unionByName(clock, allowMissingColumns=True)
        .withWatermark("_commit_ts", "10 minutes")
        .groupBy(window("_commit_ts", "1 minute"), "status")
        .agg(count("_key").alias("changes"))
        .where("changes > 0")
    )
    closed = Collected()
    writer = counts.writeStream.outputMode("append").foreachBatch(closed)
    query = writer.option("checkpointLocation", str(tmp_path / "windows")).start()
    try:
        wait_until(lambda: closed.rows or query.exception(), 60)
    finally:
        query.stop()
    assert [(row["status"], row["changes"]) for row in closed.rows] == [("new", 3)]


@pytest.mark.slow
def test_an_empty_table_is_an_empty_frame(read: Read) -> None:
    assert read().count() == 0
    assert read(raw="true").count() == 0


@pytest.mark.slow
def test_rows_below_a_truncate_are_gone(read: Read, pipeline: HandMadeLog) -> None:
    pipeline.put({"id": number, "status": "old", "total": "1"} for number in range(20))
    pipeline.truncate()
    pipeline.put([{"id": 3, "status": "new", "total": "2"}])
    assert [(row.id, row.status) for row in current_rows(read()).collect()] == [(3, "new")]
    assert {row._floor for row in read().where("_op = 't'").collect()} != {None}


@pytest.mark.slow
def test_several_tables_are_read_raw(spark_session: SparkSession, kafka: str, topic_prefix: str) -> None:
    pipeline = HandMadeLog(topic_prefix, kafka, tables=("orders", "customers"))
    pipeline.init()
    pipeline.put([{"id": 1, "status": "a", "total": "1"}], table="orders")
    pipeline.put([{"id": 2, "status": "b", "total": "1"}, {"id": 2}], table="customers")
    options = given(pipeline, tables="public.*", raw="true")
    rows = spark_session.read.format("headrace").options(**options).load().orderBy("_pos").collect()
    assert [(row.topic.rpartition(".")[2], bytes(row.key), row._op) for row in rows] == [
        ("orders", b'{"id":1}', "u"),
        ("customers", b'{"id":2}', "u"),
        ("customers", b'{"id":2}', "d"),
        ("customers", b'{"id":2}', "d"),
    ]
    assert json.loads(bytes(rows[0].value))["after"] == {"id": 1, "status": "a", "total": "1"}
    assert rows[-1].value is None
    assert rows[0]._commit_ts.timestamp() == 1760000000


@pytest.mark.slow
def test_older_versions_are_read_as_the_newest(read: Read, pipeline: HandMadeLog) -> None:
    pipeline.put([{"id": 1, "status": "7", "total": "1.50"}])
    first = orders_schema(pipeline.name)
    number = Column(name="state", attnum=2, type="int4", type_oid=23, kind="int4")
    pipeline.add_shape(replace(first, columns=(first.columns[0], number, NOTE)))
    pipeline.put([{"id": 2, "state": 8, "note": "x"}])
    rows = {row.id: row for row in read().collect()}
    assert (rows[1].state, rows[1].note, rows[1]._ver) == (7, None, 1)
    assert (rows[2].state, rows[2].note, rows[2]._ver) == (8, "x", 2)


@pytest.mark.slow
def test_a_value_that_does_not_fit_is_named(read: Read, pipeline: HandMadeLog) -> None:
    pipeline.put([{"id": 1, "status": "open", "total": "1.50"}])
    first = orders_schema(pipeline.name)
    number = Column(name="status", attnum=2, type="int4", type_oid=23, kind="int4")
    pipeline.add_shape(replace(first, columns=(first.columns[0], number)))
    with pytest.raises(PySparkException) as failed:
        read().collect()
    assert "the column status of public.orders has another type since version 1" in refusal(failed)
    (row,) = read(retyped="cast").collect()
    assert (row.status, row._exact) == (None, {"status": "open"})


@pytest.mark.slow
def test_a_stream_goes_on_from_its_checkpoint(
    spark_session: SparkSession, pipeline: HandMadeLog, tmp_path: Path
) -> None:
    pipeline.put({"id": number, "status": "a", "total": "1"} for number in range(50))
    into, options = Collected(), given(pipeline)
    with streaming(spark_session, tmp_path / "c", into, options, availableNow=True) as query:
        assert query.awaitTermination(120)
    assert len(into.rows) == 50
    pipeline.put({"id": number, "status": "b", "total": "2"} for number in range(60))
    with streaming(spark_session, tmp_path / "c", into, options) as query:
        wait_until(lambda: len(into.rows) == 110, 120)
        pipeline.put([{"id": 1}])
        wait_until(lambda: len(into.rows) == 112, 120)
        assert query.lastProgress is not None
    offsets = [(row["_partition"], row["_offset"]) for row in into.rows]
    assert len(set(offsets)) == len(offsets)


@pytest.mark.slow
def test_a_stream_begins_at_the_offsets_given(
    spark_session: SparkSession, pipeline: HandMadeLog, tmp_path: Path
) -> None:
    pipeline.put({"id": number, "status": "a", "total": "1"} for number in range(300))
    ends = pipeline.offsets()
    pipeline.put({"id": number, "status": "b", "total": "1"} for number in range(200))
    start = json.dumps({topic: {str(p): o for p, o in parts.items()} for topic, parts in ends.items()})
    into = Collected()
    options = given(pipeline, starting_offsets=start, max_offsets_per_trigger="64")
    with streaming(spark_session, tmp_path / "c", into, options) as query:
        wait_until(lambda: len(into.rows) == 200 and query.status["message"].startswith("Waiting"), 120)
    assert {row["status"] for row in into.rows} == {"b"}
    assert max(into.sizes) <= 64
    pipeline.put({"id": number, "status": "c", "total": "1"} for number in range(100))
    with streaming(spark_session, tmp_path / "c", into, options):
        wait_until(lambda: len(into.rows) == 300, 120)
    assert max(into.sizes) <= 64
    assert {row["status"] for row in into.rows[200:]} == {"c"}


@pytest.mark.slow
def test_h167_a_version_born_meanwhile_ends_the_query(
    spark_session: SparkSession, pipeline: HandMadeLog, tmp_path: Path
) -> None:
    pipeline.put([{"id": 1, "status": "a", "total": "1"}])
    into, options = Collected(), given(pipeline)
    with streaming(spark_session, tmp_path / "c", into, options) as query:
        wait_until(lambda: len(into.rows) == 1, 120)
        pipeline.add_shape(orders_schema(pipeline.name, extra=(NOTE,)))
        pipeline.put([{"id": 2, "status": "b", "total": "1", "note": "n"}])
        with pytest.raises(PySparkException) as failed:
            query.awaitTermination(120)
    assert "public.orders got the schema version 2 while it was being read as version 1" in refusal(failed)
    assert len(into.rows) == 1
    with streaming(spark_session, tmp_path / "c", into, options):
        wait_until(lambda: len(into.rows) == 2, 120)
    assert into.rows[1]["note"] == "n"


@pytest.mark.slow
def test_a_checkpoint_of_another_table_is_refused(
    spark_session: SparkSession, kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    pipeline = HandMadeLog(topic_prefix, kafka, tables=("orders", "customers"))
    pipeline.init()
    for table in ("orders", "customers"):
        pipeline.put([{"id": 1, "status": "a", "total": "1"}], table=table)
    into = Collected()
    with streaming(spark_session, tmp_path / "c", into, given(pipeline), availableNow=True) as query:
        assert query.awaitTermination(120)
    options = given(pipeline, table="public.customers")
    with (
        streaming(spark_session, tmp_path / "c", into, options, availableNow=True) as query,
        pytest.raises(PySparkException) as failed,
    ):
        query.awaitTermination(120)
    assert f"the checkpoint is of {topic_prefix}.public.orders of the pipeline {topic_prefix}" in refusal(failed)
    assert len(into.rows) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"table": "public.order"}, "has no table public.order. Hint: did you mean public.orders?"),
        ({"tables": "public.*"}, "read with raw = true alone"),
        ({"row": "true"}, "headrace knows no option row. Hint: did you mean raw?"),
        ({"as_of": "16B3D48"}, "the option as_of is '16B3D48', which is no LSN"),
        ({"pipeline": "nobody"}, "has no pipeline nobody"),
        ({"bootstrap_servers": "127.0.0.1:1"}, "cannot reach Kafka at 127.0.0.1:1: Connection refused"),
        ({"kafka.sasl.password": "hunter2"}, "the option kafka.sasl.password holds a secret"),
        ({"kafka.no.such": "x"}, "Kafka's client refuses its options: No such configuration property"),
        ({"starting_offsets": '{"other":{"0":1}}'}, "names other, partition 0, which this frame does not read"),
        ({"kafka.sasl.username": "env:NOT_SET_ANYWHERE"}, "the environment variable NOT_SET_ANYWHERE is not set"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_bad_input_is_refused_in_a_sentence(read: Read, options: dict[str, str], words: str) -> None:
    with pytest.raises(PySparkException) as failed:
        read(**options).collect()
    assert words in refusal(failed)
    assert "hunter2" not in str(failed.value)


@pytest.mark.slow
def test_it_can_be_registered_by_hand(spark_session: SparkSession, read: Read) -> None:
    register(spark_session)
    assert read(slots=slots(spark_session)).count() == 0
    assert int(slots(spark_session)) == 2
