"""A row that many documents show: all of them wait at once, and no other waits for them."""

from __future__ import annotations

import random
from pathlib import Path

from tests.unit.cdc.views.oracles import DOCUMENTS, documents_of
from tests.unit.cdc.views.view_histories import History, Runner, shown

_MANY = 100


def _orders_of(customer: int) -> History:
    """Many orders of one customer, and one of nobody."""
    history = History(random.Random(1))
    history.write("customers", customer, {"id": customer, "name": 1})
    for key in range(10, 10 + _MANY):
        history.write("orders", key, {"id": key, "customer_id": customer})
    history.write("orders", 9, {"id": 9, "customer_id": None})
    history.progress_now()
    return history


def test_v8_a_parent_of_many_keeps_no_other_document_back(tmp_path: Path) -> None:
    history = _orders_of(3)
    runner = Runner(DOCUMENTS, history, tmp_path)
    runner.until_level()
    keeper, state = runner.opened
    before = keeper.claimed
    history.write("customers", 3, {"id": 3, "name": 2})
    history.progress_now()
    keeper.turn()
    assert state.sizes()[0] > _MANY - 10
    history.write("lines", 1, {"id": 1, "order_id": 9, "qty": 7})
    history.progress_now()
    keeper.turn()
    assert shown(runner.topic)[b'{"id":9}'] == {"id": 9, "name": None, "lines": "[7]"}
    # The claim stays below what still waits, and moves once that is out.
    assert keeper.claimed == before
    claim = runner.until_level()
    assert shown(runner.topic) == documents_of(history.at(claim.lsn))
    runner.end()
