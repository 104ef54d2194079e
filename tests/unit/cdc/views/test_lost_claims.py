"""Values that nobody knows: no LSN is claimed at which a row that the cleaner took may have shown elsewhere (V6)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from cdc.wire.format import UNAVAILABLE
from tests.memory_views import MemoryViewInput
from tests.unit.cdc.views.view_histories import SHAPES, History, Runner, table_of

TABLES = (
    table_of("orders", {"id": "int4", "customer": "text"}),
    table_of("customers", {"id": "int4", "code": "text", "name": "int4"}),
)
SQL = """select c.id, c.name, (select json_agg(o.id order by o.id) from orders o where o.customer = c.code) as orders
from customers c"""


def _customer(history: History, key: int, name: int) -> None:
    history.write("customers", key, {"id": key, "code": str(key), "name": name})  # type: ignore[dict-item]
    history.progress_now()


def _order(history: History, customer: str) -> None:
    history.write("orders", 1, {"id": 1, "customer": customer})  # type: ignore[dict-item]
    history.progress_now()


def _hidden(history: History) -> int:
    """An order comes to the second customer. The cleaner takes that for the sake of an update that leaves the customer
    out. Returns the LSN at which it came."""
    _order(history, "2")
    came = history.lsn
    _order(history, UNAVAILABLE)
    history.clock.advance(70)
    history.compact()
    return came


@pytest.mark.parametrize("built", [True, False], ids=["a state that follows", "a state that is built"])
def test_h493_a_lost_value_lets_no_hidden_row_be_claimed(tmp_path: Path, built: bool) -> None:
    shapes = {shape.topic: shape for shape in (*SHAPES, *TABLES)}
    history = History(random.Random(1), MemoryViewInput(shapes))
    runner = Runner(SQL, history, tmp_path, shapes=TABLES)
    for key in (1, 2):
        _customer(history, key, 1)
    if built:
        runner.until_level()
    came = _hidden(history)
    _customer(history, 1, 2)
    for _ in range(4):
        runner.turn()
    assert runner.opened[1].reached.proven
    assert all(claim.lsn <= came for claim in runner.topic.claims), "the second customer has no order"
    assert runner.topic.records, "the others go on"
    _order(history, "2")
    assert runner.until_level().lsn == history.lsn + 4
    runner.end()
