"""What is known of streams in the log: their generations and batches, in the topic that views have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

from confluent_kafka import murmur2

from cdc.capture.topic_specs import TopicSpec, kept_topic_spec, table_topic_spec
from cdc.process.errors import ActiveError, CdcError, ConfigError, LogError, TopicError, UsageError
from cdc.record.documents import dumped
from cdc.record.position import MAX_EPOCH
from cdc.record.schema import TableSchema
from cdc.record.topic_names import set_apart_topic, stream_topic, views_topic
from cdc.settings.model import Settings
from cdc.settings.stream_settings import StreamSettings
from cdc.views.known_views import BatchNote, KnownView, batch_key, stream_key
from cdc.wire.records import BEGINNING, Span
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.broker_answers import facts_of_made, make_known
from connectors.kafka.clients import fetching_config
from connectors.kafka.compacted_topic import KafkaCompactedTopic
from connectors.kafka.record_reader import KafkaReading
from connectors.views.view_log import AnyRecord, KafkaViewOutput
from connectors.views.view_topics import known_views
from spark.streams.stream_rows import ResultRecords, StreamRecord
from spark.streams.stream_text import StreamSpec
from spark.streams.typed_events import Events
from spark.streams.verification import Published, rows_of


def stream_specs(settings: Settings, names: Sequence[str]) -> dict[str, StreamSpec]:
    """The streams of the settings with their texts, all by default. UsageError for one that they do not name,
    ConfigError where a text cannot be read."""
    if not settings.streams:
        raise ConfigError(
            "the settings name no stream", hint="add a [streams.NAME] section with its sql, key and events"
        )
    unknown = [name for name in names if name not in settings.streams]
    if unknown:
        hint = f"streams: {', '.join(settings.streams)}"
        raise UsageError(f"the settings name no stream {unknown[0]}", hint=hint)
    return {name: _spec(name, settings.streams[name]) for name in names or settings.streams}


def _spec(name: str, stream: StreamSettings) -> StreamSpec:
    try:
        sql = Path(stream.sql).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(
            f"the text of the stream {name} cannot be read: {stream.sql}: {said}", hint=f"[streams.{name}] sql names it"
        ) from None
    events = [
        Events(
            name=one,
            topic=of.topic,
            time=of.time,
            late_s=of.late.total_seconds(),
            schema=of.schema_,
            as_of=of.as_of,
            on=of.on,
        )
        for one, of in stream.events.items()
    ]
    return StreamSpec(name=name, sql=sql, key=stream.key, mode=stream.mode, events=events)


def digest_of(spec: StreamSpec) -> str:
    """The digest of all that a stream's rows depend on."""
    inputs = [
        (one.name, one.topic, one.time, one.late_s, one.schema, *((one.as_of, one.on) if one.as_of else ()))
        for one in spec.events
    ]
    said = dumped({"text": spec.sql, "key": spec.key, "mode": spec.mode, "events": inputs})
    return blake2b(said, digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class KnownStream:
    """The generation that is published, and its newest batch."""

    known: KnownView
    last: BatchNote | None


def known_streams(settings: Settings) -> dict[str, KnownStream]:
    """The streams that were published."""
    views = known_views(settings)
    return {name: KnownStream(known, views.batches.get(name)) for name, known in views.streams.items()}


def last_batch(documents: Mapping[bytes, bytes], name: str, generation: int) -> BatchNote | None:
    """The newest batch of a generation."""
    value = documents.get(batch_key(name, generation))
    return BatchNote.from_json(value) if value is not None else None


def ensure_stream(settings: Settings, spec: StreamSpec, shape: Callable[[str], TableSchema]) -> KnownView:
    """The stream's published generation, its first one made where there is none. ``shape``: of its table, by the topic.

    ConfigError where another text is published, TopicError where its topic was made anew.
    """
    found = known_streams(settings).get(spec.name)
    if found is None:
        return make_generation(settings, spec, 1, shape)
    known = found.known
    _require_published(spec, known)
    facts = facts_of_made(TopicAdmin(settings.log), [known.topic]).get(known.topic)
    if facts is None or facts.topic_id != known.topic_id:
        raise TopicError(
            f"the topic {known.topic} {'is gone' if facts is None else 'was made anew'}",
            hint=f"cdc stream rebuild {spec.name} begins a new generation in another topic",
        )
    return known


def published_stream(settings: Settings, name: str) -> tuple[StreamSpec, KnownView, BatchNote]:
    """A stream of the settings as it is published, with its newest batch. UsageError for an unknown one and before its
    first batch, ConfigError where another text is published."""
    spec = stream_specs(settings, [name])[name]
    found = known_streams(settings).get(name)
    if found is None or found.last is None:
        raise UsageError(f"the stream {name} has published nothing yet", hint=f"cdc stream run {name} does")
    _require_published(spec, found.known)
    return spec, found.known, found.last


def _require_published(spec: StreamSpec, known: KnownView) -> None:
    if known.digest != digest_of(spec):
        raise ConfigError(
            f"the stream {spec.name} is published by another text, key, mode or events",
            hint=f"cdc stream rebuild {spec.name} begins a new generation by those of now",
        )


def make_generation(
    settings: Settings, spec: StreamSpec, generation: int, shape: Callable[[str], TableSchema]
) -> KnownView:
    """Make a generation's topic and publish it, empty. ConfigError behind the last that a position can have."""
    if generation > MAX_EPOCH:
        raise ConfigError(
            f"the stream {spec.name} is at its last generation, {MAX_EPOCH}", hint="publish it under another name"
        )
    topic = stream_topic(settings.name, spec.name, generation)
    table = table_topic_spec(settings.log, topic)
    partitions = settings.streams[spec.name].partitions or table.partitions
    views = replace(
        table_topic_spec(settings.log, views_topic(settings.name)), partitions=1, config={"cleanup.policy": "compact"}
    )
    admin = TopicAdmin(settings.log)
    admin.create([views])
    specs: list[TopicSpec] = [
        replace(table, partitions=partitions),
        kept_topic_spec(settings.log, set_apart_topic(settings.name, spec.name), -1, 1),
    ]
    facts = make_known(admin, specs)[1][topic]
    known = KnownView(
        view=spec.name,
        generation=generation,
        topic=topic,
        topic_id=facts.topic_id,
        partitions=facts.partitions,
        digest=digest_of(spec),
        shape=shape(topic).to_json().decode(),
    )
    documents = KafkaCompactedTopic(settings.log, views_topic(settings.name))
    documents.write([(stream_key(spec.name), known.to_json())])
    return known


def result_records(settings: Settings, spec: StreamSpec, known: KnownView) -> ResultRecords:
    """What makes the records of a generation."""
    return ResultRecords(
        settings.name, spec.name, known.topic, known.partitions, known.generation, spec.mode, partition=murmur2
    )


class KafkaStreamOutput(KafkaViewOutput):
    """Implements :class:`spark.streams.ports.StreamOutput`."""

    def __init__(self, settings: Settings, known: KnownView) -> None:
        self._stream = known
        super().__init__(settings, known.view, known.generation, known.topic, known.partitions)

    def last(self) -> BatchNote | None:
        documents = KafkaCompactedTopic(self._settings.log, views_topic(self._settings.name)).read()
        return last_batch(documents, self._stream.view, self._stream.generation)

    def put(self, records: Sequence[StreamRecord], note: BatchNote) -> None:
        key = batch_key(self._stream.view, self._stream.generation)
        # First: where the stream was dropped the brokers refuse it at once, and of a topic that is gone say nothing.
        said: AnyRecord = (views_topic(self._settings.name), 0, key, note.to_json(), [])
        self.transact(records, lambda _: None, first=[said])

    def ended(self) -> CdcError:
        """Why another writer has ended this one."""
        name = self._stream.view
        known = known_views(self._settings).streams.get(name)
        if known is None:
            return ActiveError(f"the stream {name} was dropped", hint=f"cdc stream run {name} begins it anew")
        if known != self._stream:
            return LogError(
                f"the stream {name} is published as another generation now", hint="a runner follows by itself"
            )
        return ActiveError(f"another process runs the stream {name} now", hint="one cdc stream run per stream")

    def close(self) -> None:
        """Nothing is left open: what was not committed is never seen."""


def read_published(settings: Settings, known: KnownView) -> Published:
    """What stands in a generation's topic, and among the events that are set apart. LogError when no broker answers."""
    aside = set_apart_topic(settings.name, known.view)
    admin = TopicAdmin(settings.log)
    ends = admin.end_offsets({known.topic: known.partitions, aside: 1})
    spans = [Span(topic, p, BEGINNING, end) for topic, parts in ends.items() for p, end in parts.items()]
    rows: list[tuple[bytes, bytes | None, bytes]] = []
    apart: Counter[str] = Counter()
    reader = KafkaReading(tuple(sorted(fetching_config(settings.log).items()))).open()
    with closing(reader):
        for lot in reader.read(spans):
            if lot.topic == known.topic:
                rows += zip((key or b"" for key in lot.keys), lot.values, (pos or b"" for pos in lot.pos), strict=True)
                continue
            for number in range(len(lot.offsets)):
                headers = dict(lot.headers.get(number, ()))
                if headers.get("generation") == str(known.generation).encode():
                    apart[(headers.get("reason") or b"").decode()] += 1
    return Published(rows=rows_of(iter(rows)), set_apart=apart)
