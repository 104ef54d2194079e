"""Streams on a real Spark over topics that are filled by hand: batches, late events, markers, generations."""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic
from pyspark.sql import SparkSession

from cdc.jvm.java import java_home
from cdc.process.errors import ActiveError, CdcError, PoisonError, Retry, TopicError
from cdc.settings.model import Settings
from cdc.settings.sink_settings import UnreadSink
from cdc.wiring.streams import checked, compare_stream
from connectors.kafka.clients import client_config, producer_config
from connectors.streams.stream_topics import KafkaStreamOutput, known_streams, stream_specs
from spark.streams.stream_query import RunningStream
from tests.integration.spark import events_program
from tests.integration.spark.handmade import HandMadeLog
from tests.integration.spark.handmade_events import WINDOWS, HandMadeEvents, at
from tests.programs import Spawn
from tests.standalone_cluster import LIGHT_JVM
from tests.waiting import wait_until

APPEND = {"mode": "append"}


@pytest.fixture
def made(pipeline: HandMadeLog, tmp_path: Path) -> HandMadeEvents:
    return HandMadeEvents(pipeline, tmp_path / "stream")


def assert_filtered_above_the_watermark(stream: RunningStream) -> None:
    """Below it the markers would not move it on, and each record and its JSON would be read more than once."""
    query: Any = stream._query
    plan = query._jsq.streamingQuery().lastExecution().optimizedPlan().toString()
    parts = plan.split("EventTimeWatermark")
    assert len(parts) == 2, plan
    assert plan.count("from_json") == 1, plan
    for above, below in pairwise(parts):
        assert "Filter" in above and "isnull(at" in above, plan
        assert "Filter" not in below.partition("RelationV2")[0].partition("Project [key")[0], plan


def test_e8_e9_e10_windows_late_events_and_a_lost_checkpoint(spark_session: SparkSession, made: HandMadeEvents) -> None:
    settings = made.settings(**APPEND)
    made.request(10, "/a")
    made.request(20, "/a", old_s=55)
    made.request(30, "/a", old_s=60)  # just in time
    made.request(30, "/a", old_s=60.001)
    made.request(31, "/a", old_s=-60)  # a minute ahead
    made.emit(32, {"at": "9999-12-31T23:59:59Z", "path": "/a"})
    made.emit(33, b"{not json")
    made.emit(34, {"path": "/a"})
    made.emit(35, {"at": at(35).isoformat(), "n": "three"})
    made.request(36, "/a")
    made.emit(36, {"at": at(36).isoformat(), "path": "/a"}, repeated=True)
    apart = {"ahead": 2, "late": 1, "payload": 2, "repeated": 1, "time": 1}
    with made.running(spark_session, settings) as stream:
        made.settle(stream, made.cut())
        assert made.rows(settings) == []
        # Partition 1 never had a record. The cut alone closes the windows.
        made.settle(stream, made.cut(300))
        expected = [("11:59:00", "/a", 2), ("12:00:00", "/a", 2)]
        assert made.rows(settings) == expected
        assert stream.last is not None
        assert stream.last.set_apart == apart
    assert made.published(settings).set_apart == apart
    comparison = compare_stream(spark_session, settings, "traffic")
    assert comparison.is_clean, list(comparison.sentences("traffic"))
    assert (comparison.events, comparison.set_apart) == (4, 7)
    shutil.rmtree(made.folder / "checkpoints")
    with made.running(spark_session, settings) as stream:
        made.settle(stream, made.cut(301))
        assert known_streams(settings)["traffic"].known.generation == 2
        assert made.rows(settings) == expected
    shutil.rmtree(made.folder / "checkpoints")
    admin = AdminClient(client_config(made.log.log))
    cut = admin.delete_records([TopicPartition(made.topic(), 0, 1)])
    for future in cut.values():
        future.result()
    with pytest.raises(TopicError, match="no longer holds its beginning"), made.running(spark_session, settings):
        pass
    with pytest.raises(TopicError, match="cannot be computed anew") as refused:
        compare_stream(spark_session, settings, "traffic")
    assert "rebuild" not in refused.value.hint


