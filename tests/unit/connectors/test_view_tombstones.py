"""A tombstone whose delete the cleaner has taken, read into the state of an eager view by a run that begins behind."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path

import orjson
import pytest

from cdc.position import Position
from cdc.testing import MemoryCompactedTopic
from cdc.views.embedded_state import EmbeddedState, KnownUpTo
from cdc.views.fences import Fence
from cdc.views.row_changes import RowChange
from cdc.views.view_plan import planned
from cdc.views.view_state import ViewState
from cdc.wire.debezium.reading import PartitionReader
from cdc.wire.records import Lot
from connectors.kafka.schema_registry import EmbeddedShapes, SchemaRegistry
from connectors.view_eager import translated_lot
from connectors.view_tombstones import LoneTombstones
from spark.debezium_feed import Translation
from spark.known_epochs import KnownEpochs
from tests.unit.cdc.wire.debezium.recorded import Recorded
from tests.unit.spark.test_rekeyed import FORMER, TOPIC, row
from tests.unit.spark.translating import Earlier

LONE = partial(PartitionReader, lone=True)
STOOD = Position(1, 799, 0).text()
"""Of the row in the state."""


def lot_of(*records: Recorded) -> Lot:
    none: list[bytes | None] = [None] * len(records)
    offsets, keys, values = ([one[i] for one in records] for i in (2, 3, 4))
    return Lot(TOPIC, 0, offsets, [1] * len(records), keys, values, none, none, none, {})  # type: ignore[arg-type]


def read_behind(earlier: list[Recorded], *records: Recorded, folder: Path) -> tuple[list[int], list[bytes | None]]:
    """Offsets and positions of these records, read by a run that begins with them, into a state with the row ``7``."""
    registry = SchemaRegistry(MemoryCompactedTopic())
    shapes = EmbeddedShapes(registry)
    translated_lot(Translation(shapes, KnownEpochs()), lot_of(row(0, FORMER)))
    (shape,) = registry.versions()
    plan = planned("select t.id, t.v from s.t", [shape])
    with closing(ViewState(folder / "state", plan, 1)) as state:
        with state.transaction():
            change = RowChange(shape.table, ("7",), ("7", "x"), STOOD)
            EmbeddedState(state.rows, state.unseen, plan).load([change], Fence(1, 808), KnownUpTo(), [])
        run = Translation(shapes, KnownEpochs(), earlier=lambda: Earlier(earlier), reader=LONE)
        tombstones = LoneTombstones(state, {TOPIC: shape.table}, lambda *_: shape)
        lot = tombstones.placed(translated_lot(run, lot_of(*records)))
    return lot.offsets, lot.pos


@pytest.mark.parametrize("earlier", [[], [row(2, FORMER)]])
def test_h566_a_lone_tombstone_stands_where_its_row_did(earlier: list[Recorded], tmp_path: Path) -> None:
    """What the cleaner left of the partition lies below the row, or there is nothing left: the row stayed for ever."""
    tombstone = Recorded(TOPIC, 0, 90, b'{"id":"7"}', None)
    assert read_behind(earlier, tombstone, folder=tmp_path) == ([90], [STOOD.encode()])


def test_h566_other_tombstones_stand_where_they_did(tmp_path: Path) -> None:
    unknown = Recorded(TOPIC, 0, 90, b'{"id":"8"}', None)
    later = row(120, FORMER)
    behind = Recorded(TOPIC, 0, 121, b'{"id":"7"}', None)
    foreign = Recorded(TOPIC, 0, 122, b'{"other":1}', None)
    deleted = [row(123, FORMER, op="d"), Recorded(TOPIC, 0, 124, b'{"id":"123"}', None)]
    offsets, positions = read_behind([row(2, FORMER)], unknown, later, behind, foreign, *deleted, folder=tmp_path)
    assert offsets == [90, 120, 121, 122, 123], "the last one's delete was read before it"
    own, gone = (Position(1, 8 * (n + 1) - 1, 0).text().encode() for n in (120, 123))
    assert positions == [own, own, gone, gone, gone], "each where the next record of its partition stands"


def test_h566_a_first_record_that_is_a_tombstone(tmp_path: Path) -> None:
    """Of a key that the state does not have, it is at the lowest place of all."""
    unknown = Recorded(TOPIC, 0, 90, orjson.dumps({"id": "8"}), None)
    assert read_behind([], unknown, folder=tmp_path) == ([90], [Position(1, 0, 0).text().encode()])
