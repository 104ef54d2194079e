"""Where a connector's positions started over: noted in ``<name>.state``, read by the sinks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from cdc.clock import SYSTEM_CLOCK, Clock
from cdc.epochs import FIRST_EPOCH, EpochsState, KeyedAnewState, require_reset
from cdc.ports import CompactedTopic
from cdc.progress import Offsets
from cdc.settings import Settings
from cdc.state import TopicsState
from cdc.topic import state_topic
from cdc.topic_specs import pipeline_topic_specs
from cdc.turn import require_turn
from connectors.connect.asked_snapshots import asked_for
from connectors.debezium.captured_tables import table_of
from connectors.debezium.client import MissingConnector
from connectors.debezium.source_progress import is_first_snapshot
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted import KafkaCompactedTopic, read_range
from connectors.kafka.offsets_at import offsets_at
from connectors.kafka.topic_problems import TopicFacts

Place = tuple[str, int, int, int]
"""A record's topic, partition and offset, and the topic's time of it in milliseconds."""
P = TypeVar("P", bound=Place)


def next_epoch(settings: Settings, clock: Clock = SYSTEM_CLOCK) -> int:
    """Note that records after the topics' present ends belong to a new epoch. Returns its number.

    Makes the state topic where it is missing. Call it while nothing writes to the table topics. Until
    :func:`settle_epoch` the connector's offsets count as those of the epoch before.
    """
    admin = TopicAdmin(settings.log)
    admin.create(pipeline_topic_specs(settings.log, settings.name))
    admin.end_offsets({state_topic(settings.name): 1})  # returns when a topic made a moment ago has its leader

    def begin(epochs: EpochsState, documents: dict[bytes, bytes]) -> EpochsState:
        ends, topic_ids = _written(admin, settings, TopicsState.find(documents))
        return replace(epochs.begin(ends, str(clock.now_ns()), topic_ids), unsettled=True)

    return _change(settings, begin).latest


def settle_epoch(settings: Settings, epoch: int = FIRST_EPOCH, clock: Clock = SYSTEM_CLOCK) -> None:
    """Note that the connector's offsets are gone, so that it begins the latest epoch by reading its tables.

    ``epoch``: the one that was noted for it. A sink that had read the notes before may have written its own
    over that: then it is noted again, while nothing writes to the table topics yet.
    """
    admin = TopicAdmin(settings.log)

    def settle(epochs: EpochsState, documents: dict[bytes, bytes]) -> EpochsState:
        if epochs.latest < epoch:
            ends, topic_ids = _written(admin, settings, TopicsState.find(documents))
            epochs = epochs.reaching(epoch, ends, str(clock.now_ns()), topic_ids)
        return epochs.settled()

    _change(settings, settle)


def require_own_turn(settings: Settings, stored: Callable[[], Iterable[Any]]) -> None:
    """ConfigError while the native capture writes the topics, or a handover is under way, or a reset of the connector's
    offsets was cut short before they were gone. One that was cut short behind that is noted as done.

    ``stored``: the connector's offsets. MissingConnector where there is none.
    """
    state = state_topic(settings.name)
    if not TopicAdmin(settings.log).describe([state]):
        return
    held = KafkaCompactedTopic(settings.log, state).read()
    require_turn(held, "debezium")
    epochs = EpochsState.find(held)
    if epochs is not None and epochs.unsettled:
        require_reset(epochs, stored=_any(stored))
        settle_epoch(settings)


def _any(stored: Callable[[], Iterable[Any]]) -> bool:
    try:
        return any(stored())
    except MissingConnector:
        return False


def note_fall(settings: Settings, why: str) -> None:
    """Note that the latest epoch's positions are in no order any more. ``why``: one sentence."""
    _change(settings, lambda epochs, _held: epochs.fallen(why))


def note_first(settings: Settings, topic: str, partition: int, offset: int) -> None:
    """Note where the latest epoch's snapshot began."""
    _change(settings, lambda epochs, _held: epochs.snapshot_at(topic, partition, offset))