def test_e8_a_batch_that_stands_in_the_topic_is_skipped(spark_session: SparkSession, made: HandMadeEvents) -> None:
    """Killed between the transaction and Spark's own commit, it is computed again, with the same offsets."""
    settings = made.settings()
    made.request(10)
    with made.running(spark_session, settings) as stream:
        made.settle(stream, made.cut())
        assert stream.last is not None
        last = stream.last
    ends = made.log.admin.end_offsets({known_streams(settings)["traffic"].known.topic: 2})
    (folder,) = (made.folder / "checkpoints").iterdir()
    (folder / "commits" / str(last.batch)).unlink()
    made.request(11)
    with made.running(spark_session, settings) as stream:
        made.settle(stream, made.cut())
        assert made.rows(settings) == [("12:00:00", "/a", 2)]
        assert stream.last is not None
        last = stream.last
    grown = made.log.admin.end_offsets({known_streams(settings)["traffic"].known.topic: 2})
    assert sum(grown[topic][p] - ends[topic][p] for topic in ends for p in ends[topic]) <= 4  # a row, and its control
    (folder / "commits" / str(last.batch)).unlink()
    path = folder / "offsets" / str(last.batch)
    lines = path.read_text().splitlines()
    changed = [line.replace('"at_us": ', '"at_us": 1') if "at_us" in line else line for line in lines]
    path.write_text("\n".join(changed))
    with (
        pytest.raises(TopicError, match="ends elsewhere in the checkpoint"),
        made.running(spark_session, settings) as stream,
    ):
        raise failed(stream)


def failed(stream: RunningStream) -> CdcError:
    """Why a stream ended."""
    wait_until(lambda: not stream.active, 60)
    failure = stream.failure()
    assert isinstance(failure, CdcError)
    return failure


def test_rows_of_one_key_in_two_batches_are_found(spark_session: SparkSession, made: HandMadeEvents) -> None:
    settings = made.settings(key=["start"])
    with made.running(spark_session, settings) as stream:
        for second, path in ((10, "/a"), (11, "/b")):
            made.request(second, path)
            made.settle(stream, made.cut())
    with pytest.raises(PoisonError, match="several rows of the key"):
        compare_stream(spark_session, settings, "traffic")


def test_a_value_that_the_text_cannot_take_is_not_shown(spark_session: SparkSession, made: HandMadeEvents) -> None:
    text = "select window.start start, count(cast(path as int)) n from requests group by window(at, '1 minute')"
    made.request(10, "hunter2")
    made.cut()
    with made.running(spark_session, made.settings(text, key=["start"])) as stream:
        failure = failed(stream)
    assert "cannot take a value of an event" in failure.message
    assert "CAST_INVALID_INPUT" in failure.message
    assert "hunter2" not in failure.message + failure.hint
    assert failure.retry is Retry.NEVER


def test_e8_e10_two_rows_of_one_key_stop_it(spark_session: SparkSession, made: HandMadeEvents) -> None:
    settings = made.settings(key=["start"])
    made.request(10, "/a")
    made.request(11, "/b")
    made.cut()
    with made.running(spark_session, settings) as stream:
        assert isinstance(failed(stream), PoisonError)
        assert made.published(settings).rows == {}
        assert_filtered_above_the_watermark(stream)


def test_e8_a_second_driver_ends_the_first(spark_session: SparkSession, made: HandMadeEvents) -> None:
    settings = made.settings()
    made.request(10)
    with made.running(spark_session, settings) as stream:
        made.settle(stream, made.cut())
        KafkaStreamOutput(settings, known_streams(settings)["traffic"].known)
        made.request(11)
        made.cut()
        assert isinstance(failed(stream), ActiveError)


def test_e9_e10_a_program_of_its_own_counts_events(made: HandMadeEvents, spawn: Spawn) -> None:
    """By the rules of ``cdc stream``: what is late is left out, and the cut closes the window."""
    for second, old_s in ((10, 0), (20, 0), (30, 61)):
        made.request(second, old_s=old_s)
    made.cut(300)
    made.folder.mkdir()
    config = made.folder / "cdc.toml"
    config.write_text(made.log.toml({}), encoding="utf-8")
    environment = {"JAVA_HOME": os.fspath(java_home()), "PYSPARK_PYTHON": sys.executable, **LIGHT_JVM}
    words = (events_program.__file__, config, made.topic(), made.folder / "checkpoint")
    program = spawn(sys.executable, *words, env=environment)
    assert program.wait(240) == 0, program.stderr
    assert program.stdout.splitlines() == ["counted /a 2"]


_OPEN = {"transaction.timeout.ms": 600_000, "message.timeout.ms": 60_000}
MOVED = """select window.start start, path, count(*) n from (
select at, path from requests union all select at - interval 2 hours, path from requests
) group by window(at, '1 minute'), path"""
"""The second half has the mark of the first one's time."""


