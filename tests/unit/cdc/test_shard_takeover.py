"""A table's way from one shard of capture to another, killed at each step and run again."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest

from cdc.checks.facts import PublicationFacts, ServerFacts, SlotFacts
from cdc.epochs import EpochsState
from cdc.errors import ActiveError, ConfigError
from cdc.progress import Offsets
from cdc.shard_documents import (
    Documents,
    MovedTable,
    ShardState,
    missing_shards,
    moved_tables,
    noted_shards,
    require_named,
    shards_of_tables,
    tables_of,
    writers_of,
)
from cdc.shard_ending import NotedShard, end_shard, leave_publication
from cdc.shard_takeover import epochs_above, take_over
from cdc.state import Document, RequestState, SlotIntent, SlotState, TopicsState, requests_of
from cdc.testing import MemoryCompactedTopic
from cdc.topic import TableName
from tests.killing import Killed, Steps, every_kill
from tests.unit.cdc.checks.test_postgres import SERVER, SLOT

A, B, C = "public.a", "public.b", "public.c"
MEANT = {A: "rest", B: "rest", C: "sales"}
"""The settings: A is to go from sales to rest."""
NAMED = ("sales", "rest")


def topics(*tables: str) -> TopicsState:
    made = {f"shop.{table}": {"id": table, "partitions": 1} for table in tables}
    return TopicsState(cluster_id="c", topics=made, tables={table: f"shop.{table}" for table in tables})


def slot(shard: str, epoch: int = 1) -> SlotState:
    return SlotState(
        epoch=epoch, system_identifier="7", timeline=1, database="app", database_oid=5, slot=f"cdc_shop__{shard}",
        publication=f"cdc_shop__{shard}", consistent_point=80,
    )  # fmt: skip


def documents(*some: Document) -> dict[bytes, bytes]:
    return {one.key(): one.to_json() for one in some}


class Source:
    """The server of both shards, each with slot and publication. Implements :class:`cdc.shard_ending.ShardSource`."""

    def __init__(self, published: dict[str, set[str]], system: str = "7") -> None:
        self.published = published
        self.slots = {name: replace(SLOT, slot=name, confirmed_flush_lsn=80) for name in published}
        self.system = system

    def server(self) -> ServerFacts:
        return replace(SERVER, system_identifier=self.system)

    def slot(self, name: str) -> SlotFacts | None:
        return self.slots.get(name)

    def publication(self, name: str) -> PublicationFacts | None:
        if name not in self.published:
            return None
        tables = frozenset(TableName(*table.split(".")) for table in self.published[name])
        return PublicationFacts(publication=name, operations=frozenset({"insert"}), via_root=True, tables=tables)

    def drop_slot(self, name: str) -> None:
        del self.slots[name]

    def drop_publication(self, name: str) -> None:
        del self.published[name]

    def give_up(self, publication: str, tables: Collection[str]) -> None:
        if publication in self.published:
            self.published[publication] -= set(tables)


class World:
    """The topics and the source of a pipeline of two shards. Implements :class:`cdc.shard_takeover.TakeoverPorts`."""

    def __init__(self, *, begun: bool = True, latest: int = 3) -> None:
        self.steps = Steps()
        # Before rest begins, all is of sales.
        held = topics(A, C) if begun else topics(A, B, C)
        request = RequestState(id=f"snapshot:{A}", table=A, after_lsn=8, reason="asked for")
        self.logs = {
            "": MemoryCompactedTopic(documents(*(ShardState(shard=name) for name in NAMED))),
            "sales": MemoryCompactedTopic(
                documents(held, slot("sales", latest), EpochsState().reaching(latest, {}), request)
            ),
            "rest": MemoryCompactedTopic(documents(topics(B), slot("rest")) if begun else {}),
        }
        self.source = Source({"cdc_shop__sales": set(held.tables), "cdc_shop__rest": {B}})
        self.running: set[str] = set()
        self.locked: list[str] = []

    def run(self, shard: str = "rest", named: Collection[str] = NAMED, meant: Mapping[str, str] = MEANT) -> int:
        moved = [one for one in moved_tables(self.states(), meant) if one.wanted == shard]
        self.locked = []
        return take_over(self.steps.over("ports", self), shard, moved, named, "now")

    def lock(self, shard: str) -> None:
        if shard in self.running:
            raise ActiveError(f"shop/{shard} is being written")
        self.locked.append(shard)

    def states(self) -> Mapping[str, Documents]:
        return {shard: log.read() for shard, log in self.logs.items()}

    def state(self, shard: str) -> MemoryCompactedTopic:
        watched: MemoryCompactedTopic = self.steps.over(f"state of {shard}", self.logs[shard])
        return watched

    def made(self, shard: str) -> TopicsState:
        own = {f"shop.progress-{shard}": {"id": "p", "partitions": 1}}
        return TopicsState(cluster_id="c", topics=own, tables={})

    def ends(self, partitions: Mapping[str, int]) -> Offsets:
        return {topic: dict.fromkeys(range(count), 50) for topic, count in partitions.items()}

    def begin(self, above: EpochsState | None) -> int:
        """As :func:`connectors.epoch.begin_epoch` does it: the epoch is noted before the slot is forgotten."""
        known = self.logs["rest"].read()
        epochs, held = EpochsState.find(known) or EpochsState(), SlotState.find(known)
        if held is None or held.epoch == epochs.latest:
            epochs = epochs.begin({topic: {0: 50} for topic in tables_of(known).values()}, "begun")
        epochs = epochs_above(epochs, above, "begun")
        self.state("rest").write([(epochs.key(), epochs.to_json())])
        self.state("rest").write([(slot("rest").key(), None)])
        return epochs.latest

    def leave(self, shard: str, documents: Documents, tables: Collection[str]) -> None:
        leave_publication(self.source, self.noted(shard, documents), tables)

    def end(self, shard: str, documents: Documents) -> None:
        end_shard(self.steps.over("source", self.source), self.noted(shard, documents))

    def noted(self, shard: str, documents: Documents) -> NotedShard:
        return NotedShard(
            meant_slot=f"cdc_shop__{shard}",
            meant_publication=f"cdc_shop__{shard}",
            slot=SlotState.find(documents),
            intent=SlotIntent.find(documents),
        )

    @property
    def published(self) -> dict[str, set[str]]:
        return self.source.published

    @property
    def slots(self) -> set[str]:
        return set(self.source.slots)

    def epochs(self, shard: str) -> EpochsState:
        return EpochsState.find(self.logs[shard].read()) or EpochsState()

    def tables(self, shard: str) -> set[str]:
        return set(tables_of(self.logs[shard].read()))


def require_sound(world: World) -> None:
    """What has to hold wherever a takeover was killed."""
    owners = shards_of_tables(world.states())
    assert owners.keys() == {A, B, C}, "a table is in a shard at each moment"
    if owners[A] == "rest":
        assert world.epochs("rest").latest > world.epochs("sales").latest
    sent = world.published.get("cdc_shop__sales", set())
    assert (A in world.tables("sales")) or A not in sent, "who gave it up does not send it"


def whole(world: World, least: int) -> None:
    assert (world.tables("sales"), world.tables("rest")) == ({C}, {A, B})
    assert world.published["cdc_shop__sales"] == {C}
    assert world.epochs("rest").latest >= least
    assert world.epochs("rest").epoch(f"shop.{A}", 0, 49) < world.epochs("rest").latest
    assert world.epochs("rest").epoch(f"shop.{A}", 0, 50) == world.epochs("rest").latest
    assert requests_of(world.logs["sales"].read()) == [], "one of a table that it has given up would be carried out"
    assert writers_of(world.states())[f"shop.{A}"] == "rest"


@pytest.mark.parametrize("begun", [True, False])
def test_h406_a_takeover_killed_at_any_step_is_run_again(begun: bool) -> None:
    """The epoch never falls, and the table is never in no shard."""

    def run(steps: Steps) -> None:
        world = World(begun=begun)
        world.steps = steps
        world.run()

    count = 0
    for steps in every_kill(run):
        world = World(begun=begun)
        world.steps = steps
        with pytest.raises(Killed):
            world.run()
        require_sound(world)
        noted = world.epochs("rest").latest
        world.steps = Steps()
        assert world.run() >= noted, "never below what is noted"
        require_sound(world)
        whole(world, max(noted, 4))
        count += 1
    assert count > 20


def test_h406_a_second_run_keeps_the_epoch_of_the_first() -> None:
    """A shard that had not begun: nothing is left to be taken over, and the noted epoch stays."""
    world = World(begun=False)
    assert world.run() == 4
    world.logs["rest"].write([(topics().key(), None)])
    assert world.run() == 4


def test_h406_all_locks_come_before_the_first_note() -> None:
    world = World()
    world.running = {"sales"}
    before = world.states()
    with pytest.raises(ActiveError):
        world.run()
    assert world.states() == before
    world.running = set()
    world.run()
    assert world.locked == ["rest", "sales"]


def test_h406_what_changed_before_the_locks_is_told() -> None:
    world = World()
    with pytest.raises(ActiveError, match="have changed meanwhile"):
        take_over(world, "rest", [MovedTable("public.gone", "sales", "rest")], NAMED, "now")


def test_h405_a_shard_that_was_renamed_is_told_and_ends_at_last() -> None:
    """Its tables go to the new one with an epoch above. Then its slot goes, also where the run is killed."""
    named, meant = ("shop", "rest"), {A: "shop", C: "shop", B: "rest"}

    def renamed(steps: Steps) -> World:
        world = World()
        world.logs["shop"] = MemoryCompactedTopic()
        note = ShardState(shard="shop")
        world.logs[""].write([(note.key(), note.to_json())])
        world.steps = steps
        return world

    for steps in every_kill(lambda steps: renamed(steps).run("shop", named, meant)):
        world = renamed(steps)
        assert missing_shards(world.states(), named) == {"sales": [A, C]}
        with pytest.raises(ConfigError, match=r"has a shard sales, which \[capture.shards\] does not name: it writes"):
            require_named("shop", world.states(), named)
        with pytest.raises(Killed):
            world.run("shop", named, meant)
        if missing_shards(world.states(), named):
            with pytest.raises(ConfigError):
                require_named("shop", world.states(), named)
        world.steps = Steps()
        world.run("shop", named, meant)
        require_named("shop", world.states(), named)
        assert world.slots == {"cdc_shop__rest"}
        assert world.tables("shop") == {A, C}
        assert noted_shards(world.logs[""].read()) == ["rest", "shop"]


INTENT = SlotIntent(epoch=3, system_identifier="7", database="app", slot="cdc_shop__sales", consistent_point=80)


def before_its_snapshot(steps: Steps, *intents: SlotIntent) -> World:
    """The shard sales has its publication by cdc init, and notes no slot yet."""
    world = World()
    sales = world.logs["sales"]
    sales.write([(slot("sales").key(), None), *((one.key(), one.to_json()) for one in intents)])
    if not intents:
        world.source.drop_slot("cdc_shop__sales")
    world.steps = steps
    return world


def test_h439_before_its_snapshot_a_shard_gives_up_all_the_same() -> None:
    """Its publication sent a table that it does not have any more: the slot made later would bring its changes."""
    for steps in every_kill(lambda steps: before_its_snapshot(steps).run()):
        world = before_its_snapshot(steps)
        with pytest.raises(Killed):
            world.run()
        require_sound(world)
        world.steps = Steps()
        world.run()
        whole(world, 4)


@pytest.mark.parametrize("intents", [(), (INTENT,)])
def test_h439_a_shard_that_ends_before_its_snapshot_leaves_none(intents: tuple[SlotIntent, ...]) -> None:
    """Neither its publication, nor the slot of a snapshot killed before it noted that, which holds WAL for ever."""
    named, meant = ("rest",), {A: "rest", B: "rest", C: "rest"}
    for steps in every_kill(lambda steps: before_its_snapshot(steps, *intents).run("rest", named, meant)):
        world = before_its_snapshot(steps, *intents)
        with pytest.raises(Killed):
            world.run("rest", named, meant)
        world.steps = Steps()
        world.run("rest", named, meant)
        require_named("shop", world.states(), named)
        assert (world.slots, set(world.published)) == ({"cdc_shop__rest"}, {"cdc_shop__rest"})
        assert world.tables("rest") == {A, B, C}


def upgraded(*, slots: bool, extra: tuple[str, ...] = ()) -> World:
    """The source is another server than the slots were noted on, and has the publications all the same."""
    world = World()
    world.source.system = "8"
    if not slots:
        world.source.slots.clear()
    world.source.published["cdc_shop__sales"] |= set(extra)
    return world


def ends_sales(world: World) -> World:
    world.run("rest", ("rest",), {A: "rest", B: "rest", C: "rest"})
    require_named("shop", world.states(), ("rest",))
    return world


def test_h462_a_slot_of_another_server_leaves_no_publication() -> None:
    """The server was upgraded, or restored elsewhere, and the shard ends before its snapshot there."""
    assert set(ends_sales(upgraded(slots=False)).published) == {"cdc_shop__rest"}


@pytest.mark.parametrize(("slots", "extra"), [(True, ()), (False, ("public.theirs",))])
def test_h462_another_pipelines_publication_stays(slots: bool, extra: tuple[str, ...]) -> None:
    """It has a slot of the shard's name on that server, or sends tables that the shard did not have."""
    world = ends_sales(upgraded(slots=slots, extra=extra))
    assert world.published["cdc_shop__sales"] == ({A, C} if slots else set(extra))
    assert ("cdc_shop__sales" in world.slots) is slots


