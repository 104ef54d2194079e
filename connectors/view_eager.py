"""Topics that Debezium fills, as an eager view's runner sees them, and the view's own topic beside them.

Records come through the translation that the sinks use (:mod:`spark.debezium_feed`). How far the topics hold the
source is asked of Kafka Connect, as the sinks ask.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from cdc.clock import SYSTEM_CLOCK, Clock
from cdc.dead import DeadLetter
from cdc.epochs import FIRST_EPOCH, EpochsState
from cdc.errors import ConfigError, TopicError
from cdc.progress import Offsets, Progress
from cdc.schema import TableSchema
from cdc.settings import Settings, is_postgres
from cdc.state import TopicsState
from cdc.topic import TableName, schema_topic, state_topic
from cdc.views.eager import ShownLsns, TopicsReach, cut_to, rests_long
from cdc.views.fences import Fence, fence_at
from cdc.views.known_views import claim_key
from cdc.views.sql_types import SqlType, type_of
from cdc.views.state_reach import Reached
from cdc.views.stored_values import plain_types
from cdc.views.view_state import ViewState
from cdc.wire.format import HEADERS, POS, REASON_HEADER
from cdc.wire.records import Lot, Span
from connectors.connect.connector import Connector
from connectors.connect.connector_epochs import NotedEpochs, read_epochs
from connectors.connect.topics import noted_ends
from connectors.debezium.partition_reading import reader_of_partitions
from connectors.debezium.source_progress import ConnectProgress
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.clients import fetching_config
from connectors.kafka.compacted import KafkaCompactedTopic
from connectors.kafka.doubted_topics import facts_of_made
from connectors.kafka.record_reader import KafkaReading
from connectors.kafka.schema_registry import EmbeddedShapes, SchemaRegistry
from connectors.kafka.topic_problems import raise_first, state_problems
from connectors.view_log import KafkaViewOutput
from connectors.view_tombstones import LoneTombstones
from connectors.view_topics import ViewTopicsChanged
from connectors.view_unsaid import UnsaidNulls

if TYPE_CHECKING:
    from spark.debezium_feed import Translation
    from spark.ports import ProgressFeed

log = logging.getLogger(__name__)
_ASK_S = 1.0
_COLUMNS = ("offset", "time_ms", "key", "value", *HEADERS)


def require_places(topics: Mapping[str, str], noted: Mapping[str, str]) -> None:
    """ViewTopicsChanged where a table (name -> topic) is noted with another topic: its rows come there now (H213).

    >>> require_places({"public.a": "x"}, {"public.b": "y"})
    """
    for table, topic in sorted(topics.items()):
        if noted.get(table, topic) != topic:
            raise ViewTopicsChanged(f"the rows of {table} are in the topic {noted[table]}, and were read from {topic}")


def require_within(reach: TopicsReach, offsets: Offsets, epoch: int) -> None:
    """TopicError where a topic ends below what a state of an epoch has read of it: it is not the one that was read,
    and what it gets now would be passed over (H213). Where a newer epoch begins below that, it is read from there.

    >>> require_within(TopicsReach(offsets={"t": {0: 5}}), {"t": {0: 5}}, 1)
    """
    begun = reach.begun.get(epoch, {})
    for topic, ends in sorted(reach.offsets.items()):
        for partition, end in ends.items():
            read = offsets.get(topic, {}).get(partition, 0)
            if min(read, begun.get(topic, {}).get(partition, read)) > end:
                raise TopicError(
                    f"the topic {topic} ends at {end}, and {read} of its partition {partition} was read: it was made "
                    "anew, or is an older copy",
                    hint="cdc connect offsets --reset, then cdc connect resume: each table is read again",
                )


def require_epoch(epochs: EpochsState, reached: Reached) -> None:
    """TopicError where a state is of an epoch that the log does not know, or knows under another identity: positions of
    the two mean nothing beside each other, and where the other one begins would be passed over (H237).

    >>> require_epoch(EpochsState().begin({}, "b"), Reached(plan="p", generation=1, fence=Fence(2, 8), epoch_id="b"))
    """
    if not epochs.knows(reached.fence.epoch, reached.epoch_id):
        raise TopicError(
            f"the state of the view was made in another epoch {reached.fence.epoch} than the log's: the log was put "
            "back to before that one",
            hint="cdc view rebuild, and the next cdc view run builds it anew from today's topics",
        )


def require_kept_key(shape: TableSchema, newest: TableSchema | None, kept: Mapping[str, SqlType] | None) -> None:
    """ConfigError where a table's ``newest`` shape has another key than ``kept``, by which a view keeps its rows: two
    rows would be one (H214). So it is where a column of it has another type: none of the rows would have a key (H563).
    A record of a former shape says nothing."""
    if kept is None or shape != newest:
        return
    key = {column.name: type_of(column) for column in shape.key}
    if key.keys() != kept.keys() or any(plain_types(kept[name]).isdisjoint(plain_types(key[name])) for name in key):
        raise ConfigError(
            f"the key of {shape.table} is ({_said(key)}) now, and the view keeps its rows by ({_said(kept)})",
            hint="a view of the changed table is another one: another name in cdc.toml, and in the stores",
        )


def _said(key: Mapping[str, SqlType]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in sorted(key.items()))


def _behind(epochs: EpochsState, epoch: int, ends: Offsets) -> dict[str, dict[int, int]]:
    """Where the epochs after this one begin. A topic of which nothing is noted was made since: all of it is of them
    (hazard H573)."""
    found = {topic: dict(parts) for topic, parts in epochs.behind(epoch).items()}
    for topic, parts in ends.items():
        noted = found.get(topic, {})
        made = {p: 0 for p in parts if p not in noted and epochs.epoch(topic, p, 0) > epoch}
        if made:
            found[topic] = noted | made
    return found


class SourceLooks:
    """The source's epochs and LSN, asked about once a second. For one thread.

    ``feed``: says what the connector has read. None where its reading is not known, and counts as over.
    """

    def __init__(self, settings: Settings, feed: ProgressFeed | None, clock: Clock = SYSTEM_CLOCK) -> None:
        self.clock = clock
        self._settings = settings
        self._feed = feed
        self._due_s = clock.monotonic()
        self.epochs = EpochsState()
        """As noted at the last look."""
        self.noted = TopicsState(cluster_id="")
        """The topics of tables, as noted at the last look. None is before the first one."""
        self._newest: Progress | None = None

    def reach(self, ends: Offsets) -> TopicsReach:
        """The facts, of topics that ended there behind :meth:`ask`."""
        epochs, newest = self.epochs, self._newest
        known = newest is not None and newest.epoch == epochs.latest
        return TopicsReach(
            epoch=epochs.latest,
            lsn=newest.lsn if newest is not None and known else 0,
            offsets=ends,
            settled=known or self._feed is None,
            reread=newest is not None and known and newest.reread,
            begun={epoch: _behind(epochs, epoch, ends) for epoch in range(FIRST_EPOCH, epochs.latest)},
            epoch_id=epochs.identity(epochs.latest),
        )

    def ask(self) -> bool:
        """Ask, where that is due. Returns whether the notes were read: it is due again until :meth:`rest`. The topics'
        ends count where they are asked behind it.

        The notes are read behind the connector's word: that an epoch's reading is over says something of the topics
        alone that were noted before it (H213).
        """
        now_s = self.clock.monotonic()
        found = self._feed.poll(0.0) if self._feed is not None else []
        self._newest = found[-1] if found else self._newest
        if not found and now_s < self._due_s:
            return False
        self._due_s = now_s  # A look that fails is due again, and one whose finding is refused.
        documents = KafkaCompactedTopic(self._settings.log, state_topic(self._settings.name)).read()
        self.epochs = EpochsState.find(documents) or EpochsState()
        self.noted = TopicsState.find(documents) or self.noted
        return True

    def rest(self) -> None:
        """The finding holds: ask again in a second."""
        self._due_s = self.clock.monotonic() + _ASK_S


def connector_feed(settings: Settings) -> ConnectProgress | None:
    """What Kafka Connect says of the connector. None where the settings name none."""
    if settings.debezium is None:
        return None
    connector = Connector(settings)
    return ConnectProgress(
        connector.offsets,
        partial(noted_ends, settings),
        partial(read_epochs, settings),
        config=connector.running_config,
        has_lsn=is_postgres(settings),
    )


class EagerViewInput:
    """Implements :class:`cdc.views.view_ports.ViewInput` over topics that Debezium fills. For one thread.

    ``state``: the one that it is read into. ``topics``: of the tables. ``shown``: takes what each cut shows.
    ``looks``: in the place of those that ask Kafka Connect.
    """

    def __init__(
        self,
        settings: Settings,
        state: ViewState,
        topics: Mapping[TableName, str],
        shown: ShownLsns,
        *,
        compaction_lag_s: float,
        retention_s: float,
        looks: SourceLooks | None = None,
    ) -> None:
        self.compaction_lag_s = compaction_lag_s
        self.retention_s = retention_s
        self.progress_ms = 0
        self._settings = settings
        self._state = state
        self._topics = {str(table): topic for table, topic in topics.items()}
        self._tables = list(self._topics)
        relations = {topic: state.plan.relations[table] for table, topic in topics.items()}
        self._keys = {topic: {name: one.kind(name) for name in one.key} for topic, one in relations.items()}
        self._shown = shown
        self._looks = looks or SourceLooks(settings, connector_feed(settings))
        self._clock = self._looks.clock
        self._admin = TopicAdmin(settings.log)
        made = facts_of_made(self._admin, topics.values())
        self._partitions = {topic: found.partitions for topic, found in made.items()}
        self._registry = SchemaRegistry(KafkaCompactedTopic(settings.log, schema_topic(settings.name)))
        self._reading = KafkaReading(tuple(sorted(fetching_config(settings.log).items())))
        self._reader = self._reading.open()
        self._translation: Translation | None = None
        tables = {topic: table for table, topic in topics.items()}
        self._tombstones = LoneTombstones(state, tables, self.shape)
        self._unsaid = UnsaidNulls(state, tables, self.shape, self._sure_ms)
        self._next: dict[tuple[str, int], int] = {}

    def progress(self) -> Progress | None:
        """All that the topics hold now, as a cut. None while the connector reads its tables for the first time.

        TopicError where a topic or an epoch is not the one that was read, ViewTopicsChanged where a table has another
        topic, or more partitions.
        """
        if self._looks.ask():
            self._require_topics()
            self._looks.rest()
        self.progress_ms = self._clock.now_ns() // 1_000_000
        reach = self._looks.reach(self._admin.end_offsets(self._partitions))
        reached = self._state.reached
        require_epoch(self._looks.epochs, reached)
        require_within(reach, reached.offsets, reached.fence.epoch)
        if not reach.settled and not reached.built:
            return None
        rests = rests_long(reached, self.progress_ms, self.retention_s)
        cut = cut_to(reach, reached, None if rests else self._shown.at(reached.fence), self._tables)
        self._shown.note(Fence(cut.epoch, cut.lsn), reach.shown)
        return cut

    def _require_topics(self) -> None:
        """Of a topic that nobody has noted, as a pattern's, its name and ends alone are known."""
        noted = self._looks.noted
        require_places(self._topics, noted.tables)
        facts = facts_of_made(self._admin, self._partitions)
        self._looks.epochs = self._looks.epochs.of_topics({topic: found.topic_id for topic, found in facts.items()})
        own = {topic: noted.topics[topic] for topic in self._partitions if topic in noted.topics}
        if own:
            known = TopicsState(cluster_id=noted.cluster_id, topics=own, tables={})
            raise_first(state_problems(known, facts, noted.cluster_id))
        if any(found.partitions > self._partitions[topic] for topic, found in facts.items()):
            raise ViewTopicsChanged("a topic has more partitions now")

    def beyond(self, offsets: Offsets) -> bool:
        """See the protocol. LogError when the brokers do not answer."""
        ends = self._admin.end_offsets({topic: self._partitions[topic] for topic in offsets})
        return any(end > offsets[topic].get(p, 0) for topic, found in ends.items() for p, end in found.items())

    def read(self, spans: Iterable[Span]) -> Iterator[Lot]:
        """The records as records of ours.

        ConfigError where Spark's package is not installed. PositionsFell where the connector's order has begun anew,
        and SnapshotAgain where the next look begins another epoch.
        """
        wanted = list(spans)
        if any(self._next.get(span[:2], span.start) != span.start for span in wanted):
            self._translation = None  # What it knows of the order lies ahead.
        if self._translation is None:
            self._translation = self._translated()
        self._unsaid.begin()
        whole = False
        try:
            for lot in self._reader.read(wanted):
                yield self._unsaid.said(self._tombstones.placed(translated_lot(self._translation, lot)))
            whole = True
        finally:
            if not whole:
                self._translation = None
        self._next |= {span[:2]: span.end for span in wanted}

    def _sure_ms(self) -> float:
        return self._clock.now_ns() / 1e6 - self.compaction_lag_s * 1000 / 2

    def _translated(self) -> Translation:
        try:
            from spark.debezium_feed import Translation  # noqa: PLC0415 - it loads Spark's client, of use here alone
        except ImportError as missing:
            raise ConfigError(
                f"a view over Debezium's topics needs a package that is not installed: {missing.name}",
                hint="pip install 'headrace[all]'",
            ) from None
        settings = self._settings
        return Translation(
            EmbeddedShapes(self._registry),
            NotedEpochs(settings, lambda: Connector(settings).offsets()),
            earlier=self._reading.open,
            reader=reader_of_partitions(settings),
            clock=self._clock,
        )

    def shape(self, topic: str, version: int) -> TableSchema:
        """A version of a table's shape, the newest for 0. TopicError when the schema topic does not have it.

        ConfigError where the newest one has another key than the view keeps its rows by: two rows would be one (H214).
        """
        found = self._known(topic, version)
        if found is None:
            self._registry.refresh()
            found = self._known(topic, version)
        if found is None:
            raise TopicError(
                f"the schema topic has no version {version} of {topic}",
                hint="[debezium] schemas = true lets each record carry its schema",
            )
        require_kept_key(found, self._known(topic, 0), self._keys.get(topic))
        return found

    def _known(self, topic: str, version: int) -> TableSchema | None:
        of_topic = [shape for shape in self._registry.versions() if shape.topic == topic]
        return next((shape for shape in reversed(of_topic) if version in (0, shape.version)), None)

    def letters(self, start: int) -> tuple[Sequence[DeadLetter], int]:
        """None: Debezium puts no row aside."""
        return (), start

    def documents(self) -> Mapping[bytes, bytes]:
        """None: no table of Debezium's is set aside."""
        return {}

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()


