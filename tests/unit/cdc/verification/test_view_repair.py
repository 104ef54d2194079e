"""Repairs of views: what is asked of their runners, what is written into one store, and what neither mends."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import orjson
import pytest

from cdc.process.clock import ManualClock
from cdc.process.errors import ConfigError
from cdc.record.position import Position
from cdc.record.progress import Watermark
from cdc.record.topic_names import TableName
from cdc.verification.ports import PublishedDocument, VerificationPorts, VerifiedStore
from cdc.verification.repair import RunnerSilent, unlike
from cdc.verification.run import KnownPipeline, Verification
from tests.killing import Killed, Steps, every_kill
from tests.unit.cdc.verification.test_rounds import TABLE, Silent, Store, Version, at, row
from tests.unit.cdc.verification.test_run import TOPICS, Source, Target

# Its schema is not ``view``: the rules go by what the store says of it.
VIEW = TABLE.table


@dataclass
class Runners:
    """The runner of one view, which computes from ``topics``, and the store that follows it.

    ``deaf``: keys whose newest record the store does not take. ``silent``: it does not run.
    """

    topics: Mapping[str, bytes]
    store: Store
    source: Source
    deaf: Collection[str] = ()
    parked: Mapping[str, str] = field(default_factory=dict)
    silent: bool = False
    asked: list[list[str]] = field(default_factory=list)
    newest: dict[str, PublishedDocument] = field(default_factory=dict)

    def recompute(self, view: TableName, keys: Sequence[bytes], timeout_s: float) -> Mapping[bytes, str]:
        if self.silent:
            self.asked.append(["silent"])
            raise RunnerSilent(f"no runner of the view {view.table} has answered", hint="start it")
        names = [str(orjson.loads(key)["id"]) for key in keys]
        self.asked.append(names)
        self.source.lsn += 8  # The fence of who asks.
        pos = Position(1, self.source.lsn, 1).text()
        self.source.lsn += 8
        for name in set(names) - self.parked.keys():
            self.newest[name] = PublishedDocument(pos, self.topics.get(name))
            if name not in self.deaf and self.newest[name].pos > self.store.versions.get(name, Version("", None)).pos:
                self.store.versions[name] = Version(*self.newest[name])
        return {key: self.parked[name] for key, name in zip(keys, names, strict=True) if name in self.parked}

    def published(self, view: TableName, keys: Collection[bytes]) -> Mapping[bytes, PublishedDocument]:
        found = {key: str(orjson.loads(key)["id"]) for key in keys}
        return {key: self.newest[name] for key, name in found.items() if name in self.newest}


class World:
    """Four documents, of which the store has one wrong, one missing, one too many and one under a strange key."""

    def __init__(self, steps: Steps | None = None, topics: Mapping[str, bytes] | None = None) -> None:
        self.steps = steps or Steps()
        self.rows = {str(number): row(number, str(number)) for number in range(1, 5)}
        self.source = Source(self.rows, lsn=800)
        self.store = Store({key: at(8, value) for key, value in self.rows.items() if key != "2"})
        self.store.versions |= {"3": at(8, row(3, "wrong")), "9": at(8, row(9, "9")), "no number": at(8, row(7, "7"))}
        self.runners = Runners(self.rows if topics is None else topics, self.store, self.source)

    def read(self) -> Watermark | None:
        return Watermark(epoch=1, lsn=1 << 40, topic_ids={"shop.view.v.1": "id"})

    def verification(self, *, asks: bool = True) -> Verification:
        over = self.steps.over
        store = VerifiedStore(
            reader=over("reader", self.store),
            watermarks=self,
            target=over("target", Target(self.store, self.steps)),
            tables=[VIEW],
            views={VIEW: "shop.view.v.1"},
        )
        ports = VerificationPorts(
            source=over("source", self.source),
            stores={"cache": store},
            tables={VIEW: TABLE},
            runners=over("runners", self.runners) if asks else None,
        )
        return Verification(KnownPipeline(TOPICS, 1, "postgres"), ports, Silent(), ManualClock(), timeout_s=5)

    def held(self) -> dict[str, bytes]:
        return {key: version.row for key, version in self.store.versions.items() if version.row is not None}


def test_h380_v27_a_runner_publishes_what_differs() -> None:
    world = World()
    report, (done,) = world.verification().repair_all(lambda _: None)
    assert (report.differences, world.held()) == (0, world.rows)
    assert [sorted(keys) for keys in world.runners.asked] == [["2", "3", "9"]]
    assert (done.recomputed, done.written, done.deleted, done.unread) == (3, 0, 0, ["no number"])


def test_h380_a_version_that_wins_over_all_is_taken_away() -> None:
    world = World()
    world.store.versions["3"] = Version(Position(1, 1 << 50, 1).text(), row(3, "wrong"))
    report, _ = world.verification().repair_all(lambda _: None)
    assert (report.differences, world.held()) == (0, world.rows)


def test_h380_one_store_that_does_not_take_it_is_written() -> None:
    world = World()
    world.runners.deaf = ["3", "9"]
    report, done = world.verification().repair_all(lambda _: None)
    assert (report.differences, world.held()) == (0, world.rows)
    assert sum(one.written for one in done) == 1
    assert sum(one.deleted for one in done) == 1
    assert world.store.versions["3"].pos == world.runners.newest["3"].pos, "at the topic's own position"


def test_h380_a_state_unlike_the_topics_is_told() -> None:
    world = World(topics={"1": row(1, "1"), "2": row(2, "wrong"), "4": row(4, "4")})
    report, done = world.verification().repair_all(lambda _: None)
    assert report.differences == 2, "one that the topic has otherwise, and one that it lacks"
    assert done[-1].refused == [unlike(VIEW)] * 2
    assert world.held()["2"] == row(2, "wrong"), "nothing is written past the log"
    assert "cdc view rebuild" in done[-1].refused[0]


def test_h380_a_silent_runner_is_a_refusal() -> None:
    world = World()
    world.runners.silent = True
    report, done = world.verification().repair_all(lambda _: None)
    assert report.differences == 3, "the strange key is taken away without it"
    assert {why for one in done for why in one.refused} == {"no runner of the view orders has answered: start it"}
    assert sum(one.recomputed + one.written + one.deleted for one in done) == 0
    assert world.runners.asked == [["silent"]], "it is waited for once"


def test_h380_a_document_that_cannot_be_made_is_refused() -> None:
    world = World()
    world.runners.parked = {"3": "division by zero"}
    report, done = world.verification().repair_all(lambda _: None)
    assert report.differences == 1
    assert done[0].refused == ["division by zero"]
    assert done[0].recomputed == 2


def test_without_runners_a_view_alone_is_not_repaired() -> None:
    with pytest.raises(ConfigError, match=r"documents of .* cannot be repaired one by one"):
        World().verification(asks=False).repair_all(lambda _: None)


def test_h380_a_repair_killed_at_any_step_is_run_again() -> None:
    def run(steps: Steps) -> object:
        world = World(steps)
        world.runners.deaf = ["3"]
        return world.verification().repair_all(lambda _: None)

    count = 0
    for steps in every_kill(run):
        world = World(steps)
        world.runners.deaf = ["3"]
        with pytest.raises(Killed):
            world.verification().repair_all(lambda _: None)
        world.steps = Steps()
        report, _ = world.verification().repair_all(lambda _: None)
        assert (report.differences, world.held()) == (0, world.rows)
        count += 1
    assert count > 20
