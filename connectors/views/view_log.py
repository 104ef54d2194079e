"""Kafka as a view's runner sees it: the tables' topics to read, and the view's own topic to write in transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from cdc.process.errors import ActiveError, CdcError, DamagedError, LogError, TopicError
from cdc.record.position import Position
from cdc.record.progress import Offsets, Progress
from cdc.record.schema import TableSchema
from cdc.record.state import CommandState, FormState, ReadingState, RequestState, what_of
from cdc.record.tables_aside import AsideState
from cdc.record.topic_names import dead_topic, progress_topic, schema_topic, state_topic, views_topic
from cdc.settings.model import Settings
from cdc.views.known_views import claim_key
from cdc.views.log_cut import Fence, fence_of
from cdc.views.view_ports import AskedKeys, RunnerAnswer, answer_key, read_answer
from cdc.views.view_records import ViewRecord
from cdc.wire.dead_letter import DeadLetter
from cdc.wire.envelope import Headers
from cdc.wire.format import POS
from cdc.wire.records import RecordColumns, RecordReader, Span
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.clients import fetching_config, producer_config, reader_config
from connectors.kafka.compacted_topic import KafkaCompactedTopic, read_on, read_range
from connectors.kafka.dead_letters import letter_of
from connectors.kafka.feed import ProgressTopic
from connectors.kafka.record_reader import KafkaReading
from connectors.kafka.schema_registry import SchemaRegistry
from connectors.views.view_topics import ViewTopicsChanged, known_views

_T = TypeVar("_T")
_KINDS = frozenset(kind.WHAT for kind in (AsideState, FormState, ReadingState, RequestState, CommandState, AskedKeys))
_TIMEOUT_S = 30.0
_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


def _reading(settings: Settings) -> dict[str, Any]:
    """A reader that waits a little for more. Capture writes some hundred small batches a second, and an answer to each
    took a quarter of the runner's CPU, and a fifth of the broker's."""
    return fetching_config(settings.log) | {"fetch.min.bytes": 1024**2, "fetch.wait.max.ms": 20}


class _Asides:
    """Rows that the log lacks: dead letters of capture, and tables set aside or read. The documents that somebody asks
    the runner for stand in the same topic.

    Both topics are read on to their ends at every call. One thread at a time. LogError when no broker answers.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._consumer = Consumer(reader_config(settings.log))
        self._documents: dict[bytes, bytes] = {}
        self._next = 0

    def letters(self, start: int) -> tuple[Sequence[DeadLetter], int]:
        """See :meth:`cdc.views.view_ports.ViewInput.letters`."""
        found = []
        for message in read_on(self._consumer, self._settings.log, dead_topic(self._settings.name), 0, start):
            start = (message.offset() or 0) + 1
            letter = letter_of(message)
            if letter is not None:
                found.append(letter)
        return found, start

    def documents(self) -> Mapping[bytes, bytes]:
        """See :meth:`cdc.views.view_ports.ViewInput.documents`."""
        for message in read_on(self._consumer, self._settings.log, state_topic(self._settings.name), 0, self._next):
            self._next = (message.offset() or 0) + 1
            key, value = message.key(), message.value()
            if isinstance(key, bytes) and what_of(key) in _KINDS:
                if isinstance(value, bytes):
                    self._documents[key] = value
                else:
                    self._documents.pop(key, None)
        return self._documents

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


class KafkaViewInput:
    """Implements :class:`cdc.views.view_ports.ViewInput`. For one thread."""

    def __init__(self, settings: Settings, compaction_lag_s: float, retention_s: float) -> None:
        self._settings = settings
        self.compaction_lag_s = compaction_lag_s
        self.retention_s = retention_s
        self._feed = ProgressTopic(settings.log, progress_topic(settings.name))
        self._reader: RecordReader = KafkaReading(tuple(sorted(_reading(settings).items()))).open()
        self._shapes: dict[tuple[str, int], TableSchema] = {}
        self._asides = _Asides(settings)
        self.letters = self._asides.letters
        self.documents = self._asides.documents

    def progress(self) -> Progress | None:
        """The newest record that the topic had when the look began. Waits 50 ms for a first one."""
        return self._feed.catch_up(0.05)

    @property
    def progress_ms(self) -> int:
        """The timestamp of that record."""
        return self._feed.written_ms

    def beyond(self, offsets: Offsets) -> bool:
        """See the protocol. LogError when the brokers do not answer."""
        admin = TopicAdmin(self._settings.log)
        ends = admin.end_offsets(admin.counts(offsets))
        return any(end > offsets[topic].get(p, 0) for topic, found in ends.items() for p, end in found.items())

    def read(self, spans: Iterable[Span]) -> Iterator[RecordColumns]:
        return self._reader.read(spans)

    def shape(self, topic: str, version: int) -> TableSchema:
        """A version of a table's shape. The schema topic is read anew for a version that is not known yet.

        Raises TopicError when the schema topic does not have it.
        """
        if (topic, version) not in self._shapes:
            registry = SchemaRegistry(KafkaCompactedTopic(self._settings.log, schema_topic(self._settings.name)))
            self._shapes = {(shape.topic, shape.version): shape for shape in registry.versions()}
        found = self._shapes.get((topic, version))
        if found is None:
            raise TopicError(f"the schema topic has no version {version} of {topic}", hint="see cdc check")
        return found

    def close(self) -> None:
        """Close the consumers."""
        self._asides.close()
        self._feed.close()
        self._reader.close()


