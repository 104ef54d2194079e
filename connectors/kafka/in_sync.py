"""Topics that take no record because too few of their replicas are in sync."""

from __future__ import annotations

from collections.abc import Mapping

from connectors.kafka.admin import TopicFacts, TopicProblem

_OPTION = "min.insync.replicas"


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