def begin_again(settings: Settings, topic: str, partition: int, offset: int, time_ms: int) -> None:
    """Note a new epoch for a snapshot that began anew with this record: in each partition, from the first record that
    is not older, by the topic's time. Nothing where the place is noted already."""
    admin = TopicAdmin(settings.log)

    def begin(epochs: EpochsState, documents: dict[bytes, bytes]) -> EpochsState:
        if epochs.first() == (topic, partition, offset):
            return epochs
        ends, topic_ids = _written(admin, settings, TopicsState.find(documents))
        starts = offsets_at(settings.log, ends, dict.fromkeys(ends, time_ms))
        starts.setdefault(topic, {})[partition] = offset
        begun = epochs.begin(starts, f"{topic}/{partition}/{offset}/{time_ms}", topic_ids)
        return begun.settled().snapshot_at(topic, partition, offset)

    _change(settings, begin)


def begin_table_again(settings: Settings, topic: str, partition: int, offset: int, time_ms: int) -> None:
    """Note a new epoch for a table that a snapshot read anew, from this record on.

    When that snapshot began is not known here. So all records that other topics have in the latest epoch are of the new
    one, and nothing of theirs is swept by mistake.
    """
    admin = TopicAdmin(settings.log)

    def begin(epochs: EpochsState, documents: dict[bytes, bytes]) -> EpochsState:
        ends, topic_ids = _written(admin, settings, TopicsState.find(documents))
        epochs = epochs.of_topics(topic_ids)
        starts = {name: {p: epochs.began(name, p) for p in parts} for name, parts in ends.items()}
        starts |= offsets_at(settings.log, {topic: ends[topic]}, {topic: time_ms})
        starts[topic][partition] = offset
        if all(epochs.began(topic, p) >= start for p, start in starts[topic].items()):
            return epochs  # noted already
        first = epochs.first()
        begun = epochs.begin(starts, f"{topic}/{partition}/{offset}/{time_ms}", topic_ids).settled()
        begun = begun.still_rekeyed(epochs, topic)
        return begun.snapshot_at(*first) if first is not None and first[0] != topic else begun

    _change(settings, begin)


def repeated(settings: Settings, places: Collection[P]) -> list[P]:
    """Those of some records whose topic has older ones of the latest epoch, by the topic's time. LogError when the
    brokers do not answer."""
    admin = TopicAdmin(settings.log)
    facts = admin.describe({place[0] for place in places})
    epochs = read_epochs(settings).of_topics(_ids(facts))
    ends = admin.end_offsets({topic: found.partitions for topic, found in facts.items()})
    rest, found = [place for place in places if place[0] in ends], []
    while rest:
        turn = {place[0]: place for place in reversed(rest)}  # one of each topic
        asked = {topic: ends[topic] for topic in turn}
        for topic, before in offsets_at(settings.log, asked, {topic: one[3] for topic, one in turn.items()}).items():
            if any(_has_any(settings, topic, p, epochs.began(topic, p), offset) for p, offset in before.items()):
                found.append(turn[topic])
        rest = [place for place in rest if place is not turn[place[0]]]
    return found


def _has_any(settings: Settings, topic: str, partition: int, start: int, end: int) -> bool:
    """Whether a partition has a record between two offsets: the cleaner takes some, and none of the others moves."""
    first = next(read_range(settings.log, topic, partition, start), None) if start < end else None
    return first is not None and (first.offset() or 0) < end


def note_key(state: CompactedTopic, topic: str, epoch: int) -> None:
    """Note that a topic's table has another key since some record of this epoch.

    Nothing is read before: two that note other topics at one moment, or anything else of the epochs, keep each other's.
    """
    note = KeyedAnewState(topic=topic, epoch=epoch)
    state.write([(note.key(), note.to_json())])