class WatchedViewInput(KafkaViewInput):
    """The same for a build that somebody watches. ``watch``: called with how many offsets of a reading are behind it,
    and how many it has."""

    def __init__(
        self, settings: Settings, compaction_lag_s: float, retention_s: float, watch: Callable[[int, int], None]
    ) -> None:
        super().__init__(settings, compaction_lag_s, retention_s)
        self._watch = watch

    def read(self, spans: Iterable[Span]) -> Iterator[RecordColumns]:
        wanted = list(spans)
        total = sum(span.end - max(0, span.start) for span in wanted)
        reached = {(span.topic, span.partition): max(0, span.start) for span in wanted}
        left = total
        for lot in super().read(wanted):
            place = (lot.topic, lot.partition)
            if lot.offsets and place in reached:
                left -= lot.offsets[-1] + 1 - reached[place]
                reached[place] = lot.offsets[-1] + 1
            self._watch(total - left, total)
            yield lot


AnyRecord = tuple[str, int, bytes | None, bytes | None, Headers]
"""A :class:`cdc.views.view_records.ViewRecord`, or one of which the key may be None."""


class KafkaViewOutput:
    """Implements :class:`cdc.views.view_ports.ViewOutput` for one generation. A second one ends the first.

    The transactional id is the topic's name, so that a zombie's records are never seen.
    """

    def __init__(self, settings: Settings, view: str, generation: int, topic: str, partitions: int) -> None:
        self._settings = settings
        self._view = view
        self._claims = views_topic(settings.name)
        self._key = claim_key(view, generation)
        self._answer_key = answer_key(view, generation)
        self._topic = topic
        self._partitions = partitions
        self._ends: dict[int, int] = {}
        self._claimed: Fence | None = None
        self._newest: Position | None = None
        self._told = ""
        config = producer_config(settings.log) | {
            "transactional.id": topic,
            "transaction.timeout.ms": 30_000,
            "message.timeout.ms": 30_000,
        }
        self._producer = Producer(config)
        self._do(lambda: self._producer.init_transactions(_TIMEOUT_S), "taking over the view's topic")

    def publish(self, records: Sequence[ViewRecord], claim: Fence | None) -> Mapping[int, int]:
        """See the protocol. Raises ActiveError when another runner writes, LogError when a record is not taken."""
        ends = self.transact(records, lambda ends: self._claim(claim, ends) if claim is not None else None)
        self._claimed = claim or self._claimed
        return ends

    def transact(
        self,
        records: Sequence[AnyRecord],
        note: Callable[[Mapping[int, int]], object],
        first: Sequence[AnyRecord] = (),
    ) -> Mapping[int, int]:
        """Write records, those of ``first`` before the others, then what ``note`` writes, in one transaction. Where the
        view's partitions end then. LogError and ActiveError as :meth:`publish`."""
        self._do(self._producer.begin_transaction, "writing the view's topic")
        ends = dict(self._ends)
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failures.append(error)  # Such a message says nothing of its offset.
                return
            offset, partition = message.offset(), message.partition()
            if offset is not None and partition is not None and message.topic() == self._topic:
                ends[partition] = max(ends.get(partition, 0), offset + 1)

        for some in (first, records):
            for record in some:
                self._produce(record, delivered)
            left = self._do(lambda: self._producer.flush(_TIMEOUT_S), "writing the view's topic") if some else 0
            if left or failures:
                self._do(self._producer.abort_transaction, "giving up a transaction of the view's topic")
                said = f": {failures[0].str()}" if failures else ""
                raise LogError(f"the view's topic took no records{said}", hint="check the brokers")
        note(ends)
        self._do(lambda: self._producer.commit_transaction(_TIMEOUT_S), "writing the view's topic")
        self._ends = ends
        return ends

    def note(self, key: bytes, value: bytes) -> None:
        """Write a document of the views topic, within the transaction."""
        self._producer.produce(self._claims, value=value, key=key, partition=0)

    def _claim(self, claim: Fence, ends: Mapping[int, int], held: str = "") -> None:
        aside = {self._topic: held} if held else {}
        self._told = held
        progress = Progress(epoch=claim.epoch, lsn=claim.lsn, offsets={self._topic: ends}, aside=aside)
        self.note(self._key, progress.to_json())

    def tell(self, held: Sequence[str]) -> None:
        """See the protocol. The view's progress is written once more with it: as far as it was, LSN 0 before any."""
        said = "; ".join(held)
        if said == self._told:
            return
        self._do(self._producer.begin_transaction, "writing the views topic")
        self._claim(self._claimed or Fence(1, 0), self._ends, said)
        self._do(lambda: self._producer.commit_transaction(_TIMEOUT_S), "writing the views topic")

    def answer(self, answer: RunnerAnswer) -> None:
        """See the protocol. Raises as :meth:`publish`."""
        self._do(self._producer.begin_transaction, "writing the views topic")
        value = answer.to_json()
        self._do(
            lambda: self._producer.produce(self._claims, value=value, key=self._answer_key, partition=0),
            "writing the views topic",
        )
        self._do(lambda: self._producer.commit_transaction(_TIMEOUT_S), "writing the views topic")

    def answered(self) -> str:
        found = read_answer(KafkaCompactedTopic(self._settings.log, self._claims).read().get(self._answer_key))
        return "" if found is None else found.id

    def _produce(self, record: AnyRecord, delivered: object) -> None:
        topic, partition, key, value, headers = record
        while True:
            try:
                self._producer.produce(
                    topic,
                    value=value,
                    key=key,
                    partition=partition,
                    headers=list(headers),
                    on_delivery=delivered,  # type: ignore[arg-type]
                )
                return
            except BufferError:
                self._producer.poll(0.1)

    def behind(self, ends: Mapping[int, int]) -> tuple[list[bytes], Mapping[int, int]]:
        found: list[bytes] = []
        reached = dict(ends)
        for partition in range(self._partitions):
            for message in read_range(self._settings.log, self._topic, partition, ends.get(partition)):
                key, offset = message.key(), message.offset()
                if isinstance(key, bytes) and offset is not None:
                    found.append(key)
                    reached[partition] = offset + 1
                    pos = _position(dict(message.headers() or ()).get(POS))
                    self._newest = self._newest if pos is None else max(pos, self._newest or pos)
        self._ends = reached
        return found, reached

    def newest(self) -> Position | None:
        return self._newest

    def claimed(self) -> Fence | None:
        value = KafkaCompactedTopic(self._settings.log, self._claims).read().get(self._key)
        progress = None if value is None else Progress.from_json(value)
        self._claimed = None if progress is None else fence_of(progress)
        self._told = "" if progress is None else progress.aside.get(self._topic, "")
        return self._claimed

    def _do(self, action: Callable[[], _T], doing: str) -> _T:
        try:
            return action()
        except (KafkaException, SystemError) as failure:
            # SystemError where a delivery report arrives while a fatal error is pending.
            said = failure if isinstance(failure, KafkaException) else failure.__cause__
            if not isinstance(said, KafkaException):
                raise
            error = said.args[0]
            if error.code() in _FENCED:
                raise self.ended() from None
            raise LogError(f"{doing}: {error.str()}", hint="check [log] and that the brokers run") from None

    def ended(self) -> CdcError:
        """Why another writer has ended this one: ViewTopicsChanged where it writes another generation."""
        known = known_views(self._settings).known.get(self._view)
        if known is not None and known.topic != self._topic:
            return ViewTopicsChanged(f"generation {known.generation} of the view {self._view} is published now")
        return ActiveError("another runner keeps this view now", hint="one runner per view")


def _position(pos: object) -> Position | None:
    """Of a record's header. None where it is no position."""
    try:
        return Position.parse(pos.decode() if isinstance(pos, bytes) else "")
    except (ValueError, DamagedError):
        return None
