"""A view's runner over random histories, with kills between every two steps and states that are copied back.

The oracle computes the view from all transactions below a fence, by plain Python. At each claim the topic has to show
just that, whatever happened before.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc.errors import Exit
from cdc.views.fences import Fence
from cdc.views.view_state import StateAway
from tests.unit.cdc.views.view_histories import History, Rows, Runner, interfere, shown

DOCUMENTS = """select o.id, c.name, (select json_agg(l.qty order by l.id) from lines l where l.order_id = o.id) as lines
from orders o left join customers c on c.id = o.customer_id"""
GROUPS = """select c.name, count(*) as n, sum(l.qty) as total, max(l.qty) as most
from lines l left join orders o on o.id = l.order_id left join customers c on c.id = o.customer_id group by 1"""


def documents_of(rows: Rows) -> dict[bytes, object]:
    """The first view, by hand."""
    found: dict[bytes, object] = {}
    for number, order in rows["orders"].items():
        customer = rows["customers"].get(order["customer_id"] or 0)
        lines = [line["qty"] for _, line in sorted(rows["lines"].items()) if line["order_id"] == number]
        name = None if customer is None else customer["name"]
        shown = None if not lines else "[" + ", ".join("null" if q is None else str(q) for q in lines) + "]"
        found[orjson.dumps({"id": number})] = {"id": number, "name": name, "lines": shown}
    return found


def groups_of(rows: Rows) -> dict[bytes, object]:
    """The second view, by hand: lines whose customer is not known are a group as well."""
    groups: dict[int | None, list[int | None]] = {}
    for line in rows["lines"].values():
        order = rows["orders"].get(line["order_id"] or 0)
        customer = None if order is None else rows["customers"].get(order["customer_id"] or 0)
        name = None if customer is None else customer["name"]
        groups.setdefault(name, []).append(line["qty"])
    found: dict[bytes, object] = {}
    for name, quantities in groups.items():
        known = [q for q in quantities if q is not None]
        figures = {"n": len(quantities), "total": sum(known) if known else None, "most": max(known, default=None)}
        found[orjson.dumps({"name": name})] = {"name": name, **figures}
    return found


TOTAL = """select count(*) as n, sum(l.qty) as total from lines l join orders o on o.id = l.order_id
where o.customer_id is not null"""


def total_of(rows: Rows) -> dict[bytes, object]:
    """The third view, by hand: one row, over no lines as well."""
    orders = {number for number, order in rows["orders"].items() if order["customer_id"] is not None}
    counted = [line["qty"] for line in rows["lines"].values() if line["order_id"] in orders]
    known = [q for q in counted if q is not None]
    return {b"{}": {"n": len(counted), "total": sum(known) if known else None}}


VIEWS: dict[str, tuple[str, Callable[[Rows], dict[bytes, object]]]] = {
    "documents": (DOCUMENTS, documents_of),
    "groups": (GROUPS, groups_of),
    "one row": (TOTAL, total_of),
}


@pytest.mark.parametrize("view", VIEWS)
@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1))
def test_v1_v9_h158_h185_claims_are_what_the_tables_say(
    view: str, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    sql, oracle = VIEWS[view]
    chance = random.Random(seed)
    history = History(chance)
    folder = tmp_path_factory.mktemp("view")
    runner = Runner(sql, history, folder, bulk=chance.choice([3, 1000]))
    for _ in range(12):
        for _ in range(chance.randint(0, 3)):
            history.transaction()
        if chance.random() < 0.1:
            history.truncate()
        if chance.random() < 0.2:
            history.foreign()
        if chance.random() < 0.7:
            history.progress()
        runner.kill_chance = 0.2
        for _ in range(chance.randint(0, 5)):
            runner.turn()
            if runner.level:
                claim = runner.topic.claims[-1]
                assert shown(runner.topic) == oracle(history.at(claim.lsn))
        interfere(runner, chance)
        history.clock.advance(chance.choice([1, 20, 70]))
        if chance.random() < 0.5:
            history.compact()
        if chance.random() < 0.4 and history.input.newest is not None:
            claim = runner.until_level()
            assert claim == Fence(1, history.input.newest.lsn)
            assert shown(runner.topic) == oracle(history.at(claim.lsn))
    runner.end()


def test_v17_a_state_in_use_stops_with_a_sentence(tmp_path: Path) -> None:
    history = History(random.Random(1))
    runner = Runner(DOCUMENTS, history, tmp_path)
    history.transaction()
    history.progress()
    runner.start()
    other = sqlite3.connect(tmp_path / "state", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StateAway, match="cannot be read or written: database is locked") as refused:
        assert runner.keeper is not None
        runner.keeper.turn()
    assert refused.value.exit is Exit.UNAVAILABLE
    assert runner.topic.records == {}
    other.execute("ROLLBACK")
    other.close()
    claim = runner.until_level()
    assert shown(runner.topic) == documents_of(history.at(claim.lsn))
    runner.end()
