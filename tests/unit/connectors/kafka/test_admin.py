"""Topics compared with what they have to be, and with what they were made as."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.capture.topic_specs import kept_topic_spec, made_specs, table_topic_spec
from cdc.process.errors import TopicError
from cdc.record.state import TopicsState
from cdc.settings.model import LogSettings
from connectors.kafka.topic_problems import (
    TopicFacts,
    cut_problems,
    policy_problems,
    raise_first,
    spec_problems,
    state_problems,
)

SETTINGS = LogSettings(bootstrap_servers="x:1")
SPEC = table_topic_spec(SETTINGS, "s.public.t")
FACTS = TopicFacts(topic=SPEC.topic, topic_id="id", partitions=4, replication_factor=1, config=SPEC.config)
STATE = TopicsState(cluster_id="c", topics={SPEC.topic: {"id": "id", "partitions": 4}}, tables={"public.t": SPEC.topic})


def test_topic_as_made_has_no_problem() -> None:
    assert spec_problems(SPEC, FACTS) == []
    assert state_problems(STATE, {SPEC.topic: FACTS}, "c") == []
    longer = dict(SPEC.config) | {"delete.retention.ms": str(10**12)}
    assert spec_problems(SPEC, replace(FACTS, config=longer)) == []


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("cleanup.policy", "delete"),
        ("cleanup.policy", "compact,delete"),
        ("delete.retention.ms", "1000"),
        ("min.compaction.lag.ms", "0"),
        ("max.message.bytes", "1000"),
    ],
)
def test_h60_h62_a_weaker_setting_is_refused_with_the_remedy(option: str, value: str) -> None:
    (problem,) = spec_problems(SPEC, replace(FACTS, config=dict(SPEC.config) | {option: value}))
    assert problem.fatal
    assert f"--add-config {option}=" in problem.hint
    with pytest.raises(TopicError, match=option.replace(".", "[.]")):
        raise_first([problem])


@pytest.mark.parametrize("keep", ["-1", "1000"])
def test_another_time_than_the_settings_is_a_warning(keep: str) -> None:
    spec = kept_topic_spec(SETTINGS, "s.outbox.Order", 5000)
    facts = replace(FACTS, topic=spec.topic, config=dict(spec.config) | {"retention.ms": keep})
    (problem,) = spec_problems(spec, facts)
    assert problem.message == f"the topic s.outbox.Order has retention.ms={keep}, and by the settings it would be 5000"
    assert problem.hint.endswith("retention.ms=5000")
    assert not problem.fatal


@pytest.mark.parametrize("by_offsets", [True, False])
def test_an_order_by_offsets_bears_no_unclean_election(by_offsets: bool) -> None:
    """Others may stand at the offsets of records that are lost."""
    config = dict(SPEC.config) | {"unclean.leader.election.enable": "true"}
    (problem,) = spec_problems(SPEC, replace(FACTS, config=config), by_offsets=by_offsets)
    assert problem.fatal is by_offsets


def test_h62_settings_are_judged_whatever_the_partitions_are_now() -> None:
    specs = made_specs(SETTINGS, "s", STATE)
    assert [spec.topic for spec in specs] == [SPEC.topic]
    changed = replace(FACTS, partitions=8, config=dict(SPEC.config) | {"cleanup.policy": "delete"})
    assert policy_problems(specs, {SPEC.topic: replace(FACTS, partitions=8)}) == []
    (problem,) = policy_problems(specs, {SPEC.topic: changed})
    assert "cleanup.policy=delete" in problem.message


def test_h61_h89_partition_counts() -> None:
    assert spec_problems(SPEC, replace(FACTS, partitions=8))[0].fatal
    (raised,) = state_problems(STATE, {SPEC.topic: replace(FACTS, partitions=8)}, "c")
    assert not raised.fatal
    (lowered,) = state_problems(STATE, {SPEC.topic: replace(FACTS, partitions=2)}, "c")
    assert lowered.fatal


def test_h63_another_topic_or_cluster_under_the_same_name() -> None:
    for facts, cluster, words in (
        ({SPEC.topic: replace(FACTS, topic_id="other")}, "c", "made anew"),
        ({}, "c", "does not exist"),
        ({SPEC.topic: FACTS}, "d", "the pipeline was made on c"),
    ):
        (problem,) = state_problems(STATE, facts, cluster)
        assert problem.fatal
        assert words in problem.message


def test_h166_a_topic_that_lost_its_beginning_is_a_warning() -> None:
    first = {"whole": {0: 0, 1: 0}, "cut": {0: 0, 1: 668}}
    (problem,) = cut_problems(first, "cdc snapshot TABLE")
    assert (problem.topic, problem.fatal) == ("cut", False)
    assert problem.hint.startswith("cdc snapshot TABLE reads the table into it again")
