"""Streams put together: what ``cdc stream`` checks, runs, lists, verifies and builds anew."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from cdc.process.clock import SYSTEM_CLOCK
from cdc.process.errors import ConfigError, DifferenceFound, TopicError
from cdc.record.topic_names import set_apart_topic
from cdc.settings.model import Settings
from cdc.wiring import require_broker
from cdc.wiring.sinks import session_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc.record.progress import Offsets
    from cdc.record.schema import TableSchema
    from cdc.status.stream_lines import StreamFacts
    from spark.frames.ports import EventTopic, FrameLog
    from spark.session.stop import SinkStop
    from spark.streams.ports import StreamOutput
    from spark.streams.stream_query import RunningStream
    from spark.streams.stream_text import StreamSpec
    from spark.streams.verification import Comparison

log = logging.getLogger(__name__)
_CONF = {"spark.sql.shuffle.partitions": "4"}
"""Each is a partition of a stream's state, for as long as its checkpoint lives."""


@contextmanager
def streams_session(settings: Settings, stop: SinkStop | None = None) -> Iterator[SparkSession]:
    """A session of this process with the format ``headrace``. ConfigError when Spark is not installed."""
    require_broker(settings)
    try:
        from connectors.streams.stream_histories import past_parts
        from spark.session.package_zip import build_zip
        from spark.session.spark_session import end_session, own_python, start_session
        from spark.session.stop import ended_in_time
    except ImportError as missing:
        raise ConfigError(
            f"cdc stream needs a package that is not installed: {missing.name}", hint="pip install 'headrace[all]'"
        ) from None
    spec = session_of(settings, (), past_parts(settings))
    session = start_session(replace(spec, conf={**_CONF, **spec.conf}))
    try:
        if not (str(session.sparkContext.master).startswith("local") and own_python()):
            session.sparkContext.addPyFile(str(build_zip(spec.log_folder, ())))
        if stop is None:
            yield session
        else:
            with ended_in_time(session, stop), stop.on_signals():
                yield session
    finally:
        end_session(session)


def check_streams(settings: Settings, names: Sequence[str]) -> Iterator[str]:
    """A sentence about each stream that can be kept. Raises ConfigError, UsageError and TopicError for the others."""
    from connectors.streams.stream_topics import stream_specs

    specs = stream_specs(settings, names)
    with streams_session(settings) as session:
        for spec in specs.values():
            yield checked(session, settings, spec)


def checked(session: SparkSession, settings: Settings, spec: StreamSpec) -> str:
    """A sentence about a stream that can be kept. ConfigError, UsageError and TopicError for another."""
    from connectors.streams.stream_histories import joined_result
    from spark.frames.event_cuts import require_events
    from spark.streams.stream_rows import shape_of
    from spark.streams.stream_text import require_bounded, require_kept

    log = _frame_log(settings)
    result, _ = joined_result(session, settings, log, spec)
    shape = shape_of(spec.name, "", result.schema, spec.key)
    needed_s = require_bounded(session, spec, result)
    missing = []
    for one in spec.events:
        try:
            topic = log.events(one.topic)
        except TopicError:
            missing.append(one.topic)
            continue
        require_events(topic, joined=bool(one.as_of))
        require_kept(spec, one, topic.keep_ms, needed_s)
    columns = ", ".join(f"{column.name} {column.kind}" for column in shape.columns)
    waits = f"; there is no topic {', '.join(missing)} yet" if missing else ""
    return f"{spec.name}: key {', '.join(spec.key)}; columns {columns}; needs an event for {needed_s:,.0f} s{waits}"