def read_epochs(settings: Settings) -> EpochsState:
    """Where the positions of Debezium's records start over. The first epoch alone unless it was noted otherwise."""
    return EpochsState.find(KafkaCompactedTopic(settings.log, state_topic(settings.name)).read()) or EpochsState()


class NotedEpochs:
    """:class:`spark.known_epochs.Epochs` in ``<name>.state``. Any thread.

    ``stored``: the connector's stored offsets, as Kafka Connect gives them.
    """

    def __init__(
        self,
        settings: Settings,
        stored: Callable[[], Iterable[Mapping[str, Any]]],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._settings = settings
        self._stored = stored
        self._clock = clock
        self._topic_ids: dict[str, str] | None = None

    def read(self) -> EpochsState:
        """See the protocol. Topics that were made anew are looked for once: readers of a later one begin again."""
        noted = read_epochs(self._settings)
        if self._topic_ids is None and noted.topic_ids:
            self._topic_ids = _ids(TopicAdmin(self._settings.log).describe(noted.topic_ids))
        return noted.of_topics(self._topic_ids or {})

    def fell(self, why: str) -> None:
        note_fall(self._settings, why)

    def moved(self, said: str) -> None:
        _change(self._settings, lambda epochs, _: epochs.moved_on(said))

    def snapshot_at(self, place: Place) -> None:
        note_first(self._settings, *place[:3])

    def snapshot_again(self, place: Place) -> None:
        begin_again(self._settings, *place)

    def table_again(self, place: Place) -> None:
        begin_table_again(self._settings, *place)

    def repeated(self, places: Collection[P]) -> list[P]:
        return repeated(self._settings, places)

    def keyed_anew(self, topic: str, epoch: int) -> None:
        note_key(KafkaCompactedTopic(self._settings.log, state_topic(self._settings.name)), topic, epoch)

    def ends(self, topic: str) -> Mapping[int, int]:
        admin = TopicAdmin(self._settings.log)
        counts = {name: found.partitions for name, found in admin.describe([topic]).items()}
        return admin.end_offsets(counts).get(topic, {})

    def reading(self) -> bool:
        return self._settings.debezium is not None and is_first_snapshot(self._stored())

    def asked(self, place: Place) -> bool | None:
        return asked_for(self._settings, place[3], self._clock.now_ns() // 1_000_000)


def _change(settings: Settings, change: Callable[[EpochsState, dict[bytes, bytes]], EpochsState]) -> EpochsState:
    topic = KafkaCompactedTopic(settings.log, state_topic(settings.name))
    documents = dict(topic.read())
    changed = change(EpochsState.find(documents) or EpochsState(), documents)
    topic.write([(changed.key(), changed.to_json())])
    return changed


def _written(admin: TopicAdmin, settings: Settings, known: TopicsState | None) -> tuple[Offsets, dict[str, str]]:
    """Where the topics end that the connector writes to, and the ids of those that are a table's: who reads those may
    not look at the others."""
    facts = admin.describe(written_topics(admin.names(), settings, known))
    ends = admin.end_offsets({topic: found.partitions for topic, found in facts.items()})
    noted = {*known.tables.values()} if known is not None else set()
    of_tables = {topic for topic in facts if topic in noted or table_of(settings, topic) is not None}
    return ends, {topic: one for topic, one in _ids(facts).items() if topic in of_tables}


def _ids(facts: Mapping[str, TopicFacts]) -> dict[str, str]:
    return {topic: found.topic_id for topic, found in facts.items()}


def written_topics(names: Iterable[str], settings: Settings, known: TopicsState | None) -> list[str]:
    """Those of ``names`` that the connector writes to: of a name of their own under ``[source.topics]``, too.

    ``known``: the topics that were made so far, which the settings may name no more.
    """
    noted = (*known.tables.values(), *known.topics) if known is not None else ()
    renamed = {*settings.source.topics.values(), *noted}
    return [topic for topic in names if topic.startswith(f"{settings.name}.") or topic in renamed]
