"""Eager views over rows that leave out a long value which did not change: Debezium writes a placeholder for it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from cdc.clock import ManualClock
from cdc.position import Position
from cdc.views.eager import ShownLsns, TopicsReach
from cdc.views.keeper import Keeper, KeeperParts
from cdc.views.memory_views import MemoryEagerInput, MemoryEagerOutput, MemoryViewTopic
from cdc.views.view_plan import planned
from cdc.views.view_records import ViewRecords
from cdc.views.view_state import ViewState
from cdc.wire.format import UNAVAILABLE
from tests.unit.cdc.views.view_histories import shown, table_of

SHAPE = replace(table_of("visits", {"id": "int4", "v": "text"}), oid=0)
SQL = "select v.id, v.v from visits v"


class Visits:
    """One table in one partition, and the runner of a view over it."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.source = MemoryEagerInput({SHAPE.topic: SHAPE}, {(SHAPE.topic, 0): []})
        self.topic = MemoryViewTopic()
        self.path = folder / "state"
        self._opened: tuple[Keeper, ViewState] | None = None

    def write(self, key: int, value: str, op: bytes = b"u") -> None:
        """One row, in a transaction of its own."""
        records = self.source.partitions[SHAPE.topic, 0]
        offset = records[-1][0] + 1 if records else 0
        self.source.times_ms[SHAPE.topic, 0, offset] = self.clock.now_ns() // 1_000_000
        after = orjson.dumps({"before": None, "after": {"id": key, "v": value}})
        pos = Position(1, 8 * (offset + 1) - 1, 0).text().encode()
        records.append((offset, (orjson.dumps({"id": key}), after, pos, op, b"1")))

    def compact(self) -> None:
        """The cleaner leaves the newest of each key."""
        newest = {change[0]: offset for offset, change in self.source.partitions[SHAPE.topic, 0]}
        kept = [one for one in self.source.partitions[SHAPE.topic, 0] if newest[one[1][0]] == one[0]]
        self.source.partitions[SHAPE.topic, 0][:] = kept

    def end(self) -> None:
        """The process is gone."""
        if self._opened is not None:
            self._opened[1].close()
        self._opened = None

    def documents(self) -> dict[int, Any]:
        """The view, once the runner has looked and published what it can."""
        ends = {SHAPE.topic: {0: self.source.partitions[SHAPE.topic, 0][-1][0] + 1}}
        self.source.looked = TopicsReach(offsets=ends)
        self.source.progress_ms = self.clock.now_ns() // 1_000_000
        for _ in range(5):
            self._keeper().turn()
        return {orjson.loads(key)["id"]: row["v"] for key, row in shown(self.topic).items()}  # type: ignore[index]

    def _keeper(self) -> Keeper:
        if self._opened is None:
            plan = planned(SQL, [SHAPE])
            state = ViewState(self.path, plan, 1)
            topics = {SHAPE.table: SHAPE.topic}
            self.source.kept, self.source.topics, self.source.shown = state, topics, ShownLsns()
            records = ViewRecords(plan, "v", "t.view.v.1", 2, name="t", database="d")
            parts = KeeperParts(plan, state, self.source, MemoryEagerOutput(self.topic), records, topics)
            self._opened = Keeper(parts, clock=self.clock), state
            self._opened[0].begin()
        return self._opened[0]


@pytest.fixture
def visits(tmp_path: Path) -> Iterator[Visits]:
    """Two rows, the first of which was changed without its long value."""
    found = Visits(tmp_path)
    found.write(1, "long", b"c")
    found.write(2, "b", b"c")
    assert found.documents() == {1: "long", 2: "b"}
    found.write(1, UNAVAILABLE)
    assert found.documents() == {1: "long", 2: "b"}
    yield found
    found.end()


def test_h564_a_lost_state_parks_no_more_than_it_lacks(visits: Visits) -> None:
    """Nothing of the view went out any more, for the sake of the one row of which a value is not known."""
    visits.write(2, "bb")
    assert visits.documents() == {1: "long", 2: "bb"}
    visits.end()
    visits.path.unlink()
    visits.clock.advance(200)
    visits.compact()
    assert visits.documents() == {1: "long", 2: "bb"}
    visits.write(2, "c")
    visits.write(3, "d", b"c")
    assert visits.documents() == {1: "long", 2: "c", 3: "d"}
    visits.write(1, "longer")
    assert visits.documents() == {1: "longer", 2: "c", 3: "d"}


def test_h564_a_restart_parks_no_more_than_before(visits: Visits) -> None:
    visits.end()
    visits.path.unlink()
    visits.clock.advance(200)
    visits.compact()
    visits.documents()
    visits.end()
    visits.write(2, "c")
    assert visits.documents() == {1: "long", 2: "c"}


def test_h565_a_state_that_rests_is_kept(visits: Visits, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing was written for longer than topics keep deletions, and the runner was there all the time."""
    for _ in range(8):
        visits.clock.advance(visits.source.retention_s / 4)
        visits.compact()
        visits.documents()
    visits.end()
    visits.write(1, UNAVAILABLE)
    caplog.set_level(logging.WARNING)
    assert visits.documents() == {1: "long", 2: "b"}
    assert [one.getMessage() for one in caplog.records] == []


def test_h565_a_state_that_rests_is_not_written_at_each_look(visits: Visits) -> None:
    visits.documents()
    claims = len(visits.topic.claims)
    for _ in range(8):
        visits.clock.advance(visits.source.retention_s / 100)
        visits.documents()
    assert len(visits.topic.claims) == claims
    visits.clock.advance(visits.source.retention_s / 4)
    visits.documents()
    assert len(visits.topic.claims) == claims + 1


def test_a_state_that_was_away_for_longer_is_built_anew(visits: Visits, caplog: pytest.LogCaptureFixture) -> None:
    visits.end()
    visits.clock.advance(2 * visits.source.retention_s)
    visits.documents()
    assert next(one.getMessage() for one in caplog.records) == "view_state_too_old"