def run_streams(settings: Settings, names: Sequence[str], *, until_caught_up: bool) -> None:
    """Keep streams until asked to stop. Raises the error of the first that could not go on, ConfigError where the
    address of their figures cannot be had."""
    from cdc.figures.http_server import serve_health
    from cdc.figures.stream_metrics import StreamHealth
    from connectors.streams.stream_topics import stream_specs
    from spark.session.spark_session import LOG_FILE
    from spark.session.stop import STOP_FILE, SinkStop
    from spark.streams.stream_runner import keep_streams

    specs = stream_specs(settings, names)
    folder = session_of(settings, ()).log_folder
    stop, log_file = SinkStop(folder / STOP_FILE), str(folder / LOG_FILE)
    health = StreamHealth(SYSTEM_CLOCK, settings.limits.lag.total_seconds(), settings.name)
    address, topics = settings.stream_runner.http_address, dict[str, "EventTopic"]()
    with ExitStack() as stack:
        if address:
            stack.enter_context(closing(serve_health(health, address, "[stream_runner] http_address")))
        session = stack.enter_context(streams_session(settings, stop))
        frames = _frame_log(settings)
        start = partial(start_stream, session, settings, specs, log_file)
        ends = {name: _ends(frames, spec, topics) if until_caught_up else None for name, spec in specs.items()}
        shown = (health, lambda name: _ends(frames, specs[name], topics)) if address else None
        keep_streams(session, start, ends, stop, SYSTEM_CLOCK, log_file, shown)


def _ends(log: FrameLog, spec: StreamSpec, topics: dict[str, EventTopic]) -> Offsets:
    """Where the inputs of a stream end. ``topics``: those that were found before."""
    from spark.frames.event_source import newest_cut

    found = {}
    for one in spec.events:
        try:
            topic = topics.get(one.topic) or topics.setdefault(one.topic, log.events(one.topic))
        except TopicError:  # it comes with its first event
            continue
        cut = newest_cut(log, topic)
        found[one.topic] = cut.offsets if cut is not None else {}
    return found


def start_stream(
    session: SparkSession,
    settings: Settings,
    specs: Mapping[str, StreamSpec],
    log_file: str,
    name: str,
    every: str = "1 second",
    over: Callable[[StreamOutput], StreamOutput] = lambda output: output,
) -> RunningStream:
    """Start a stream's query, from its checkpoint or as a new generation. Raises what stands in the way: ConfigError,
    UsageError, TopicError, LogError. ``every``: how often a batch begins."""
    from connectors.spark_log.frame_log import given_options
    from connectors.streams.stream_histories import joined_result
    from connectors.streams.stream_topics import KafkaStreamOutput, ensure_stream, make_generation, result_records
    from spark.frames.event_cuts import require_events
    from spark.streams.checkpoint import checkpoint_folder, is_sound, planned_batches, require_beginning
    from spark.streams.stream_query import RunningStream, StreamParts
    from spark.streams.stream_rows import shape_of
    from spark.streams.stream_text import require_bounded, require_kept

    spec, frames = specs[name], _frame_log(settings)
    topics = [frames.events(one.topic) for one in spec.events]
    for one, topic in zip(spec.events, topics, strict=True):
        require_events(topic, joined=bool(one.as_of))
    result, pasts = joined_result(session, settings, frames, spec)
    needed_s = require_bounded(session, spec, result)
    for one, topic in zip(spec.events, topics, strict=True):
        require_kept(spec, one, topic.keep_ms, needed_s)

    def shape(topic: str) -> TableSchema:
        return shape_of(name, topic, result.schema, spec.key)

    known = ensure_stream(settings, spec, shape)
    output = KafkaStreamOutput(settings, known)
    folder = checkpoint_folder(settings.spark.checkpoint, name, known.generation)
    if not is_sound(output.last(), planned_batches(session, folder)):
        require_beginning(name, topics)
        known = make_generation(settings, spec, known.generation + 1, shape)
        log.warning("stream_begins_again", extra={"stream": name, "generation": known.generation})
        output = KafkaStreamOutput(settings, known)
        folder = checkpoint_folder(settings.spark.checkpoint, name, known.generation)
    parts = StreamParts(
        spec=spec,
        options=given_options(settings),
        output=over(output),
        records=result_records(settings, spec, known),
        set_apart=(set_apart_topic(settings.name, name), 1, settings.log.max_message_bytes),
        checkpoint=folder,
        clock=SYSTEM_CLOCK,
        log_file=log_file,
        every=every,
        pasts=pasts,
    )
    return RunningStream(session, parts, swept=known.generation > 1)


