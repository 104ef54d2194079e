"""A view's runner over a state of Delta tables, its tasks carried out in this process, killed and started anew."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from cdc.schema import TableSchema
from cdc.views.bucket_layout import BucketLayout
from cdc.views.fences import BEFORE_ALL, NEVER, Fence
from cdc.views.memory_views import MemoryViewInput, MemoryViewOutput, MemoryViewTopic
from cdc.views.silent_output import SilentOutput
from cdc.views.state_reach import Bound
from cdc.views.view_plan import planned
from spark.views.bucket_files import DOCUMENTS, CopyForm
from spark.views.bucket_keeper import BucketKeeper
from spark.views.delta_tables import DeltaTables
from spark.views.exchange import MemoryExchange
from spark.views.keeper_parts import BucketKeeperParts
from spark.views.view_batches import STATE_TABLES, ViewBatches
from spark.views.view_parts import ShippedView
from tests.unit.cdc.views.view_histories import PARTITIONS, SHAPES, History, Killed


class _Reader:
    def __init__(self, source: MemoryViewInput) -> None:
        self.read = source.read

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True)
class MemoryOpener:
    """Opens the history itself as a reader. For tasks of this process."""

    source: MemoryViewInput = field(hash=False)

    def open(self) -> _Reader:
        return _Reader(self.source)


@dataclass
class BucketRunner:
    """As :class:`tests.unit.cdc.views.view_histories.Runner`."""

    sql: str
    history: History
    folder: Path
    topic: MemoryViewTopic = field(default_factory=MemoryViewTopic)
    shapes: tuple[TableSchema, ...] = SHAPES
    buckets: int = 3
    generation: int = 1
    above: Fence = BEFORE_ALL
    kill_chance: float = 0.0
    keeper: BucketKeeper | None = None

    @property
    def root(self) -> Path:
        """The folder of the state."""
        return self.folder / "state"

    @property
    def shipped(self) -> ShippedView:
        """The view as executors have it."""
        plan = planned(self.sql, self.shapes)
        used = tuple(shape.to_json().decode() for shape in self.shapes if shape.table in plan.relations)
        return ShippedView(self.sql, used, ("public",), str(self.root), self.buckets)

    def start(self) -> None:
        """Open the state that is there, and begin."""
        plan = planned(self.sql, self.shapes)
        used = tuple(shape for shape in self.shapes if shape.table in plan.relations)
        root, shipped = self.root, self.shipped
        forms = [CopyForm(copy).entries for copy in BucketLayout(plan, self.buckets).copies]
        parts = BucketKeeperParts(
            shipped=shipped,
            bound=Bound.to(plan),
            generation=self.generation,
            tables=DeltaTables(root, [*forms, *STATE_TABLES, DOCUMENTS], self.history.clock, self._maybe),
            batches=ViewBatches(shipped, MemoryExchange()),
            input=self.history.input,
            opener=MemoryOpener(self.history.input),
            output=SilentOutput() if self.above == NEVER else MemoryViewOutput(self.topic, self._maybe, self._maybe),
            topics={shape.table: shape.topic for shape in used},
            view="v",
            topic=f"t.view.v.{self.generation}",
            topic_id=self.topic.topic_id,
            partitions=PARTITIONS,
            name="t",
            database="d",
            above=self.above,
        )
        self.keeper = BucketKeeper(parts, clock=self.history.clock, piece=2)
        self.keeper.begin()

    def _maybe(self) -> None:
        if self.history.chance.random() < self.kill_chance:
            raise Killed

    def turn(self) -> None:
        """One turn, or a kill within it."""
        try:
            if self.keeper is None:
                self.start()
            assert self.keeper is not None
            self.keeper.turn()
        except Killed:
            self.end()

    def end(self) -> None:
        """The process is gone. What it committed stays."""
        self.keeper = None

    @property
    def prepared(self) -> bool:
        """Whether it lives, and its state has everything."""
        return self.keeper is not None and self.keeper.prepared

    @property
    def level(self) -> bool:
        """Whether it lives and has claimed everything."""
        return self.keeper is not None and self.keeper.level

    def until_level(self) -> Fence:
        """Go on, without kills, until everything is claimed."""
        self.kill_chance = 0.0
        for number in range(200):
            self.turn()
            if number % 20 == 19:
                # A living capture writes the next one.
                self.history.progress()
            if self.level:
                return self.topic.claims[-1]
        raise AssertionError("the view never comes level")


def interfere(runner: BucketRunner, chance: random.Random) -> None:
    """Sometimes: an end, a copy of the state, the copy put back, the state deleted."""
    state, kept = runner.folder / "state", runner.folder / "kept"
    what = chance.randrange(8)
    if what < 4:
        runner.end()
    if what == 1 and state.exists():
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(state, kept)
    if what == 2 and kept.exists():
        shutil.rmtree(state, ignore_errors=True)
        shutil.copytree(kept, state)
    if what == 3:
        shutil.rmtree(state, ignore_errors=True)