@pytest.mark.parametrize("intents", [(), (replace(INTENT, consistent_point=70),)])
def test_h462_an_unproven_slot_stays_with_its_publication(intents: tuple[SlotIntent, ...]) -> None:
    """The shard has noted none, or one that stood elsewhere: whoever reads this one needs the publication."""
    world = before_its_snapshot(Steps(), *intents)
    world.source.slots["cdc_shop__sales"] = replace(SLOT, slot="cdc_shop__sales", confirmed_flush_lsn=80)
    ends_sales(world)
    assert world.published["cdc_shop__sales"] == {A, C}
    assert "cdc_shop__sales" in world.slots


@pytest.mark.parametrize("slots", [True, False])
def test_h500_an_empty_publication_of_its_name_stays(slots: bool) -> None:
    """Somebody else's, which is to get its tables later: before a slot, or on another server than it was noted on."""
    world = before_its_snapshot(Steps()) if slots else upgraded(slots=False)
    world.source.published["cdc_shop__sales"].clear()
    assert ends_sales(world).published["cdc_shop__sales"] == set()


def test_h500_a_shard_that_keeps_a_table_keeps_its_publication() -> None:
    world = upgraded(slots=False)
    world.run()
    assert world.published["cdc_shop__sales"] == {C}


def test_h500_the_publication_of_a_noted_slot_is_kept() -> None:
    """Its shard goes on, with other tables, and the slot there needs it as it was at each LSN."""
    world = World()
    world.run("rest", NAMED, {A: "rest", B: "rest", C: "rest"})
    assert world.published["cdc_shop__sales"] == set()


def test_h405_a_name_of_which_nothing_was_made_is_no_shard() -> None:
    world = World()
    note = ShardState(shard="slaes")
    world.logs[""].write([(note.key(), note.to_json())])
    world.logs["slaes"] = MemoryCompactedTopic()
    require_named("shop", world.states(), NAMED)
    assert missing_shards(world.states(), NAMED) == {}


def test_h402_a_table_in_two_shards_is_that_of_the_newer_epoch() -> None:
    older, newer = documents(topics(A)), documents(topics(A), EpochsState().reaching(2, {}))
    for order in (("sales", "rest"), ("rest", "sales")):
        each = {name: {"sales": older, "rest": newer}[name] for name in order}
        assert shards_of_tables(each) == {A: "rest"}


def test_epochs_are_never_below_what_is_noted() -> None:
    noted, above = EpochsState().reaching(5, {}), EpochsState().reaching(3, {"t": {0: 9}})
    assert epochs_above(noted, above, "now").latest == 5
    assert epochs_above(None, above, "now").latest == 3
    assert epochs_above(noted, None, "now") == noted
