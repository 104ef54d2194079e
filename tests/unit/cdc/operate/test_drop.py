"""A drop on doubles of its ports: killed at each step and run again, and refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.process.errors import ActiveError, ConfigError, Exit, LogError, SlotError
from cdc.record.server_facts import Owner
from tests.killing import Killed, Steps, every_kill
from tests.memory_log import MemoryCompactedTopic
from tests.unit.cdc.operate.drop_world import OWN, PLAN, STATE, VIEWS, VIEWS_TOPIC, World, read_by, slot_made


def whole(world: World) -> None:
    """The state in which every drop of all ends, wherever it was killed."""
    assert world.slot is None
    assert not world.published
    assert world.topics == {"other.state"}


def run(steps: Steps) -> list[str]:
    world = World()
    world.steps = steps
    return list(world.drop().run(topics=True))


def test_a_drop_says_what_it_dropped() -> None:
    assert run(Steps()) == ["slot cdc_shop: dropped", "publication cdc_shop: dropped", "topics: 3 deleted"]


def test_y8_a_publication_of_another_role_is_left() -> None:
    """The slot goes, which holds WAL, and the topics. What is left is the refusal, until its owner has dropped it."""
    world = World()
    world.of_another_role = True
    with pytest.raises(ConfigError, match="may not change"):
        list(world.drop().run(topics=True))
    assert (world.slot, world.published, world.topics) == (None, True, {"other.state"})
    world.of_another_role = False
    list(world.drop().run(topics=True))
    whole(world)


def test_the_steps_stand_in_the_order_that_the_manual_promises() -> None:
    steps = Steps()
    run(steps)
    done = [name.removeprefix("behind ") for name in steps.names if name.startswith("behind ")]
    dropping = [name for name in done if name.rpartition(".")[2] in ("drop_publication", "drop_slot", "delete")]
    assert dropping == ["source.drop_publication", "source.drop_slot", "topics.delete", "topics.delete"]


def test_a_drop_killed_at_any_step_is_run_again() -> None:
    count = 0
    for steps in every_kill(run):
        world = World()
        world.steps = steps
        with pytest.raises(Killed):
            list(world.drop().run(topics=True))
        assert world.published or world.slot is None, "a slot without its publication is never left"
        assert STATE in world.topics or world.topics == {"other.state"}, "the state names the other topics"
        world.steps = Steps()
        list(world.drop().run(topics=True))
        whole(world)
        count += 1
    assert count > 12


def test_h174_views_go_with_the_other_topics() -> None:
    def run_views(steps: Steps) -> list[str]:
        world = World()
        world.topics |= VIEWS
        world.steps = steps
        said = list(world.drop().run(topics=True))
        whole(world)
        return said

    said = run_views(Steps())
    assert said[2] == "checkpoints of streams: left, so delete below [spark] checkpoint: stream.traffic.2"
    assert said[3] == "topics: 7 deleted"
    for steps in every_kill(run_views):
        world = World()
        world.topics |= VIEWS
        world.steps = steps
        with pytest.raises(Killed):
            list(world.drop().run(topics=True))
        assert VIEWS_TOPIC in world.topics or not world.topics & VIEWS, "the views topic names the others"
        world.steps = Steps()
        list(world.drop().run(topics=True))
        whole(world)


def test_without_topics_the_log_is_left_as_it_is() -> None:
    world = World()
    list(world.drop().run(topics=False))
    assert (world.slot, world.published) == (None, False)
    assert world.topics >= OWN


def test_a_slot_that_is_read_stays_with_its_publication() -> None:
    world = World()
    world.slot = read_by(4711)
    for sure in (False, True):
        with pytest.raises(ActiveError):
            list(world.drop().run(topics=True, sure=sure))
        assert world.published
        assert world.topics >= OWN


@pytest.mark.parametrize(
    ("noted", "owner"), [({}, Owner.NOBODY), (slot_made("another"), Owner.OTHER)], ids=["none", "another"]
)
def test_h109_a_slot_of_somebody_else_is_dropped_by_name_only(noted: dict[bytes, bytes], owner: Owner) -> None:
    world = World()
    world.state = MemoryCompactedTopic(noted)
    assert world.drop().owner() is owner
    with pytest.raises(SlotError, match="was not dropped") as refused:
        list(world.drop().run(topics=False))
    assert refused.value.exit is Exit.SLOT
    assert (world.slot is not None, world.published) == (True, True)
    list(world.drop().run(topics=False, sure=True))
    assert (world.slot, world.published) == (None, False)


def test_h109_a_slot_whose_owner_is_not_known_stays() -> None:
    world = World()
    world.away = True
    assert world.drop().owner() is Owner.UNKNOWN
    with pytest.raises(SlotError, match="is not known") as refused:
        list(world.drop().run(topics=False))
    assert refused.value.exit is Exit.UNAVAILABLE
    assert (world.slot is not None, world.published) == (True, True)


def test_brokers_that_are_away_are_found_before_the_drop() -> None:
    world = World()
    world.away = True
    with pytest.raises(LogError):
        list(world.drop().run(topics=True, sure=True))
    assert (world.slot is not None, world.published) == (True, True)


def test_a_connectors_slot_is_the_pipelines_own() -> None:
    world = World()
    world.state = MemoryCompactedTopic()
    assert world.drop(replace(PLAN, by_debezium=True)).owner() is Owner.OURS


def test_without_a_slot_there_is_no_owner_and_the_rest_goes() -> None:
    world = World()
    world.slot = None
    assert world.drop().owner() is None
    assert next(iter(world.drop().run(topics=True))) == "slot cdc_shop: was not there"


@pytest.mark.parametrize(
    ("left", "said"),
    [
        ({"shop.public.t", "other.state"}, "these are left to be deleted by hand: shop.public.t"),
        ({"other.state"}, "the pipeline shop has none"),
    ],
)
def test_without_the_state_topic_the_others_are_named(left: set[str], said: str) -> None:
    world = World()
    world.topics = set(left)
    world.slot = None
    assert said in list(world.drop().run(topics=True))[-1]
    assert world.topics == left


def test_h589_a_pipeline_keeps_its_topics_where_a_broker_lags() -> None:
    """It is not known which ones go."""
    world = World()
    world.lags = {STATE}
    with pytest.raises(LogError, match="not known which topics go"):
        list(world.drop().run(topics=True, sure=True))
    assert world.published
    assert world.slot is not None
    assert world.topics >= OWN