def test_e9_a_text_that_moves_times_back_stops(spark_session: SparkSession, made: HandMadeEvents) -> None:
    """Spark itself would leave the moved rows out, and count nobody."""
    with made.running(spark_session, made.settings(MOVED)) as stream:
        made.request(10)
        made.settle(stream, made.cut(600))
        made.request(610)
        made.cut()
        failure = failed(stream)
    assert isinstance(failure, PoisonError)
    assert "Spark left 1 events of batch" in failure.message
    assert "the text moves its times" in failure.hint


def test_another_programs_topic_grows_and_holds_a_transaction(
    spark_session: SparkSession, made: HandMadeEvents
) -> None:
    """What is committed counts at once, and a partition that is added is read without a new start."""
    topic = f"{made.log.name}-clicks"
    client = AdminClient(client_config(made.log.log))
    spec = NewTopic(topic, 1, 1, config={"message.timestamp.type": "LogAppendTime"})
    client.create_topics([spec])[topic].result()
    events = {"topic": topic, "time": "at", "late": "1m", "schema": "at timestamp, path string"}
    settings = made.settings(events={"requests": events})
    producer = Producer(producer_config(made.log.log) | {"transactional.id": topic, **_OPEN})
    producer.init_transactions()

    def click(path: str, partition: int = 0) -> None:
        value = orjson.dumps({"at": datetime.now(UTC).isoformat(), "path": path})
        producer.produce(topic, value, b"k", partition)
        assert producer.flush(30) == 0

    def paths() -> dict[str, int]:
        found: Counter[str] = Counter()
        for _, path, count in made.rows(settings):
            found[path] += count
        return dict(found)

    producer.begin_transaction()
    click("/a")
    producer.commit_transaction()
    producer.begin_transaction()
    click("/open")
    with made.running(spark_session, settings) as stream:

        def shows(expected: dict[str, int]) -> None:
            wait_until(lambda: stream.active and paths() == expected, 60, lambda: repr(stream.failure()))

        shows({"/a": 1})
        producer.commit_transaction()
        shows({"/a": 1, "/open": 1})
        client.create_partitions([NewPartitions(topic, 2)])[topic].result()
        wait_until(lambda: len(producer.list_topics().topics[topic].partitions) == 2, 30)
        producer.begin_transaction()
        click("/new", 1)
        click("/b")
        producer.commit_transaction()
        # A batch of a known partition tells of the other one.
        shows({"/a": 1, "/open": 1, "/b": 1, "/new": 1})
    client.delete_topics([topic])[topic].result()


def test_e10_a_left_join_gives_unmatched_rows_at_the_end(
    spark_session: SparkSession, pipeline: HandMadeLog, tmp_path: Path
) -> None:
    made = HandMadeEvents(pipeline, tmp_path / "stream", kinds=("Request", "Answer"))
    settings = made.settings(
        "select r.at as start, r.path, r._pos as pos, o.n from requests r left join others o on o.user = r.user "
        "and o.at between r.at and r.at + interval 1 minute",
        key=["pos"], **APPEND,
    )  # fmt: skip
    made.request(10, "/a", user="u")
    made.request(11, "/b", user="v")
    made.emit(20, {"at": at(20).isoformat(), "user": "u", "n": 7}, kind="Answer")
    with made.running(spark_session, settings) as stream:
        made.settle(stream, made.cut())
        assert [row[1::2] for row in made.rows(settings)] == [("/a", 7)]
        # Nothing came any more, in either topic.
        made.settle(stream, made.cut(400))
        assert [row[1::2] for row in made.rows(settings)] == [("/a", 7), ("/b", None)]
    comparison = compare_stream(spark_session, settings, "traffic")
    assert comparison.is_clean, list(comparison.sentences("traffic"))


def test_sessions_hops_and_sketches_are_sparks(spark_session: SparkSession, made: HandMadeEvents) -> None:
    for second, user in ((0, "a"), (20, "b"), (45, "a"), (200, "c")):
        made.request(second, user=user, n=second)
    sessions = made.settings(
        "select session_window.start as start, path, count(*) n, hll_sketch_estimate(hll_sketch_agg(user)) users, "
        "approx_top_k(user, 1)[0].item top, cast(kll_sketch_get_quantile_bigint(kll_sketch_agg_bigint(n), 0.5) as int) "
        "half from requests group by session_window(at, '30 seconds'), path",
        **APPEND,
    )
    with made.running(spark_session, sessions) as stream:
        made.settle(stream, made.cut(900))
        assert made.rows(sessions) == [("12:00:00", "/a", 3, 2, "a", 20), ("12:03:20", "/a", 1, 1, "c", 200)]


