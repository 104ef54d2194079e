"""Topics: made explicitly, and checked against what they were made as, before anything is written.

One that a broker made by itself, a raised partition count or a topic made anew under an old name would each break the
order silently (hazards H61, H62, H63, H89)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
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
from tenacity import Retrying, retry_if_exception, retry_if_result, stop_after_delay, wait_fixed

from cdc.checks.facts import TopicRights
from cdc.errors import LogError, TopicError
from cdc.progress import Offsets
from cdc.settings import LogSettings
from cdc.state import TopicsState
from cdc.topic_specs import TopicSpec
from connectors.kafka.clients import client_config
from connectors.kafka.compacted import leaderless, log_error, passing
from connectors.kafka.portions import rounds

_TIMEOUT_S = 15.0
_ASKED_S = 4.0
"""One question for leaders. A client that asks while there are none hears of new ones only when it asks again."""
_TOPICS_AT_ONCE = 500
_RECORDS_AT_ONCE = 4_000
"""Of the controller's own log. It refuses a request that takes more than 10,000, and answers in seconds below."""
_MB = 1024**2
_LASTING = ("cleanup.policy", "delete.retention.ms", "min.compaction.lag.ms")
_LOOKED_AT = (*_LASTING, "max.message.bytes", "min.insync.replicas", "unclean.leader.election.enable")
"""Of a topic's forty options. All of them would take 40 MB for five thousand topics."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """A topic as the broker describes it. ``topic_id`` differs for a topic made anew. ``config``: the options that its
    faults and its readers are judged by. ``in_sync``: the replicas in sync of the partition that has fewest."""

    topic: str
    topic_id: str
    partitions: int
    replication_factor: int
    in_sync: int = 1
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicProblem:
    """One fault of a topic, what fixes it, and whether capture must not run with it."""

    topic: str
    message: str
    hint: str
    fatal: bool = True


def spec_problems(spec: TopicSpec, facts: TopicFacts) -> list[TopicProblem]:
    """Where a topic that exists differs from what it has to be. Stricter settings than ours are fine."""
    found: list[TopicProblem] = []

    def problem(message: str, hint: str, fatal: bool = True) -> None:
        found.append(TopicProblem(topic=spec.topic, message=message, hint=hint, fatal=fatal))

    if facts.partitions != spec.partitions:
        problem(
            f"the topic {spec.topic} has {facts.partitions} partitions, wanted are {spec.partitions}",
            f"set [log] partitions = {facts.partitions}, or delete the topic if nothing needs it",
        )
    policy = spec.config["cleanup.policy"]
    if _policy(facts.config.get("cleanup.policy", "")) != {policy}:
        problem(
            f"the topic {spec.topic} has cleanup.policy={facts.config.get('cleanup.policy')}, which must be {policy}",
            _alter(spec.topic, "cleanup.policy", policy),
        )
    for option in ("delete.retention.ms", "min.compaction.lag.ms", "max.message.bytes"):
        wanted, actual = spec.config.get(option), facts.config.get(option)
        if wanted is not None and actual is not None and int(actual) < int(wanted):
            problem(
                f"the topic {spec.topic} has {option}={actual}, at least {wanted} is needed",
                _alter(spec.topic, option, wanted),
            )
    if facts.config.get("unclean.leader.election.enable") == "true":
        problem(
            f"the topic {spec.topic} allows unclean leader election, which loses acknowledged records",
            _alter(spec.topic, "unclean.leader.election.enable", "false"),
            fatal=False,
        )
    return found


def state_problems(state: TopicsState, facts: Mapping[str, TopicFacts], cluster_id: str) -> list[TopicProblem]:
    """Where the topics differ from those that ``init`` made: gone, made anew, or with another partition count.

    More partitions than at the start do no harm to the order, because a key's partition is computed from the
    count in the state (H89). Capture leaves them empty. That is a problem to know of, not one to stop for.
    """
    if cluster_id != state.cluster_id:
        message = f"the Kafka cluster is {cluster_id}, the pipeline was made on {state.cluster_id}"
        return [TopicProblem(topic="", message=message, hint="point [log] bootstrap_servers at the first cluster")]
    return [p for topic in sorted(state.topics) for p in _kept_problems(topic, state.topics[topic], facts.get(topic))]


def cut_problems(first: Offsets, reread: str) -> list[TopicProblem]:
    """Topics whose first records were deleted, by their first offsets (hazard H166): compaction leaves those at 0.

    None stops capture, and a table that was read again since is whole in what is left. ``reread``: what does that.
    """
    hint = f"{reread} reads the table into it again; until then a new store, or cdc rebuild, would lack rows"
    cut = sorted(topic for topic, parts in first.items() if any(parts.values()))
    said = "records were deleted from the beginning of the topic"
    return [TopicProblem(topic=topic, message=f"{said} {topic}", hint=hint, fatal=False) for topic in cut]


def _kept_problems(topic: str, made: Mapping[str, Any], facts: TopicFacts | None) -> list[TopicProblem]:
    def problem(message: str, hint: str, fatal: bool = True) -> list[TopicProblem]:
        return [TopicProblem(topic=topic, message=message, hint=hint, fatal=fatal)]

    start_over = "what it held is gone: cdc drop --topics, empty the stores, then cdc init and cdc snapshot"
    if facts is None:
        return problem(f"the topic {topic} does not exist any more", start_over)
    if facts.topic_id != made["id"]:
        return problem(f"the topic {topic} was deleted and made anew", start_over)
    if facts.partitions < made["partitions"]:
        return problem(
            f"the topic {topic} has {facts.partitions} partitions, made were {made['partitions']}", start_over
        )
    if facts.partitions > made["partitions"]:
        return problem(
            f"the topic {topic} was raised from {made['partitions']} to {facts.partitions} partitions",
            "cdc run leaves the new ones empty; Debezium writes to them, and sinks and views read them then",
            fatal=False,
        )
    return []


def policy_problems(
    specs: Iterable[TopicSpec], facts: Mapping[str, TopicFacts], options: Collection[str] = _LASTING
) -> list[TopicProblem]:
    """Where topics would forget what they must keep. :func:`state_problems` checks counts.

    Sizes are left out: a record too large for its topic is refused by name when it comes.
    """
    return [
        problem
        for spec in specs
        if (found := facts.get(spec.topic)) is not None
        for problem in spec_problems(
            replace(spec, config={option: spec.config[option] for option in options if option in spec.config}),
            replace(found, partitions=spec.partitions),
        )
    ]


def raise_first(problems: Iterable[TopicProblem]) -> None:
    """TopicError for the first fatal problem, if there is one."""
    for problem in problems:
        if problem.fatal:
            raise TopicError(problem.message, hint=problem.hint)


def _records(spec: TopicSpec) -> int:
    """The records that the controller writes for a topic: the topic, its partitions, its settings."""
    return 1 + spec.partitions + len(spec.config)


class TopicAdmin:
    """Questions to the cluster, and the making of topics. LogError when it does not answer within 15 s."""

    def __init__(self, settings: LogSettings) -> None:
        self._settings = settings
        self._client = AdminClient(client_config(settings))

    def cluster_id(self) -> str:
        """The cluster's own id."""
        return str(self._metadata("asking for the cluster").cluster_id)

    def names(self) -> list[str]:
        """All topics that this login may see, in order."""
        return sorted(self._metadata("listing topics").topics)

    def _metadata(self, doing: str) -> ClusterMetadata:
        """The cluster's metadata, as of now. Not by ``describe_cluster``: librdkafka 2.16 ends the process by an
        assertion (rdkafka_admin.c:960) where the answer names no broker, as it does for a moment after all brokers
        were silent for ten seconds (H151)."""
        retrying = Retrying(
            retry=retry_if_exception(_brokerless), wait=wait_fixed(0.1), stop=stop_after_delay(_TIMEOUT_S), reraise=True
        )
        try:
            return retrying(self._client.list_topics, timeout=_TIMEOUT_S)
        except KafkaException as error:
            raise log_error(error.args[0], doing, self._settings) from None

    def create(self, specs: Iterable[TopicSpec]) -> list[str]:
        """Make the topics that are missing. Their names. One that exists is left as it is: check it after."""
        return [topic for some in rounds(specs, _RECORDS_AT_ONCE, _records) for topic in self._create(some)]

    def _create(self, specs: Iterable[TopicSpec]) -> list[str]:
        wanted = [
            NewTopic(
                s.topic, num_partitions=s.partitions, replication_factor=s.replication_factor, config=dict(s.config)
            )
            for s in specs
        ]
        made = []
        futures = self._client.create_topics(wanted, operation_timeout=_TIMEOUT_S, request_timeout=_TIMEOUT_S)
        for topic, future in futures.items():
            try:
                future.result()
                made.append(topic)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise log_error(error.args[0], f"making the topic {topic}", self._settings) from None
        # The controller knows a new topic a moment before the brokers do, and those are asked for its facts.
        wait = Retrying(
            retry=retry_if_result(lambda known: len(known) < len(set(made))),
            wait=wait_fixed(0.1),
            stop=stop_after_delay(_TIMEOUT_S),
            retry_error_callback=lambda _: {},
        )
        wait(self.describe, made)
        return made

    def delete(self, topics: Iterable[str]) -> None:
        """Delete topics. A missing one is no error."""
        for some in rounds(topics, _TOPICS_AT_ONCE):
            for topic, future in self._client.delete_topics(some, operation_timeout=_TIMEOUT_S).items():
                try:
                    future.result()
                except KafkaException as error:
                    if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                        raise log_error(error.args[0], f"deleting the topic {topic}", self._settings) from None

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
        """The facts of those topics that exist. One that goes between its two questions is none of them."""
        every = rounds(sorted(set(topics)), _TOPICS_AT_ONCE)
        return {topic: facts for some in every for topic, facts in self._describe(some).items()}

    def _describe(self, names: list[str]) -> dict[str, TopicFacts]:
        described = {}
        futures = self._client.describe_topics(TopicCollection(names), request_timeout=_TIMEOUT_S)
        for topic, future in futures.items():
            try:
                described[topic] = future.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise log_error(error.args[0], f"looking at the topic {topic}", self._settings) from None
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

    def counts(self, topics: Iterable[str]) -> dict[str, int]:
        """Topic -> number of partitions, of those that exist."""
        return {topic: facts.partitions for topic, facts in self.describe(topics).items()}

    def end_offsets(self, partitions: Mapping[str, int]) -> Offsets:
        """topic -> partition -> the offset its next record gets, for all partitions of all topics in one call."""
        return self._offsets(partitions, self.ask_ends)

    def first_offsets(self, partitions: Mapping[str, int]) -> Offsets:
        """The same for the offset that each partition begins with: 0 unless records were deleted."""
        earliest = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
        return self._offsets(partitions, lambda asked: self._ask(asked, earliest))

    def ask_ends(self, asked: list[TopicPartition]) -> dict[TopicPartition, Future[Any]]:
        """Ask for the next offsets of partitions. Each answer has an ``offset``."""
        return self._ask(asked, OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def _ask(self, asked: list[TopicPartition], which: OffsetSpec) -> dict[TopicPartition, Future[Any]]:
        return self._client.list_offsets(dict.fromkeys(asked, which), request_timeout=_ASKED_S) if asked else {}

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
            raise log_error(error.args[0], "asking where topics end", self._settings) from None

    def _configs(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        asked = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        if not asked:
            return {}
        futures = self._client.describe_configs(asked, request_timeout=_TIMEOUT_S)
        found = {}
        for resource, future in futures.items():
            with suppress(TopicError):
                entries = self._wait(future, f"asking for the settings of {resource.name}")
                found[resource.name] = {name: entries[name].value for name in _LOOKED_AT if name in entries}
        return found

    def _wait(self, future: Future[_T], doing: str) -> _T:
        try:
            return future.result(_TIMEOUT_S + 5)
        except KafkaException as error:
            raise log_error(error.args[0], doing, self._settings) from None
        except TimeoutError:
            raise LogError(
                f"{doing}: Kafka at {self._settings.bootstrap_servers} does not answer",
                hint="check [log] bootstrap_servers and that the brokers run",
            ) from None


def topics_state(
    facts: Mapping[str, TopicFacts], tables: Mapping[str, str], cluster_id: str, encoding: str
) -> TopicsState:
    """The note of ``init`` about the topics it made or found. ``tables``: table -> topic."""
    topics = {topic: {"id": found.topic_id, "partitions": found.partitions} for topic, found in sorted(facts.items())}
    return TopicsState(cluster_id=cluster_id, topics=topics, tables=dict(tables), encoding=encoding)


def _brokerless(error: BaseException) -> bool:
    """Whether the answer names no broker, or the one that was asked went meanwhile."""
    return leaderless(error) or (isinstance(error, KafkaException) and error.args[0].code() == KafkaError._PARTIAL)


def _policy(text: str) -> set[str]:
    return {part.strip() for part in text.split(",") if part.strip()}


def _alter(topic: str, option: str, value: str) -> str:
    return f"kafka-configs --alter --entity-type topics --entity-name {topic} --add-config {option}={value}"
