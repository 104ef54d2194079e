"""NULLs of Debezium's that may stand for an unchanged value, read into the state of an eager view."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from cdc.position import Position
from cdc.schema import TableSchema
from cdc.testing import MemoryCompactedTopic
from cdc.views.embedded_state import EmbeddedState, KnownUpTo
from cdc.views.fences import Fence, TopicRecord
from cdc.views.record_changes import RecordChanges
from cdc.views.row_changes import LOST, RowChange
from cdc.views.view_plan import planned
from cdc.views.view_state import ViewState
from cdc.wire.format import OLD_KEY
from cdc.wire.records import Lot
from connectors.kafka.schema_registry import EmbeddedShapes, SchemaRegistry
from connectors.view_eager import translated_lot
from connectors.view_unsaid import MOST_KEYS, UnsaidNulls
from spark.debezium_feed import Translation
from spark.known_epochs import KnownEpochs
from tests.unit.cdc.wire.debezium.test_unsaid import SAID, SILENT, record

TOPIC = "d.s.t"
ARRAY = SILENT["numeric[]"]
SURE_MS = 1000.0


def lot_of(*values: bytes | None, time_ms: int = 2000, key: int = 1) -> Lot:
    count = len(values)
    none: list[bytes | None] = [None] * count
    keys: list[bytes | None] = [orjson.dumps({"id": key})] * count
    return Lot(TOPIC, 0, [*range(count)], [time_ms] * count, keys, [*values], none, none, none, {})


class Unsaid:
    """A reading into a state that has the row 1."""

    def __init__(self, state: ViewState, shape: TableSchema, shapes: EmbeddedShapes, most_keys: int) -> None:
        tables = {TOPIC: shape.table}
        self._translation = Translation(shapes, KnownEpochs())
        self._changes = RecordChanges(state.plan, tables, lambda *_: shape)
        self.nulls = UnsaidNulls(state, tables, lambda *_: shape, lambda: SURE_MS, most_keys)

    def read(self, lot: Lot) -> list[Any]:
        """The values that a view makes of column v, and "gone" of a delete."""
        found = self.nulls.said(translated_lot(self._translation, lot))
        return [self._value(found, number) for number in range(len(found.offsets))]

    def _value(self, lot: Lot, number: int) -> Any:
        key, pos, op = lot.keys[number] or b"", (lot.pos[number] or b"").decode(), (lot.op[number] or b"").decode()
        version, time_ms = int(lot.ver[number] or b"0"), lot.times_ms[number]
        one = TopicRecord(lot.topic, 0, lot.offsets[number], key, lot.values[number], pos, op, version, time_ms)
        row = self._changes.of(one, 0).row
        return "gone" if row is None else row[1]


@contextmanager
def reading(
    folder: Path, stored: str | None, column: dict[str, Any] = ARRAY, most_keys: int = MOST_KEYS
) -> Iterator[Unsaid]:
    registry = SchemaRegistry(MemoryCompactedTopic())
    shapes = EmbeddedShapes(registry)
    translated_lot(Translation(shapes, KnownEpochs()), lot_of(record(column, None, op="c")))
    (shape,) = registry.versions()
    plan = planned("select t.id, t.v from s.t", [shape])
    state = ViewState(folder / "state", plan, 1)
    try:
        with state.transaction():
            change = RowChange(shape.table, (1,), (1, stored), Position(1, 80, 0).text())
            EmbeddedState(state.rows, state.unseen, plan).load([change], Fence(1, 88), KnownUpTo(), [])
        yield Unsaid(state, shape, shapes, most_keys)
    finally:
        state.close()


@pytest.mark.parametrize(
    ("stored", "time_ms", "found"), [(None, 2000, None), ('["1.0"]', 2000, LOST), (None, 500, LOST)]
)
def test_h574_it_is_null_where_the_row_before_has_null(
    tmp_path: Path, stored: str | None, time_ms: int, found: object
) -> None:
    """Else it is not known: the former value was shown for ever, level. Of an old record the row before may be gone."""
    with reading(tmp_path, stored) as view:
        assert view.read(lot_of(record(ARRAY, None), time_ms=time_ms)) == [found]


def test_h574_the_row_before_may_be_of_the_same_reading(tmp_path: Path) -> None:
    value, unsaid, made = record(ARRAY, ["2.0"]), record(ARRAY, None), record(ARRAY, None, op="c")
    with reading(tmp_path, None) as view:
        assert view.read(lot_of(value, unsaid, unsaid)) == ['["2.0"]', LOST, LOST]
        assert view.read(lot_of(made, unsaid, unsaid)) == [None, None, None]
        assert view.read(lot_of(unsaid, key=2)) == [LOST], "a row that the state does not have"
        view.nulls.begin()
        assert view.read(lot_of(unsaid)) == [None], "that of the state"


def test_h574_what_was_forgotten_is_not_known(tmp_path: Path) -> None:
    """A reading of many keys remembers some: the state may be older than the row of one that it forgot."""
    with reading(tmp_path, None, most_keys=2) as view:
        view.read(lot_of(record(ARRAY, ["2.0"])))
        for key in (2, 3):
            view.read(lot_of(record(ARRAY, None, op="c"), key=key))
        assert view.read(lot_of(record(ARRAY, None))) == [LOST]
        view.nulls.begin()
        assert view.read(lot_of(record(ARRAY, None))) == [None]


def test_h574_a_type_with_a_placeholder_is_as_it_was(tmp_path: Path) -> None:
    column = SAID["text[]"]
    with reading(tmp_path, '["a"]', column) as view:
        assert view.read(lot_of(record(column, None), record(column, ["b"]))) == [None, '["b"]']


def test_h585_a_null_of_a_moved_row_is_not_known(tmp_path: Path) -> None:
    """No row stands before it at its key, whatever the state has there."""
    made = lot_of(record(ARRAY, None, op="c"))
    with reading(tmp_path, None) as view:
        assert view.read(made._replace(headers={0: ((OLD_KEY, b'{"id":7}'),)})) == [LOST]
        assert view.read(made._replace(headers={0: (("trace", b"7"),)})) == [None]
