"""Changes of a bucket against the state on one machine: the same rows, values that are lost, and changes that wait."""

from __future__ import annotations

import random
import sqlite3

from hypothesis import given
from hypothesis import strategies as st

from cdc.position import Position
from cdc.topic import TableName
from cdc.views.bucket_changes import (
    BucketBatch,
    KnownRow,
    applied,
    change_members,
    read_change,
)
from cdc.views.bucket_layout import BucketLayout
from cdc.views.embedded_state import EmbeddedState, KnownUpTo
from cdc.views.fences import Fence
from cdc.views.lookups import Row
from cdc.views.row_changes import KEPT, LOST, NO_PLACES, RowChange
from cdc.views.sqlite_rows import SqliteRows
from cdc.views.unseen_rows import UnseenRows
from cdc.views.view_plan import planned
from tests.unit.cdc.views.view_histories import SHAPES

LINES = TableName("public", "lines")
PLAN = planned("select l.id, l.order_id, l.qty from lines l", SHAPES)


def changes(chance: random.Random, lsn: int) -> list[RowChange]:
    """Some changes up to an LSN: rows and deletions, with values left out, lost, selected again or read ahead."""
    found = []
    for seq in range(chance.randint(0, 5)):
        key = (chance.randint(1, 3),)
        ripe, reselected = Fence(0, 0), NO_PLACES
        values = [chance.choice([None, 1, 2, KEPT, KEPT, LOST]) for _ in range(2)]
        row: Row | None = None if chance.random() < 0.25 else (*key, *values)
        if chance.random() < 0.3:
            ripe = Fence(1, chance.randint(1, lsn + 20))
            reselected = frozenset({1}) if row is not None and chance.random() < 0.5 else NO_PLACES
        commit = chance.choice([lsn, lsn, max(1, lsn - 8)])
        pos = Position(1, commit, seq + 1).text()
        found.append(RowChange(LINES, key, row, pos, ripe, reselected, sure=chance.random() < 0.7))
    return found


@given(seed=st.integers(0, 2**32 - 1))
def test_v3_v25_a_bucket_is_what_the_embedded_state_is(seed: int) -> None:
    chance = random.Random(seed)
    connection = sqlite3.connect(":memory:", isolation_level=None)
    rows, unseen = SqliteRows(connection, PLAN.relations), UnseenRows(connection, PLAN.relations)
    state = EmbeddedState(rows, unseen, PLAN)
    copy = BucketLayout(PLAN, 1).primary(LINES)
    known: dict[Row, KnownRow] = {}
    waiting: list[RowChange] = []
    before = Fence(1, 0)
    for lsn in range(8, 60, 8):
        fence, some = Fence(1, lsn + 4), changes(chance, lsn)
        floor = Position(1, lsn - 4, 1).text() if chance.random() < 0.15 else ""
        aside = [RowChange(LINES, (2,), (2, LOST, LOST), Position(1, lsn, 9).text(), Fence(1, lsn + 1))]
        aside = aside if chance.random() < 0.1 else []
        state.apply(some, {LINES: floor} if floor else {}, fence=fence, below=KnownUpTo(before), put_aside=aside)
        some = [read_change(LINES, change_members(change)) for change in some]
        outcome = applied(copy, BucketBatch(fence, before, floor), known, some, [*waiting, *aside])
        known |= {copy.row_key(one.key): KnownRow(one.new, one.pos, one.lost) for one in outcome.replaced}
        waiting = outcome.waiting
        keys = [(key,) for key in range(1, 4)]
        stored = rows.known(LINES, keys)
        assert {key: (row.row, row.pos) for key, row in known.items()} == stored
        lost = unseen.lost(LINES, keys)
        assert {key: row.lost for key, row in known.items() if row.lost} == lost
        kept = connection.execute("SELECT key, pos, lsn FROM ahead").fetchall()
        assert sorted((f"[{one.key[0]}]", one.pos, one.ripe.lsn) for one in waiting) == sorted(kept)
        before = fence
    connection.close()
