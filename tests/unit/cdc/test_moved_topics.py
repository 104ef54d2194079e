"""A table keeps its topic, or the new one is filled first."""

from __future__ import annotations

import pytest

from cdc.errors import ConfigError
from cdc.moved_topics import NEW_EPOCH, MovedTopic, moved_topics, require_kept, require_unused
from cdc.state import TopicsState

FACTS = {"id": "t", "partitions": 1}
KNOWN = TopicsState(
    cluster_id="k",
    topics={"shop.public.a": FACTS, "own.b": FACTS, "own.former": FACTS},
    tables={"public.a": "shop.public.a", "public.b": "own.b"},
)


def test_h197_a_table_that_moves_is_named_with_both_topics() -> None:
    meant = {"public.a": "own.a", "public.b": "own.b", "public.new": "own.new"}
    assert moved_topics(KNOWN, meant) == [MovedTopic("public.a", "shop.public.a", "own.a")]
    assert moved_topics(None, meant) == []
    assert moved_topics(KNOWN, {"public.a": "shop.public.a"}) == []


def test_h197_the_refusal_names_the_way_back_and_the_way_on() -> None:
    with pytest.raises(ConfigError) as refused:
        require_kept(moved_topics(KNOWN, {"public.a": "own.a"}), NEW_EPOCH)
    assert refused.value.message == "the rows of public.a are in the topic shop.public.a, and the settings name own.a"
    assert refused.value.hint == (
        'put it back: [source.topics] "public.a" = "shop.public.a"; or fill the new topic: '
        "cdc init --new-epoch, then cdc snapshot"
    )
    assert MovedTopic("public.a", "x", "y").cure("") == 'put it back: [source.topics] "public.a" = "x"'


@pytest.mark.parametrize("topic", ["own.b", "own.former"])
def test_h197_a_topic_with_records_from_before_is_refused(topic: str) -> None:
    for table in ("public.a", "public.new"):
        with pytest.raises(ConfigError, match="holds records from before"):
            require_unused(KNOWN, {table: topic})


def test_h197_a_topic_of_its_own_or_a_new_one_is_no_other_tables() -> None:
    require_unused(KNOWN, {"public.a": "own.a", "public.b": "own.b", "public.new": "shop.public.new"})
    require_unused(None, {"public.a": "own.b"})