def _frame_log(settings: Settings) -> FrameLog:
    from connectors.spark_log.frame_log import KafkaFrameLog

    return KafkaFrameLog(settings.name, settings.log)


def listed_streams(settings: Settings) -> Sequence[StreamFacts]:
    """The streams that were published. LogError, at once, when no broker takes a connection."""
    from connectors.views.view_topics import published_streams

    require_broker(settings)
    return list(published_streams(settings).values())


def rebuild_stream(settings: Settings, name: str, *, shorter: bool) -> str:
    """Begin a new generation. A runner of the former one ends, or follows. ``shorter``: even where it will lack rows
    of the former one, else TopicError."""
    from connectors.streams.stream_histories import joined_result
    from connectors.streams.stream_topics import KafkaStreamOutput, known_streams, make_generation, stream_specs
    from spark.streams.checkpoint import require_rows
    from spark.streams.stream_rows import shape_of
    from spark.streams.stream_text import require_bounded

    spec, frames = stream_specs(settings, [name])[name], _frame_log(settings)
    former = known_streams(settings).get(name)
    if former is not None and not shorter:
        require_rows(name, [frames.events(one.topic) for one in spec.events])
    with streams_session(settings) as session:
        result, _ = joined_result(session, settings, frames, spec)
        require_bounded(session, spec, result)
        columns = result.schema
    number = former.known.generation + 1 if former is not None else 1
    known = make_generation(settings, spec, number, lambda topic: shape_of(name, topic, columns, spec.key))
    if former is not None:
        # Whoever still writes the former one hears that he is not alone.
        KafkaStreamOutput(settings, former.known)
    return f"{name}: generation {number} begins in {known.topic}; cdc stream run {name} fills it"


def drop_stream(settings: Settings, name: str, *, former: bool) -> Iterator[str]:
    """End a stream, or its ``former`` generations. A sentence for each part. UsageError where there is none."""
    from connectors.streams.stream_ending import drop_stream as drop
    from spark.streams.checkpoint import checkpoint_folder, remove_checkpoint

    def remove(generations: Iterable[int]) -> Iterator[str]:
        folders = [checkpoint_folder(settings.spark.checkpoint, name, number) for number in generations]
        # Spark reaches a folder of any kind.
        with streams_session(settings) as session:
            yield from (folder for folder in folders if remove_checkpoint(session, folder))

    require_broker(settings)
    yield from drop(settings, name, remove, former=former)


def verify_stream(settings: Settings, name: str) -> Iterator[str]:
    """What a stream was found to be. Raises DifferenceFound where it differs, and as :func:`compare_stream`."""
    from connectors.streams.stream_topics import published_stream

    published_stream(settings, name)  # refused without a start of Spark
    with streams_session(settings) as session:
        comparison = compare_stream(session, settings, name)
    yield from comparison.sentences(name)
    if not comparison.is_clean:
        raise DifferenceFound(f"the stream {name} differs from its events", hint=f"cdc stream rebuild {name}")


def compare_stream(session: SparkSession, settings: Settings, name: str) -> Comparison:
    """Compute a stream anew, and compare. UsageError before its first batch, ConfigError for a changed text, TopicError
    where retention has cut a topic of its events, PoisonError where its key has several rows."""
    from connectors.spark_log.frame_log import given_options
    from connectors.streams.stream_histories import past_tables
    from connectors.streams.stream_topics import published_stream, read_published, result_records
    from spark.streams.checkpoint import require_whole
    from spark.streams.stream_query import StreamParts
    from spark.streams.verification import MemoryOutput, verified

    spec, known, last = published_stream(settings, name)
    frames = _frame_log(settings)
    require_whole(name, [frames.events(one.topic) for one in spec.events])
    parts = StreamParts(
        spec=spec,
        options=given_options(settings),
        output=MemoryOutput(),
        records=result_records(settings, spec, known),
        set_apart=(set_apart_topic(settings.name, name), 1, settings.log.max_message_bytes),
        checkpoint="",
        clock=SYSTEM_CLOCK,
        log_file="spark.log",
        every="0 seconds",
        pasts=past_tables(session, settings, frames, spec),
    )
    return verified(session, parts, last, read_published(settings, known))
