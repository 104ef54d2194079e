"""A table keeps its topic, and a topic its table."""

from __future__ import annotations

import pytest

from cdc.capture.topic_specs import require_kept_topics, topic_problems
from cdc.process.errors import ConfigError
from cdc.record.state import TopicsState

FACTS = {"id": "t", "partitions": 1}
KNOWN = TopicsState(
    cluster_id="k",
    topics={"shop.public.a": FACTS, "own.b": FACTS, "own.former": FACTS},
    tables={"public.a": "shop.public.a", "public.b": "own.b"},
)


def test_h197_a_table_that_would_move_is_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        require_kept_topics(KNOWN, {"public.b": "own.b", "public.a": "own.a"})
    assert refused.value.message == "public.a has the topic shop.public.a, and the settings name own.a"
    assert refused.value.hint == (
        'put it back: [source.topics] "public.a" = "shop.public.a"; a pipeline of another name may have another'
    )


@pytest.mark.parametrize("topic", ["own.b", "own.former"])
def test_h197_a_topic_with_records_from_before_is_refused(topic: str) -> None:
    with pytest.raises(ConfigError, match="holds records from before"):
        require_kept_topics(KNOWN, {"public.new": topic})
    assert [said for said, _ in topic_problems(KNOWN, {"public.new": topic, "public.a": topic})] == [
        f"public.a has the topic shop.public.a, and the settings name {topic}",
        f"public.new would use the topic {topic}, which holds records from before",
    ]


def test_h197_a_topic_of_its_own_or_a_new_one_is_no_other_tables() -> None:
    require_kept_topics(KNOWN, {"public.a": "shop.public.a", "public.b": "own.b", "public.new": "shop.public.new"})
    require_kept_topics(None, {"public.a": "own.b"})
