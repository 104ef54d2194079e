"""A topic that takes no record because brokers are away is named, and stops nothing."""

from __future__ import annotations

import pytest

from connectors.kafka.topic_problems import TopicFacts, in_sync_problems


@pytest.mark.parametrize(
    ("replicas", "in_sync", "wanted", "taken"),
    [
        (1, 1, "1", True),
        (3, 2, "2", True),
        (3, 1, "2", False),
        (2, 1, "2", False),
        # Of a topic with one replica Kafka 4 wants that one.
        (1, 1, "2", True),
        (2, 1, "1", True),
        (1, 0, "1", False),
    ],
)
def test_h57_a_topic_with_too_few_in_sync_is_named(replicas: int, in_sync: int, wanted: str, taken: bool) -> None:
    facts = TopicFacts(
        topic="shop.public.t",
        topic_id="id",
        partitions=3,
        replication_factor=replicas,
        in_sync=in_sync,
        config={"min.insync.replicas": wanted},
    )
    found = in_sync_problems({facts.topic: facts})
    assert [one.fatal for one in found] == ([] if taken else [False])
    assert all("the topic shop.public.t takes no record" in one.message and one.hint for one in found)
