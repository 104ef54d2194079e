"""Problems of topics: pure, from what a topic has to be and the facts of it.

One that a broker made by itself, a raised partition count or a topic made anew under an old name would each break the
order silently."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cdc.capture.topic_specs import TopicSpec
from cdc.process.errors import TopicError
from cdc.record.progress import Offsets
from cdc.record.state import TopicsState

LASTING = ("cleanup.policy", "delete.retention.ms", "min.compaction.lag.ms")
"""Settings without which a topic would forget."""
_OPTION = "min.insync.replicas"


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


def spec_problems(spec: TopicSpec, facts: TopicFacts, *, by_offsets: bool = False) -> list[TopicProblem]:
    """Where a topic that exists differs from what it has to be. Stricter settings than ours are fine. ``by_offsets``:
    the order of its records is that of their offsets, which other records may have after an unclean election."""
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
    wanted, actual = spec.config.get("retention.ms"), facts.config.get("retention.ms", "")
    if wanted is not None and actual not in ("", wanted):
        problem(
            f"the topic {spec.topic} has retention.ms={actual}, and by the settings it would be {wanted}",
            _alter(spec.topic, "retention.ms", wanted),
            fatal=False,
        )
    if facts.config.get("unclean.leader.election.enable") == "true":
        problem(
            f"the topic {spec.topic} allows unclean leader election, which loses acknowledged records",
            _alter(spec.topic, "unclean.leader.election.enable", "false"),
            fatal=by_offsets,
        )
    return found


def state_problems(state: TopicsState, facts: Mapping[str, TopicFacts], cluster_id: str) -> list[TopicProblem]:
    """Where the topics differ from those that ``init`` made: gone, made anew, or with another partition count.

    More partitions than at the start do no harm to the order, because a key's partition is computed from the
    count in the state. Capture leaves them empty. That is a problem to know of, not one to stop for.
    """
    if cluster_id != state.cluster_id:
        message = f"the Kafka cluster is {cluster_id}, the pipeline was made on {state.cluster_id}"
        return [TopicProblem(topic="", message=message, hint="point [log] bootstrap_servers at the first cluster")]
    kept = state.never_compacted
    return [
        problem
        for topic in sorted(state.topics)
        for problem in _kept_problems(topic, state.topics[topic], facts.get(topic), by_itself=topic in kept)
    ]


def gone_by_themselves(state: TopicsState, facts: Mapping[str, TopicFacts]) -> frozenset[str]:
    """Topics of events and histories that are gone or were made anew. No store is built from them, so the pipeline goes
    on with new ones."""
    return frozenset(
        topic
        for topic in state.never_compacted
        if topic not in facts or facts[topic].topic_id != state.topics[topic]["id"]
    )


def cut_problems(first: Offsets, reread: str) -> list[TopicProblem]:
    """Topics whose first records were deleted, by their first offsets: compaction leaves those at 0.

    None stops capture, and a table that was read again since is whole in what is left. ``reread``: what does that.
    """
    hint = f"{reread} reads the table into it again; until then a new store, or cdc rebuild, would lack rows"
    cut = sorted(topic for topic, parts in first.items() if any(parts.values()))
    said = "records were deleted from the beginning of the topic"
    return [TopicProblem(topic=topic, message=f"{said} {topic}", hint=hint, fatal=False) for topic in cut]


def _kept_problems(
    topic: str, made: Mapping[str, Any], facts: TopicFacts | None, *, by_itself: bool
) -> list[TopicProblem]:
    def problem(message: str, hint: str, fatal: bool = True) -> list[TopicProblem]:
        return [TopicProblem(topic=topic, message=message, hint=hint, fatal=fatal)]

    start_over = "what it held is gone: cdc drop --topics, empty the stores, then cdc init and cdc snapshot"
    if by_itself:
        start_over = "what it held is gone; no store needs it: run cdc init, which forgets it, and start capture again"
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
    specs: Iterable[TopicSpec], facts: Mapping[str, TopicFacts], options: Collection[str] = LASTING
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


def in_sync_problems(facts: Mapping[str, TopicFacts]) -> list[TopicProblem]:
    """Topics with fewer replicas in sync than ``min.insync.replicas`` asks for. None stops capture, which waits.

    Of a topic that has fewer replicas than that, a broker wants all of them: Kafka 4 counts so.
    """
    return [
        TopicProblem(
            topic=topic,
            message=f"the topic {topic} takes no record: {one.in_sync} of its {one.replication_factor} replicas are in "
            f"sync, and min.insync.replicas asks for {wanted}",
            hint="start the brokers that are away; until then capture waits, and the slot keeps its WAL",
            fatal=False,
        )
        for topic, one in sorted(facts.items())
        if one.in_sync < (wanted := min(int(one.config.get(_OPTION, 1)), one.replication_factor))
    ]


def copy_problems(facts: Mapping[str, TopicFacts], brokers: int) -> list[TopicProblem]:
    """Topics that one broker holds alone though there are others, all in one problem. It does not stop capture."""
    single = sorted(topic for topic, one in facts.items() if one.replication_factor == 1)
    if brokers < 2 or not single:
        return []
    others = f" and {len(single) - 1} more topics have" if single[1:] else " has"
    return [
        TopicProblem(
            topic=single[0],
            message=f"the topic {single[0]}{others} one copy, and the cluster has {brokers} brokers: what a broker "
            "loses is gone from the log",
            hint="set [log] replication_factor = 3 (or the brokers' default.replication.factor) before topics are "
            "made; kafka-reassign-partitions adds replicas to those that are there",
            fatal=False,
        )
    ]


def _policy(text: str) -> set[str]:
    return {part.strip() for part in text.split(",") if part.strip()}


def _alter(topic: str, option: str, value: str) -> str:
    return f"kafka-configs --alter --entity-type topics --entity-name {topic} --add-config {option}={value}"
