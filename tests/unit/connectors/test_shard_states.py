"""One look at all shards of capture: how often it reads the state topics."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest

from cdc.errors import LogError, TopicError
from cdc.settings import Settings, parse
from cdc.shard_documents import Documents, ShardState
from cdc.shard_plan import each_shard
from cdc.state import TopicsState
from connectors.shard_notes import require_own_tables
from connectors.whole_state import ShardStates


def divided(count: int) -> Settings:
    entries = [f"public.t{number}" for number in range(count)]
    return parse(
        {
            "name": "shop",
            "source": {"dsn": "host=db", "tables": entries},
            "log": {"bootstrap_servers": "k:9092"},
            "capture": {"shards": {f"s{number}": [entry] for number, entry in enumerate(entries)}},
        }
    )


@dataclass
class Topics:
    """The state topics of a pipeline, which count how often each is read."""

    settings: Settings
    away: bool = False
    without: str = ""
    read_of: Counter[str] = field(default_factory=Counter)

    def read(self, settings: Settings) -> Documents:
        self.read_of[settings.shard] += 1
        if self.away:
            raise LogError("Kafka is away")
        if not settings.shard:
            notes = [ShardState(shard=shard) for shard in self.settings.capture.shards]
            return {one.key(): one.to_json() for one in notes}
        if settings.shard == self.without:
            raise TopicError("there is no such topic")
        [table] = self.settings.capture.shards[settings.shard]
        made = TopicsState(cluster_id="c", topics={}, tables={table: f"shop.{table}"})
        return {made.key(): made.to_json()}


def looked(topics: Topics) -> list[Documents]:
    """As the looks of ``cdc status`` and ``cdc check`` go from shard to shard."""
    states, found = ShardStates(topics.settings, topics.read), []
    for one in each_shard(topics.settings):
        require_own_tables(one, states)
        found.append(states.own(one))
    return found


@pytest.mark.parametrize("count", [1, 3, 20])
def test_a_look_at_all_shards_reads_each_topic_once(count: int) -> None:
    """For N shards it read N * (N + 2) topics."""
    topics = Topics(divided(count))
    found = looked(topics)
    assert set(topics.read_of.values()) == {1}
    assert topics.read_of.total() == count + 1
    tables = [state.tables for documents in found if (state := TopicsState.find(documents)) is not None]
    assert [list(one) for one in tables] == [[f"public.t{number}"] for number in range(count)]


def test_a_log_that_is_away_is_asked_once() -> None:
    topics = Topics(divided(3), away=True)
    states = ShardStates(topics.settings, topics.read)
    for one in each_shard(topics.settings):
        with pytest.raises(LogError):
            states.own(one)
    assert topics.read_of == {"": 1}


def test_a_shard_without_a_topic_says_so_itself() -> None:
    topics = Topics(divided(2), without="s1")
    states = ShardStates(topics.settings, topics.read)
    first, second = each_shard(topics.settings)
    assert states.own(first)
    with pytest.raises(TopicError):
        states.own(second)


def test_a_pipeline_without_shards_reads_its_own_topic() -> None:
    whole = divided(1)
    plain = whole.model_copy(update={"capture": whole.capture.model_copy(update={"shards": {}})})
    topics = Topics(whole)
    states = ShardStates(plain, topics.read)
    require_own_tables(plain, states)
    assert states.own(plain)
    assert topics.read_of == {"": 1}