def translated_lot(translation: Translation, lot: Lot) -> Lot:
    """The records of a lot as records of ours. Those that cannot be read are logged and left out.

    PositionsFell and SnapshotAgain as :class:`spark.debezium_feed.Translation` raises them.
    """
    from spark.source import headers_of, records_of  # noqa: PLC0415 - see above

    rows = translation(records_of([lot])).to_pylist()
    for row in rows:
        reason = dict(headers_of(row)).get(REASON_HEADER)
        if row[POS] is None and reason is not None:
            place = {name: row[name] for name in ("topic", "partition", "offset")}
            log.error("view_record_unreadable", extra=place | {"reason": reason.decode(errors="replace")})
    kept = [row for row in rows if row[POS] is not None]
    columns: list[list[Any]] = [[row[name] for row in kept] for name in _COLUMNS]
    offsets, times_ms, keys, values, pos, op, ver = columns
    return Lot(lot.topic, lot.partition, offsets, times_ms, keys, values, pos, op, ver, {})


class EagerViewOutput(KafkaViewOutput):
    """The topic of an eager view. It claims the LSN that the documents show at least, and not their fence."""

    def __init__(self, settings: Settings, view: str, generation: int, topic: str, partitions: int) -> None:
        super().__init__(settings, view, generation, topic, partitions)
        self._own_key = claim_key(view, generation)
        self._last: Progress | None = None
        self.shown = ShownLsns()

    def claimed(self) -> Fence | None:
        """The newest fence of what stands behind the ends that :meth:`behind` was asked for."""
        super().claimed()
        value = KafkaCompactedTopic(self._settings.log, self._claims).read().get(self._own_key)
        self._last = None if value is None else Progress.from_json(value)
        self._claimed = None if self._newest is None else fence_at(self._newest)
        return self._claimed

    def _claim(self, claim: Fence, ends: Mapping[int, int], held: str = "") -> None:
        """Write what is shown at least, never less than before."""
        found = self.shown.at(claim)
        if found is None and self._last is None:
            return
        last = self._last
        least = max(Fence(last.epoch, last.lsn), found or Fence(0, 0)) if last is not None else found
        assert least is not None
        super()._claim(least, ends, held)
        self._last = Progress(epoch=least.epoch, lsn=least.lsn)
