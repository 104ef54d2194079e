"""A comparison on doubles of its ports: marks, both ends, and what it leaves, killed at each step too."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from cdc.comparison.run import Trial
from cdc.comparison.sides import require_debezium, sides_of
from cdc.errors import ConfigError, LogError, SourceError, UsageError
from cdc.settings import TableSettings
from tests.killing import Killed, Steps, every_kill
from tests.unit.cdc.comparison.world import SETTINGS, TABLE, World

TRIAL = Trial(for_s=3)


def test_changes_between_the_marks_are_compared_nothing_is_left() -> None:
    world = World(load=9)
    found = world.comparing().run(TRIAL)
    (verdict,) = found.verdicts
    assert (verdict.table, verdict.theirs, verdict.ours, verdict.unexplained) == (TABLE, 4, 4, 0)
    assert world.left() == []
    assert world.source.closed
    assert "both capture; comparing from here on" in world.said


def test_a_comparison_killed_at_any_step_is_run_again() -> None:
    def run(steps: Steps) -> object:
        world = World()
        world.steps = steps
        return world.comparing().run(TRIAL)

    count = 0
    for steps in every_kill(run):
        world = World()
        world.steps = steps
        with pytest.raises(Killed):
            world.comparing().run(TRIAL)
        # The process is gone, and its thread with it; nothing was removed by it.
        world.native.runs = False
        world.steps, world.load = Steps(), 9
        found = world.comparing().run(TRIAL)
        assert found.records > 0
        assert found.unexplained == 0
        assert world.left() == []
        count += 1
    assert count > 30


def test_what_was_made_is_kept_on_request_and_removed_later() -> None:
    world = World()
    world.comparing().run(Trial(for_s=3, keep=True))
    assert world.left() == ["shop-debezium", "shop-native"]
    world.comparing().clean()
    assert world.left() == []


def native_dies(world: World) -> None:
    world.native.failure = SourceError("the native capture died")


def connector_fails(world: World) -> None:
    world.debezium.failure = ConfigError("the connector failed")


@pytest.mark.parametrize(
    ("damage", "error", "words"),
    [(native_dies, SourceError, "capture died"), (connector_fails, ConfigError, "connector failed")],
)
def test_what_ends_either_side_ends_the_comparison(
    damage: Callable[[World], None], error: type[Exception], words: str
) -> None:
    world = World()
    damage(world)
    with pytest.raises(error, match=words):
        world.comparing().run(TRIAL)
    assert world.left() == []


def test_a_native_capture_that_stands_still_is_given_up() -> None:
    world = World()
    world.native.stuck = True
    with pytest.raises(LogError, match="native capture did not pass"):
        world.comparing().run(TRIAL)
    assert world.left() == []


def test_a_connector_that_falls_behind_is_given_up() -> None:
    world = World()

    def stick(command: Sequence[str]) -> int:
        world.debezium.stuck = True
        return 0

    world._run = stick  # type: ignore[method-assign]
    with pytest.raises(LogError, match="Debezium did not pass"):
        world.comparing().run(Trial(command=["load"]))
    assert world.left() == []


def test_a_commands_changes_are_compared_its_failure_reported() -> None:
    assert World().comparing().run(Trial(command=["load"])).records > 0
    world = World()
    world.exit_code = 3
    with pytest.raises(UsageError, match="load ended with 3"):
        world.comparing().run(Trial(command=["load"]))
    assert world.left() == []


def test_a_record_that_one_side_lost_is_found() -> None:
    world = World(load=9)
    found = world.written.records
    world.written.records = lambda topic, table: [  # type: ignore[method-assign]
        record for record in found(topic, table) if "native" not in topic or record.place[1] != 3
    ]
    assert world.comparing().run(TRIAL).unexplained == 1


def test_both_sides_read_the_same_tables_under_their_own_names() -> None:
    sides = sides_of(SETTINGS, published=False)
    assert (sides.native.source.kind, sides.debezium.source.kind) == ("postgres", "debezium")
    assert sides.native.publication == sides.debezium.publication == "cdc_compare_cdc_shop"
    assert sides.publication_made
    assert len({sides.native.slot, sides.debezium.slot, SETTINGS.slot}) == 3
    own = sides_of(SETTINGS, published=True)
    assert own.native.publication == SETTINGS.publication
    assert not own.publication_made


def test_only_what_a_comparison_made_is_removed() -> None:
    sides = sides_of(SETTINGS, published=True)
    ours = ["shop-native.state", "shop-debezium.public.t", "shop-debezium", "__debezium-heartbeat.shop-debezium"]
    others = ["shop.public.t", "shop-native2.public.t", "__debezium-heartbeat.shop"]
    assert sides.made([*ours, *others]) == ours


def test_topics_stand_beside_each_other_by_table() -> None:
    sides = sides_of(SETTINGS, published=True)
    topics = ["shop-debezium.public.t", "shop-debezium.public.only", "shop-debezium.signals", "shop-debezium.state"]
    found = sides.by_table({"public.t": "shop-native.public.t", "public.u": "shop-native.public.u"}, topics)
    assert found == {
        "public.only": ("shop-debezium.public.only", ""),
        "public.t": ("shop-debezium.public.t", "shop-native.public.t"),
        "public.u": ("", "shop-native.public.u"),
    }


def test_without_a_postgres_connector_nothing_is_compared() -> None:
    with pytest.raises(ConfigError, match="a comparison needs"):
        require_debezium(SETTINGS.model_copy(update={"debezium": None}))


def test_captures_that_mask_differently_are_not_compared() -> None:
    masked = {"public.t": TableSettings(columns={"mail": "hmac"})}
    with pytest.raises(ConfigError, match="do not mask alike"):
        require_debezium(SETTINGS.model_copy(update={"tables": masked}))
