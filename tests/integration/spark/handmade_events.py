"""Topics of events filled by hand, with the commit times that a test needs, and streams over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from cdc.capture.topic_specs import kept_topic_spec
from cdc.record.position import Position
from cdc.record.progress import PROGRESS_KEY, Offsets, Progress
from cdc.record.state import TopicsState
from cdc.record.topic_names import progress_topic, state_topic
from cdc.settings.model import Settings, parse
from cdc.wiring.streams import start_stream
from connectors.kafka.clients import producer_config
from connectors.kafka.compacted_topic import KafkaCompactedTopic
from connectors.streams.stream_topics import known_streams, read_published, stream_specs
from spark.streams.ports import StreamOutput
from spark.streams.stream_query import RunningStream
from spark.streams.stream_runner import covers
from spark.streams.verification import Published
from tests.integration.spark.handmade import HandMadeLog
from tests.waiting import TIME_SCALE, wait_until

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
WINDOWS = "select window.start as start, path, count(*) as n from requests group by window(at, '1 minute'), path"


def at(seconds: float) -> datetime:
    """So long after noon."""
    return NOON + timedelta(seconds=seconds)


def us(time: datetime) -> int:
    """In us since 1970."""
    return round(time.timestamp() * 1_000_000)


@dataclass
class HandMadeEvents:
    """Outbox topics beside the tables of a pipeline. ``now``: of the newest commit."""

    log: HandMadeLog
    folder: Path
    kinds: tuple[str, ...] = ("Request",)
    keep_ms: int = 7 * 86_400_000
    now: datetime = NOON
    lsn: int = 0x1000
    written: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        topics = [self.topic(kind) for kind in self.kinds]
        self.log.admin.create([kept_topic_spec(self.log.log, topic, self.keep_ms, 2) for topic in topics])
        state = KafkaCompactedTopic(self.log.log, state_topic(self.log.name))
        known = TopicsState.find(state.read())
        assert known is not None
        facts = self.log.admin.describe(topics)
        made = {topic: {"id": facts[topic].topic_id, "partitions": 2} for topic in topics}
        noted = TopicsState(
            cluster_id=known.cluster_id, topics={**known.topics, **made}, tables=known.tables, events=topics
        )
        state.write([(noted.key(), noted.to_json())])
        self._producer = Producer(producer_config(self.log.log))

    def topic(self, kind: str = "Request") -> str:
        return f"{self.log.name}.outbox.{kind}"

    def emit(
        self, after_s: float, value: Mapping[str, Any] | bytes, *, kind: str = "Request", partition: int = 0,
        repeated: bool = False, op: str = "",
    ) -> None:  # fmt: skip
        """An event that is committed so long after noon. ``repeated``: at the position of the one before."""
        self.now = max(self.now, at(after_s))
        self.lsn += 0 if repeated else 64
        headers: list[tuple[str, str | bytes | None]] = [("pos", Position(1, self.lsn, 1).text())]
        headers += [("op", op), ("ver", "1")] if op else [("id", f"{self.lsn:x}")]
        body = value if isinstance(value, bytes) else orjson.dumps(dict(value))
        self._producer.produce(self.topic(kind), body, b"k", partition, headers=[*headers, ("at", str(us(self.now)))])
        assert self._producer.flush(30 * TIME_SCALE) == 0

    def request(self, after_s: float, path: str = "/a", *, old_s: float = 0.0, **more: Any) -> None:
        """A request whose time is ``old_s`` before its commit."""
        partition = more.pop("partition", 0)
        time = (at(after_s) - timedelta(seconds=old_s)).isoformat()
        self.emit(after_s, {"at": time, "path": path, **more}, partition=partition)

    def ends(self) -> Offsets:
        return self.log.admin.end_offsets({self.topic(kind): 2 for kind in self.kinds})

    def cut(self, after_s: float | None = None) -> Offsets:
        """A progress record over all so far, of a commit so long after noon."""
        self.now = max(self.now, at(after_s)) if after_s is not None else self.now
        self.lsn += 64
        ends = self.ends()
        record = Progress(epoch=1, lsn=self.lsn, offsets={**self.log.offsets(), **ends}, at_us=us(self.now))
        KafkaCompactedTopic(self.log.log, progress_topic(self.log.name)).write([(PROGRESS_KEY, record.to_json())])
        return ends

    def settings(self, sql: str = WINDOWS, **stream: Any) -> Settings:
        """Settings with one stream, ``traffic``, over ``requests``, and ``others`` where there are two topics."""
        self.folder.mkdir(exist_ok=True)
        text = self.folder / "traffic.sql"
        text.write_text(sql, encoding="utf-8")
        schema = "at timestamp, path string, user string, n int"
        names = dict(zip(("requests", "others"), self.kinds, strict=False))
        events = {
            name: {"topic": self.topic(kind), "time": "at", "late": "1m", "schema": schema}
            for name, kind in names.items()
        }
        section = {"sql": str(text), "key": ["start", "path"], "events": events} | stream
        document = self.log.document({}, checkpoint=str(self.folder / "checkpoints"))
        log, spark, source = document["log"], document["spark"], document["source"]
        whole = {"name": self.log.name, "source": source, "log": log, "spark": spark, "streams": {"traffic": section}}
        return parse(whole)

    @contextmanager
    def running(
        self, session: SparkSession, settings: Settings, over: Callable[[StreamOutput], StreamOutput] = lambda one: one
    ) -> Iterator[RunningStream]:
        """The stream, started. ``over``: what its output is seen through."""
        specs = stream_specs(settings, ["traffic"])
        found = start_stream(session, settings, specs, "spark.log", "traffic", every="0 seconds", over=over)
        try:
            yield found
        finally:
            found.stop()

    def settle(self, stream: RunningStream, ends: Offsets) -> None:
        """Wait until all below these ends is published, and the windows that can be are closed."""

        def said() -> str:
            failure = stream.failure()
            return repr(failure) + (failure.hint if failure is not None else "")

        wait_until(lambda: not stream.active or (stream.last is not None and covers(stream.last.cuts, ends)), 90, said)
        assert stream.active, said()
        stream.settle()

    def published(self, settings: Settings) -> Published:
        """What stands in the topics of the present generation."""
        return read_published(settings, known_streams(settings)["traffic"].known)

    def rows(self, settings: Settings) -> list[tuple[Any, ...]]:
        """The rows of the table, in the order of their keys, each without the date."""
        rows = [orjson.loads(row) for _, row in sorted(self.published(settings).rows.items())]
        return [tuple(v[11:19] if isinstance(v, str) and v.endswith("Z") else v for v in row.values()) for row in rows]
