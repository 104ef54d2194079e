"""Questions to the cluster about topics, and the making of them: no broker makes one by itself."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its __init__ re-exports without saying so
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ClusterMetadata,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)
from tenacity import RetryError, Retrying, retry_if_exception, retry_if_result, stop_after_delay, wait_fixed

from cdc.capture.topic_specs import TopicSpec
from cdc.process.errors import LogError
from cdc.process.untrusted_text import quoted
from cdc.record.progress import Offsets
from cdc.record.server_facts import TopicRights
from cdc.record.state import TopicsState
from cdc.settings.model import LogSettings
from connectors.kafka.broker_answers import missing_of
from connectors.kafka.clients import client_config
from connectors.kafka.compacted_topic import leaderless, log_error, passing
from connectors.kafka.topic_problems import LASTING, TopicFacts

_TIMEOUT_S = 15.0
_ASKED_S = 4.0
"""One question for leaders. A client that asks while there are none hears of new ones only when it asks again."""
_TOPICS_AT_ONCE = 500
_RECORDS_AT_ONCE = 4_000
"""Of the controller's own log. It refuses a request that takes more than 10,000, and answers in seconds below."""
_MB = 1024**2
_PROMISED = (*LASTING, "max.message.bytes", "retention.ms")
"""Settings without which a topic would forget, or refuse, what it is made for. The others are made for safety or
thrift."""
_SETTING_REFUSED = (KafkaError.POLICY_VIOLATION, KafkaError.INVALID_CONFIG)
_LOOKED_AT = (*_PROMISED, "min.insync.replicas", "unclean.leader.election.enable", "message.timestamp.type")
"""Of a topic's forty options. All of them would take 40 MB for five thousand topics."""
log = logging.getLogger(__name__)


def _records(spec: TopicSpec) -> int:
    """The records that the controller writes for a topic: the topic, its partitions, its settings."""
    return 1 + spec.partitions + len(spec.config)