REFUSED: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "parse": ("select count(* from requests", {}, ["Spark refuses", "line 1"]),
    "column": ("select window.start s, pth from requests group by window(at, '1 minute'), pth", {}, ["pth", "line 1"]),
    "no window": (
        "select path, count(*) n from requests\n group by path", {"key": ["path"]},
        ["groups without a window", "group by in line 2, column 2"],
    ),
    "distinct": ("select distinct path from requests", {"key": ["path"]}, ["without a window", "line 1, column 8"]),
    "join": (
        "select r.path, o.n from requests r join others o on o.user = r.user", {"key": ["path"], **APPEND},
        ["join without a bound", "join in line 1, column 36"],
    ),
    "update of a join": (
        "select r.path from requests r join others o on o.at between r.at and r.at + interval 1 minute",
        {"key": ["path"]}, ["Spark refuses", "Append"],
    ),
    "key": (WINDOWS, {"key": ["start", "road"]}, ["key names road", "start, path, n"]),
    "having": (
        f"{WINDOWS}\nhaving count(*) < 3", {}, ["condition on what is counted", "having in line", "append"],
    ),
    "clock": (
        "select window.start start, path, count(*) n from requests where at > now() - interval 1 hour\n"
        "group by window(at, '1 minute'), path", {}, ["asks the clock by now()", "_at"],
    ),
    "statement": ("insert overwrite directory '/nowhere' using json select * from requests", {}, ["Spark refuses"]),
    "none": ("select 1 as start", {"key": ["start"]}, ["reads none of its events"]),
    "keep": (
        WINDOWS.replace("1 minute", "30 days"), {}, ["keeps a record for 604,800 s", "2,592,120 s", "[outbox]"],
    ),
}  # fmt: skip


def joins_refused(made: HandMadeEvents, refusal: Callable[[Settings], str]) -> dict[str, str]:
    """Joins with a history that no store has, by what was not said of them."""
    delta = {"kind": "delta", "history": ["public.*"], "path": str(made.folder / "lake")}
    sql = {"kind": "sql", "history": ["public.*"], "url": "sqlite:///none.db"}
    cases: dict[str, tuple[str, dict[str, dict[str, Any]]]] = {
        "the pipeline has no table public.none": ("public.none", {}),
        "no sink keeps the history of public.orders": ("public.orders", {"lake": {**delta, "history": ["public.b"]}}),
        "reports is no Delta warehouse": ("public.orders", {"reports": sql}),
        "several sinks keep the history": ("public.orders", {"lake": delta, "pond": delta}),
        "the store of lake has no public.orders__history": ("public.orders", {"lake": delta, "reports": sql}),
    }
    found = {}
    for words, (table, sinks) in cases.items():
        events = {"topic": made.topic(), "time": "at", "schema": "at timestamp, path string, id int"}
        settings = made.settings(events={"requests": {**events, "as_of": table, "on": ["id"]}})
        unread = {name: UnreadSink.model_validate(one) for name, one in sinks.items()}
        said = refusal(settings.model_copy(update={"sinks": unread}))
        if words not in said:
            found[words] = said
    return found


def test_what_cannot_be_kept_is_refused(spark_session: SparkSession, pipeline: HandMadeLog, tmp_path: Path) -> None:
    made = HandMadeEvents(pipeline, tmp_path / "stream", kinds=("Request", "Answer"))

    def refusal(settings: Settings) -> str:
        try:
            return checked(spark_session, settings, stream_specs(settings, ["traffic"])["traffic"])
        except CdcError as found:
            assert found.hint
            return f"{found.message} {found.hint}"

    heard = {case: refusal(made.settings(sql, **changes)) for case, (sql, changes, _) in REFUSED.items()}
    lacking = {case: said for case, said in heard.items() if not all(word in said for word in REFUSED[case][2])}
    assert lacking == {}
    settings = made.settings()
    table = {"topic": pipeline.topic(), "time": "at", "late": "1m", "schema": "at timestamp, path string"}
    said = refusal(made.settings(events={"requests": table}))
    assert "is compacted" in said
    assert "view" in said
    for events, word in (
        ({"time": "when"}, "is no timestamp of its schema"),
        ({"schema": "at timestmp"}, "cannot be read"),
        ({"schema": "at string, path string"}, "is no timestamp"),
    ):
        one = {**table, "topic": made.topic(), **events}
        assert word in refusal(made.settings(events={"requests": one}))
    assert joins_refused(made, refusal) == {}
    bound = checked(spark_session, settings, stream_specs(settings, ["traffic"])["traffic"])
    assert "needs an event for 180 s" in bound
