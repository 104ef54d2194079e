"""Eager views: over random histories of Debezium's, with kills, states that are lost or copied back, and epochs.

No cut is of whole transactions, so nothing is compared in between. Whenever the topics rest, each document has to be
what the tables say, and no key's version may ever have gone back.
"""

from __future__ import annotations

import random
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc.position import Position
from cdc.topic import TableName
from cdc.views.cut_reading import CutReading
from cdc.views.eager import ShownLsns, TopicsReach, cut_to
from cdc.views.embedded_state import EmbeddedState, KnownUpTo
from cdc.views.fences import Fence
from cdc.views.keeper_rules import noted_after
from cdc.views.lookups import DocumentSource
from cdc.views.record_rows import StateRows
from cdc.views.refused import NotComputable
from cdc.views.row_changes import LOST, RowChange
from cdc.views.state_reach import Reached
from cdc.views.view_plan import planned
from cdc.views.view_state import ViewState
from cdc.wire.records import Lot, Span
from tests.examples import examples
from tests.unit.cdc.views.eager_histories import EagerHistory, EagerRunner, opened
from tests.unit.cdc.views.oracles import DOCUMENTS, VIEWS, documents_of
from tests.unit.cdc.views.view_histories import interfere, shown, table_of


@pytest.mark.parametrize("view", VIEWS)
@settings(max_examples=examples(60))
@given(seed=st.integers(0, 2**32 - 1))
def test_h198_at_rest_documents_are_what_the_tables_say(
    view: str, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    sql, oracle = VIEWS[view]
    chance = random.Random(seed)
    history = EagerHistory(chance)
    runner = EagerRunner(sql, history, tmp_path_factory.mktemp("view"), bulk=chance.choice([3, 1000]))
    for _ in range(12):
        for _ in range(chance.randint(0, 3)):
            history.transaction()
        if chance.random() < 0.1:
            history.truncate()
        if chance.random() < 0.8:
            history.progress()
        runner.kill_chance = 0.2
        for _ in range(chance.randint(0, 5)):
            runner.turn()
        interfere(runner, chance)
        history.clock.advance(chance.choice([0, 1, 20, 70]))
        if chance.random() < 0.5:
            history.compact()
        if chance.random() < 0.4:
            runner.until_all()
            assert shown(runner.topic) == oracle(history.rows)
    assert {key: found for key, found in runner.versions().items() if found != sorted(found)} == {}
    runner.end()


@settings(max_examples=examples(40))
@given(seed=st.integers(0, 2**32 - 1))
def test_h199_a_new_epoch_sweeps_once_its_reading_is_over(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    history, runner = opened(DOCUMENTS, tmp_path_factory.mktemp("view"), seed)
    for _ in range(8):
        history.transaction()
    runner.until_all()
    before = shown(runner.topic)
    reading = history.next_epoch()
    history.eager.looked = reading
    for _ in range(5):
        runner.turn()
        if history.chance.random() < 0.3:
            runner.end()
    assert shown(runner.topic) == before, "nothing is published while rows that are gone may be there"
    history.eager.looked = replace(reading, settled=True, reread=True)
    for _ in range(20):
        runner.turn()
    assert shown(runner.topic) == documents_of(history.rows)
    assert {key: found for key, found in runner.versions().items() if found != sorted(found)} == {}
    runner.end()


def test_an_epoch_that_read_a_part_sweeps_nothing(tmp_path: Path) -> None:
    history, runner = opened(DOCUMENTS, tmp_path, 5)
    for _ in range(8):
        history.transaction()
    runner.until_all()
    keys = set(shown(runner.topic))
    history.eager.looked = replace(history.next_epoch(), settled=True)
    for _ in range(20):
        runner.turn()
    assert set(shown(runner.topic)) == keys
    runner.end()


def test_nothing_is_built_before_the_first_reading_is_over(tmp_path: Path) -> None:
    history, runner = opened(DOCUMENTS, tmp_path, 5)
    for _ in range(8):
        history.transaction()
    history.look()
    history.eager.looked = replace(history.eager.looked, settled=False)
    for _ in range(5):
        runner.turn()
    assert runner.topic.records == {}
    runner.until_all()
    assert shown(runner.topic) == documents_of(history.rows)
    runner.end()


def test_what_is_shown_at_least_goes_on_without_records(tmp_path: Path) -> None:
    history, runner = opened(DOCUMENTS, tmp_path, 5)
    history.transaction()
    claim = runner.until_all()
    assert history.eager.shown.at(claim) == Fence(1, history.lsn - 8)
    runner.turn()
    assert runner.topic.claims[-1] == claim, "nothing has moved"
    history.eager.looked = replace(history.eager.looked, lsn=1000)
    for _ in range(3):
        runner.turn()
    assert history.eager.shown.at(runner.topic.claims[-1]) == Fence(1, 1000)
    runner.end()


def test_a_fence_lies_above_all_before_it() -> None:
    reached = Reached(plan="p", generation=1, fence=Fence(1, 80), swept={"t": 1}, offsets={"t.t": {0: 5}})
    reach = TopicsReach(lsn=50, offsets={"t.t": {0: 5}})
    assert cut_to(reach, reached, Fence(1, 50), ["t"]).lsn == 80, "nothing to do"
    assert cut_to(replace(reach, offsets={"t.t": {0: 6}}), reached, Fence(1, 50), ["t"]).lsn == 88
    assert cut_to(replace(reach, lsn=1001), reached, Fence(1, 50), ["t"]).lsn == 1008
    fallen = replace(reached, published=Fence(1, 160))
    assert cut_to(reach, fallen, Fence(1, 50), ["t"]).lsn == 168, "the topic holds newer versions"
    second = cut_to(replace(reach, epoch=2, begun={1: {"t.t": {0: 3}}}), reached, Fence(1, 50), ["t"])
    assert (second.epoch, second.lsn, second.starts(reached.offsets)) == (2, 56, {"t.t": {0: 3}})
    older = cut_to(replace(reach, reread=True), replace(reached, fence=Fence(2, 8)), Fence(1, 50), ["t"])
    assert (older.epoch, older.settled, older.floor(1)) == (2, False, ""), "an epoch that nobody has noted"


@pytest.mark.parametrize(
    ("settled", "epoch", "before", "noted"),
    [
        (True, 2, "", "second"),
        # An epoch may be noted once more until its reading is over, and one that was known stays so meanwhile.
        (False, 2, "", ""),
        (False, 2, "second", "second"),
        (False, 3, "second", ""),
        (True, 1, "second", "second"),
    ],
)
def test_h237_a_cut_notes_its_epochs_identity(settled: bool, epoch: int, before: str, noted: str) -> None:
    reached = Reached(plan="p", generation=1, fence=Fence(2, 80), epoch_id=before)
    identity = {1: "first", 2: "second", 3: "third"}[epoch]
    cut = cut_to(TopicsReach(epoch=epoch, settled=settled, epoch_id=identity), reached, None, ["t"])
    reading = CutReading(cut, reached, {"t.t": TableName("t", "t")})
    found = noted_after(reading, reached, proven=True, letters=0, lacking=({}, {}), now_ms=1)
    assert found["epoch_id"] == noted
    assert Reached.from_json(replace(reached, **found).to_json()).epoch_id == noted


def test_an_epoch_is_read_from_where_it_begins() -> None:
    reached = Reached(plan="p", generation=1, fence=Fence(1, 80), offsets={"t.t": {0: 5, 1: 2}})
    reach = TopicsReach(epoch=2, offsets={"t.t": {0: 9, 1: 4}}, begun={1: {"t.t": {0: 3, 1: 2}}})
    reading = CutReading(cut_to(reach, reached, None, ["t.t"]), reached, {"t.t": TableName("t", "t")})
    assert reading.spans == [Span("t.t", 0, 3, 9), Span("t.t", 1, 2, 4)]
    assert reading.fence == Fence(2, 8)


def test_an_eager_cut_has_what_lies_beyond_its_fence() -> None:
    """Its fence is a number of its own, and topics may hold later commits than the connector has noted."""
    table = TableName("t", "t")
    reached = Reached(plan="p", generation=1, fence=Fence(1, 80))
    reading = CutReading(cut_to(TopicsReach(offsets={"t.t": {0: 2}}), reached, None, ["t.t"]), reached, {"t.t": table})
    beyond: list[bytes | None] = [Position(1, lsn, 0).text().encode() for lsn in (reading.fence.lsn + 7, (1 << 40) - 1)]
    lot = Lot("t.t", 0, [0, 1], [1, 1], [b"{}"] * 2, [b"{}"] * 2, beyond, [b"u"] * 2, [b"1"] * 2, {})
    (found,) = reading.pieces([lot], lambda record: RowChange(table, (1,), (1,), record.pos), None)
    assert [change.pos.encode() for change in found] == beyond
    assert (reading.offsets, reading.foreign) == ({"t.t": {0: 2}}, 0)


def test_a_row_below_a_truncate_of_another_partition_is_gone() -> None:
    table = TableName("t", "t")
    floor, below, above = (Position(1, lsn, 0).text() for lsn in (23, 15, 31))
    reached = Reached(plan="p", generation=1, fence=Fence(1, 80), cleared={str(table): floor})
    reach = TopicsReach(offsets={"t.t": {1: 2}})
    reading = CutReading(cut_to(reach, reached, None, [str(table)]), reached, {"t.t": table})
    pos: list[bytes | None] = [below.encode(), above.encode()]
    lot = Lot("t.t", 1, [0, 1], [1, 1], [b"{}"] * 2, [b"{}"] * 2, pos, [b"u"] * 2, [b"1"] * 2, {})
    (found,) = reading.pieces([lot], lambda record: RowChange(table, (1,), (1,), record.pos), None)
    assert [change.pos for change in found] == [above]


def test_marks_of_what_is_shown_are_bounded() -> None:
    marks = ShownLsns()
    for number in range(1, 5_000):
        marks.note(Fence(1, 8 * number), Fence(1, number))
    assert marks.at(Fence(1, 8 * 4_999)) == Fence(1, 4_999)
    assert marks.at(Fence(1, 7)) is None
    low = marks.at(Fence(1, 8_000))
    assert low is not None
    assert low <= Fence(1, 1_000), "never more than was shown"


def test_h200_a_value_that_postgres_has_not_is_not_known() -> None:
    shape = replace(table_of("visits", {"id": "int4", "at": "time", "day": "date"}), oid=0)
    plan = planned("select v.id, v.at, v.day from visits v", [shape])
    rows = StateRows(shape, plan.relations[TableName("public", "visits")])
    row = rows.row({"id": 1, "at": "-101:02:03Z", "day": "2024-01-02Z"})
    assert row[0] == 1
    assert row[1] is LOST
    assert row[2] is not LOST
    known = StateRows(replace(shape, oid=7), plan.relations[TableName("public", "visits")])
    with pytest.raises(ValueError, match="time"):
        known.row({"id": 1, "at": "-101:02:03Z", "day": None})
    with pytest.raises(ValueError, match="key"):
        rows.key(orjson.dumps({"other": 1}))


FITTING: list[tuple[str, Any]] = [
    ("int4", 5),
    ("numeric", "5.00"),
    ("float8", 5),
    ("float8", "NaN"),
    ("bool", False),
    ("text", "5"),
    ("jsonb", "[]"),
    ("inet", "::1"),
    ("int4[]", [1, None, [2]]),
]
OTHERS: list[tuple[str, Any]] = [
    ("int4", "abc"),
    ("int4", '5,"v":"x"'),
    ("int4", True),
    ("int8", 1 << 63),
    ("numeric", "POSITIVE_INFINITY"),
    ("numeric", 5),
    ("float8", "abc"),
    ("bool", 5),
    ("text", 5),
    ("text", ["a"]),
    ("text", {"x": 1}),
    ("inet", ["::1"]),
    ("bytea", "abc"),
    ("text[]", "abc"),
    ("int4[]", ["a"]),
]


def _as_kept(kind: str, value: Any) -> Any:
    """The value of a record of Debezium's in a row of the state, of a column of this type."""
    array = kind.endswith("[]")
    plain = table_of("visits", {"id": "int4", "v": kind.removesuffix("[]")})
    columns = (plain.columns[0], replace(plain.columns[1], array=array))
    shape = replace(plain, oid=0, columns=columns)
    plan = planned("select v.id, v.v from visits v", [shape])
    return StateRows(shape, plan.relations[TableName("public", "visits")]).row({"id": 1, "v": value})[1]


@pytest.mark.parametrize(("kind", "value"), FITTING)
def test_h563_a_value_of_a_columns_type_is_known(kind: str, value: Any) -> None:
    assert _as_kept(kind, value) is not LOST


@pytest.mark.parametrize(("kind", "value"), OTHERS)
def test_h563_a_value_of_another_type_is_not_known(kind: str, value: Any) -> None:
    """Among numbers a text would be written into the document as it is, which is no JSON then, or another one."""
    assert _as_kept(kind, value) is LOST


@pytest.mark.parametrize("key", [b'{"id":"x"}', b'{"id":[1]}', b'{"id":{"a":1}}', b'{"id":9223372036854775808}'])
def test_h563_a_key_of_another_type_is_none(key: bytes) -> None:
    shape = replace(table_of("visits", {"id": "int4", "v": "text"}), oid=0)
    plan = planned("select v.id, v.v from visits v", [shape])
    rows = StateRows(shape, plan.relations[TableName("public", "visits")])
    with pytest.raises((ValueError, TypeError)):
        rows.key(key)
    with pytest.raises(ValueError, match="key"):
        rows.row({**orjson.loads(key), "v": "s"})


ROWS: list[tuple[int, Any]] = [(1, 99), (2, "x")]


def test_h214_a_row_without_its_key_is_none() -> None:
    """Somebody else's record may look like a flat row, and the state takes no row without a key."""
    shape = table_of("visits", {"id": "int4", "v": "text"})
    plan = planned("select v.id, v.v from visits v", [shape])
    rows = StateRows(shape, plan.relations[TableName("public", "visits")])
    assert rows.row({"id": 1, "v": None}) == (1, None)
    for after in ({"before": None}, {"id": None, "v": "x"}):
        with pytest.raises(ValueError, match="key"):
            rows.row(after)


def test_h214_a_value_of_another_type_parks_its_document(tmp_path: Path) -> None:
    """A column's type changes while the view is kept: nothing but the documents that it concerns stands still."""
    table = TableName("public", "visits")
    plan = planned("select v.id, length(v.v) as size from visits v", [table_of("visits", {"id": "int4", "v": "text"})])
    with closing(ViewState(tmp_path / "state", plan, 1)) as state, state.transaction():
        changes = [RowChange(table, (key,), (key, value), Position(1, 15, key).text()) for key, value in ROWS]
        EmbeddedState(state.rows, state.unseen, plan).load(changes, Fence(1, 80), KnownUpTo(), [])
        found = DocumentSource(plan).of(state.rows, [(1,), (2,)])
    assert isinstance(found[(1,)], NotComputable)
    assert "does not have the type" in str(found[(1,)])
    assert orjson.loads(found[(2,)]) == {"id": 2, "size": 1}