class TopicAdmin:
    """Questions to the cluster, and the making of topics. LogError when it does not answer within 15 s."""

    def __init__(self, settings: LogSettings) -> None:
        self._settings = settings
        self._client = AdminClient(client_config(settings))

    def _failed(self, error: KafkaError, doing: str, *topics: str) -> LogError:
        # A refused login reaches the client's callback alone, which raises it: what was asked for has only timed out.
        self._client.poll(0)
        return log_error(error, doing, self._settings, *topics)

    def cluster_id(self) -> str:
        """The cluster's own id."""
        return str(self._metadata("asking for the cluster").cluster_id)

    def brokers(self) -> int:
        """How many brokers there are."""
        return len(self._metadata("asking for the brokers").brokers)

    def each_broker(self) -> list[TopicAdmin]:
        """One for each broker, which asks that one first."""
        found = self._metadata("asking for the brokers").brokers.values()
        places = [f"{broker.host}:{broker.port}" for broker in found]
        return [TopicAdmin(self._settings.model_copy(update={"bootstrap_servers": place})) for place in places]

    def names(self) -> list[str]:
        """All topics that this login may see, in order."""
        return sorted(self._metadata("listing topics").topics)

    def _metadata(self, doing: str) -> ClusterMetadata:
        """The cluster's metadata, as of now. Not by ``describe_cluster``: librdkafka 2.16 ends the process by an
        assertion (rdkafka_admin.c:960) where the answer names no broker, as it does for a moment after all brokers
        were silent for ten seconds."""
        retrying = Retrying(
            retry=retry_if_exception(_brokerless), wait=wait_fixed(0.1), stop=stop_after_delay(_TIMEOUT_S), reraise=True
        )
        try:
            return retrying(self._client.list_topics, timeout=_TIMEOUT_S)
        except KafkaException as error:
            raise self._failed(error.args[0], doing) from None

    def create(self, specs: Iterable[TopicSpec]) -> list[str]:
        """Make the topics that are missing. Their names. One that exists is left as it is: check it after."""
        return [topic for some in rounds(specs, _RECORDS_AT_ONCE, _records) for topic in self._create(some)]

    def _create(self, specs: list[TopicSpec]) -> list[str]:
        refused = self._ask_for(specs)
        # A provider may keep settings to itself that no promise rests on: the topic is asked for without them.
        plain = [
            replace(spec, config={name: spec.config[name] for name in _PROMISED if name in spec.config})
            for spec in specs
            if spec.topic in refused and refused[spec.topic].code() in _SETTING_REFUSED
        ]
        for spec in plain:
            said = {"topic": spec.topic, "reason": quoted(refused.pop(spec.topic).str())}
            log.info("topic_settings_refused", extra=said)
        refused |= self._ask_for(plain)
        for topic, error in refused.items():
            if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise self._failed(error, f"making the topic {topic}") from None
        made = [spec.topic for spec in specs if spec.topic not in refused]
        # The controller knows a new topic a moment before the brokers do, and those are asked for its facts.
        wait = Retrying(
            retry=retry_if_result(lambda known: len(known) < len(set(made))),
            wait=wait_fixed(0.1),
            stop=stop_after_delay(_TIMEOUT_S),
            retry_error_callback=lambda _: {},
        )
        wait(self._known, made)
        return made

    def _ask_for(self, specs: Iterable[TopicSpec]) -> dict[str, KafkaError]:
        """Have topics made. The errors of those that were not."""
        wanted = [
            NewTopic(
                s.topic, num_partitions=s.partitions, replication_factor=s.replication_factor, config=dict(s.config)
            )
            for s in specs
        ]
        if not wanted:
            return {}
        refused = {}
        futures = self._client.create_topics(wanted, operation_timeout=_TIMEOUT_S, request_timeout=_TIMEOUT_S)
        for topic, future in futures.items():
            try:
                future.result()
            except KafkaException as error:
                refused[topic] = error.args[0]
        return refused

    def delete(self, topics: Iterable[str]) -> None:
        """Delete topics. A missing one is no error."""
        for some in rounds(topics, _TOPICS_AT_ONCE):
            for topic, future in self._client.delete_topics(some, operation_timeout=_TIMEOUT_S).items():
                try:
                    future.result()
                except KafkaException as error:
                    if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                        raise self._failed(error.args[0], f"deleting the topic {topic}") from None

    def rights(self, topic: str) -> TopicRights:
        """The principals that may write to a topic, by the brokers' ACLs."""
        wanted = AclBindingFilter(
            ResourceType.TOPIC,
            topic,
            ResourcePatternType.MATCH,
            None,  # type: ignore[arg-type]  # any principal
            None,  # type: ignore[arg-type]  # any host
            AclOperation.ANY,
            AclPermissionType.ALLOW,
        )
        try:
            found = self._client.describe_acls(wanted, request_timeout=_TIMEOUT_S).result()
            # Without an authorizer the client gives an empty answer, as with one that has no ACL.
            checked = bool(found) or self._authorizer() != ""
        except KafkaException as error:
            disabled = error.args[0].code() == KafkaError.SECURITY_DISABLED
            return TopicRights(topic=topic, checked=False if disabled else None)
        writers = {acl.principal for acl in found if acl.operation in (AclOperation.WRITE, AclOperation.ALL)}
        return TopicRights(topic=topic, checked=checked, writers=tuple(sorted(writers)))

    def _authorizer(self) -> str:
        """The class that checks rights on a broker. Empty for nothing."""
        brokers = self._client.list_topics(timeout=_TIMEOUT_S).brokers
        if not brokers:
            raise KafkaException(KafkaError(KafkaError.BROKER_NOT_AVAILABLE))
        broker = ConfigResource(ResourceType.BROKER, str(min(brokers)))
        answers = self._client.describe_configs([broker], request_timeout=_TIMEOUT_S)
        entry = answers[broker].result().get("authorizer.class.name")
        return str(entry.value or "") if entry is not None else ""

    def describe(self, topics: Iterable[str]) -> dict[str, TopicFacts]:
        """The facts of those topics that exist. One that goes between its two questions is none of them.

        LogError where a broker that starts, or lags behind another, does not know for 15 s whether they do.
        """
        wanted = set(topics)
        found = self._known(wanted)

        def unknown() -> set[str]:
            """Those that one broker names, and of which another that was asked knows nothing."""
            lacking = wanted - found.keys()
            named = lacking - missing_of(lacking, self.names) if lacking else set[str]()
            found.update(self._known(named))
            return named - found.keys()

        wait = Retrying(retry=retry_if_result(bool), wait=wait_fixed(0.1), stop=stop_after_delay(_TIMEOUT_S))
        try:
            wait(unknown)
        except RetryError as unanswered:
            topic = min(unanswered.last_attempt.result())
            raise self._failed(
                KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), f"looking at the topic {topic}", topic
            ) from None
        return found

    def _known(self, topics: Iterable[str]) -> dict[str, TopicFacts]:
        """The same, as the broker that is asked has it at the moment."""
        every = rounds(sorted(topics), _TOPICS_AT_ONCE)
        return {topic: facts for some in every for topic, facts in self._describe(some).items()}

    def _described(self, names: list[str]) -> dict[str, Any]:
        """The descriptions of those topics that exist."""
        described: dict[str, Any] = {}
        if not names:
            return described
        futures = self._client.describe_topics(TopicCollection(names), request_timeout=_TIMEOUT_S)
        for topic, future in futures.items():
            try:
                described[topic] = future.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise self._failed(error.args[0], f"looking at the topic {topic}") from None
        return described

    def _describe(self, names: list[str]) -> dict[str, TopicFacts]:
        described = self._described(names)
        configs = self._configs(described)
        return {
            topic: TopicFacts(
                topic=topic,
                topic_id=str(found.topic_id),
                partitions=len(found.partitions),
                replication_factor=min((len(p.replicas) for p in found.partitions), default=0),
                in_sync=min((len(p.isr) for p in found.partitions), default=0),
                config=configs[topic],
            )
            for topic, found in described.items()
            if topic in configs
        }

    def leaders(self, topics: Iterable[str]) -> dict[str, tuple[str, Mapping[int, int]]]:
        """Topic -> its id, and the epoch of each partition's leader. Without topics that are not there."""
        described = self._described(sorted(topics))
        asked = [TopicPartition(topic, p) for topic, one in described.items() for p in range(len(one.partitions))]
        found: dict[str, dict[int, int]] = {topic: {} for topic in described}
        try:
            for where, future in self.ask_ends(asked).items():
                found[where.topic][where.partition] = future.result(_TIMEOUT_S + 5).leader_epoch
        except KafkaException as error:
            raise self._failed(error.args[0], "asking for leaders", *described) from None
        return {topic: (str(described[topic].topic_id), epochs) for topic, epochs in found.items()}

    def counts(self, topics: Iterable[str]) -> dict[str, int]:
        """Topic -> number of partitions, of those that exist."""
        return {topic: facts.partitions for topic, facts in self.describe(topics).items()}

    def end_offsets(self, partitions: Mapping[str, int]) -> Offsets:
        """topic -> partition -> the offset its next record gets, for all partitions of all topics in one call."""
        return self._offsets(partitions, self.ask_ends)

    def stable_offsets(self, partitions: Mapping[str, int]) -> Offsets:
        """The same, but no further than to the first transaction that is still open: what a reader can reach now."""
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        return self._offsets(partitions, lambda asked: self._ask(asked, latest, IsolationLevel.READ_COMMITTED))

    def first_offsets(self, partitions: Mapping[str, int]) -> Offsets:
        """The same for the offset that each partition begins with: 0 unless records were deleted."""
        earliest = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
        return self._offsets(partitions, lambda asked: self._ask(asked, earliest))

    def ask_ends(self, asked: list[TopicPartition]) -> dict[TopicPartition, Future[Any]]:
        """Ask for the next offsets of partitions. Each answer has an ``offset``."""
        return self._ask(asked, OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def _ask(
        self, asked: list[TopicPartition], which: OffsetSpec, level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    ) -> dict[TopicPartition, Future[Any]]:
        wanted = dict.fromkeys(asked, which)
        return self._client.list_offsets(wanted, request_timeout=_ASKED_S, isolation_level=level) if asked else {}

    def look_again(self, timeout_s: float) -> None:
        """Have the client ask who leads: it says from memory, for minutes, that nobody does."""
        self._client.list_topics(timeout=timeout_s)

    def _offsets(self, partitions: Mapping[str, int], ask: Callable[..., dict[TopicPartition, Future[Any]]]) -> Offsets:
        asked = [TopicPartition(topic, p) for topic, count in partitions.items() for p in range(count)]

        def once() -> Offsets:
            found: dict[str, dict[int, int]] = {topic: {} for topic in partitions}
            for where, future in ask(asked).items():
                found[where.topic][where.partition] = future.result(_TIMEOUT_S + 5).offset
            return found

        retrying = Retrying(
            retry=retry_if_exception(passing), wait=wait_fixed(0.2), stop=stop_after_delay(_TIMEOUT_S), reraise=True
        )
        retrying.before_sleep = lambda _state: self.look_again(_TIMEOUT_S)
        try:
            return retrying(once)
        except KafkaException as error:
            raise self._failed(error.args[0], "asking where topics end", *partitions) from None

    def _configs(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """The settings of those topics that the broker which is asked knows."""
        asked = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        if not asked:
            return {}
        futures = self._client.describe_configs(asked, request_timeout=_TIMEOUT_S)
        found = {}
        for resource, future in futures.items():
            doing = f"asking for the settings of {resource.name}"
            try:
                entries = future.result(_TIMEOUT_S + 5)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise self._failed(error.args[0], doing) from None
            except TimeoutError:
                raise LogError(
                    f"{doing}: Kafka at {self._settings.bootstrap_servers} does not answer",
                    hint="check [log] bootstrap_servers and that the brokers run",
                ) from None
            else:
                found[resource.name] = {name: entries[name].value for name in _LOOKED_AT if name in entries}
        return found


def topics_state(
    facts: Mapping[str, TopicFacts], tables: Mapping[str, str], cluster_id: str, encoding: str
) -> TopicsState:
    """The note of ``init`` about the topics it made or found. ``tables``: table -> topic."""
    topics = {topic: {"id": found.topic_id, "partitions": found.partitions} for topic, found in sorted(facts.items())}
    return TopicsState(cluster_id=cluster_id, topics=topics, tables=dict(tables), encoding=encoding)


def _brokerless(error: BaseException) -> bool:
    """Whether the answer names no broker, or the one that was asked went meanwhile."""
    return leaderless(error) or (isinstance(error, KafkaException) and error.args[0].code() == KafkaError._PARTIAL)


T = TypeVar("T")


def rounds(items: Iterable[T], most: int, weight: Callable[[T], int] = lambda _: 1) -> Iterator[list[T]]:
    """The items in order, in lists that weigh at most so much each. An item that weighs more by itself stands alone.

    >>> [*rounds("abcde", 2)]
    [['a', 'b'], ['c', 'd'], ['e']]
    >>> [*rounds([1, 2, 9, 3], 4, int)]
    [[1, 2], [9], [3]]
    """
    taken: list[T] = []
    weighs = 0
    for item in items:
        if taken and weighs + weight(item) > most:
            yield taken
            taken, weighs = [], 0
        taken.append(item)
        weighs += weight(item)
    if taken:
        yield taken
