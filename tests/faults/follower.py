"""``cdc sink`` without its JVM: a store fed from the topics by a plain consumer, through all that the queries use.

The store, its floors, dead letters and watermark are the application's own
(:class:`spark.stores.store_thread.Store`); only where the records come from is another. A life takes a second to
start instead of twenty, so it can be killed often.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from cdc.process.clock import SYSTEM_CLOCK
from cdc.process.errors import LogError
from cdc.process.logs import configure
from cdc.record.progress import Offsets
from cdc.settings.model import LogSettings, load
from cdc.wire.format import HEADERS
from cdc.wiring.sinks import build_sinks
from connectors.kafka.broker_answers import PASSING
from connectors.kafka.clients import reader_config
from spark.figures.sink_metrics import Metrics
from spark.queries.log_watch import LogWatch
from spark.records.source import EARLIEST, RECORD_SCHEMA
from spark.runner.application import SinkApplication
from spark.stores.store_thread import Store, Surroundings
from spark.stores.watermark import Claim, LogView

BATCH = 3_000
log = logging.getLogger("spark.follower")
"""Named so that the process shows it."""


def follow_sink(argv: Sequence[str]) -> None:
    """Feed the store of one sink until told to stop; ``argv``: the settings file, the sink's name."""
    config, name = argv
    settings = load(Path(config))
    configure(0)
    command = _Wish()
    Following(build_sinks(settings, [name]), name, settings.log).run(command)


class _Wish:
    """Set by SIGTERM."""

    def __init__(self) -> None:
        self.stop = False
        signal.signal(signal.SIGTERM, self._wanted)

    def _wanted(self, _number: int, _frame: FrameType | None) -> None:
        self.stop = True


class Following:
    """One store and its consumer."""

    def __init__(self, application: SinkApplication, name: str, log: LogSettings) -> None:
        view = LogView()
        around = Surroundings(facts=application.facts, dead=application.dead, view=view, metrics=Metrics())
        spec = application.specs[name]
        self._store = Store(name, lambda: application.connect(spec), around)
        self._watch = LogWatch([self._store], application.facts, application.open_feed(), view)
        self._log = log

    def run(self, command: _Wish) -> None:
        """Begin again whenever the store's fault asks for it, as a query would."""
        store = self._store
        starts = store.run(store.begin)
        self._watch.start()
        log.info("following")
        try:
            while not command.stop:
                self._feed(starts, command)
                starts = store.run(store.begin)
        finally:
            self._watch.close()
            store.end()

    def _feed(self, starts: Offsets, command: _Wish) -> None:
        at = {topic: {p: max(0, offset) for p, offset in parts.items()} for topic, parts in starts.items()}
        with closing(Consumer(reader_config(self._log))) as consumer:
            consumer.assign([TopicPartition(t, p, _from(o)) for t, parts in starts.items() for p, o in parts.items()])
            while not command.stop and self._store.fault is None:
                messages = list(_sound(consumer.consume(BATCH, timeout=0.1)))
                if not messages:
                    continue
                for message in messages:
                    at[message.topic() or ""][message.partition() or 0] = (message.offset() or 0) + 1
                claim = Claim({topic: dict(parts) for topic, parts in at.items()}, SYSTEM_CLOCK.monotonic())
                records = table_of(messages)
                self._store.run(lambda: self._store.settle(records, claim))  # noqa: B023 - run at once


def _from(offset: int) -> int:
    return OFFSET_BEGINNING if offset == EARLIEST else offset


def _sound(messages: Iterable[Message]) -> Iterable[Message]:
    passing = (KafkaError._PARTITION_EOF, KafkaError.UNKNOWN_TOPIC_OR_PART, *PASSING)
    for message in messages:
        error = message.error()
        if error is None:
            yield message
        elif error.code() not in passing:
            raise LogError(f"the broker says {error.str()}")


def headers_of(message: Message) -> list[tuple[str, bytes | None]]:
    """As a list of pairs, which is what a consumer gives."""
    headers: Any = message.headers()
    return list(headers or ())


def table_of(messages: Iterable[Message]) -> pa.Table:
    """Messages as the queries have them."""
    rows: list[dict[str, Any]] = []
    for message in messages:
        headers = headers_of(message)
        known = {name: value for name, value in headers if name in HEADERS}
        rows.append(
            {
                **{name: known.get(name) for name in HEADERS},
                "topic": message.topic(),
                "partition": message.partition(),
                "offset": message.offset(),
                "time_ms": message.timestamp()[1],
                "key": message.key(),
                "value": message.value(),
                "headers": None if len(known) == len(headers) else [{"key": k, "value": v} for k, v in headers],
            }
        )
    return pa.Table.from_pylist(rows, schema=RECORD_SCHEMA)
