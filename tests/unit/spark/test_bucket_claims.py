"""Cuts of which the cleaner may have taken something, of a state in Delta tables: no LSN of theirs is claimed (V6)."""

from __future__ import annotations

import random
from pathlib import Path

from tests.unit.cdc.views.view_histories import History, shown
from tests.unit.spark.bucket_histories import BucketRunner


def test_h489_a_parked_document_is_below_an_unproven_cut(tmp_path: Path) -> None:
    history = History(random.Random(1))
    runner = BucketRunner("select o.id, 12 / o.customer_id as share from orders o", history, tmp_path)
    for key in (1, 2):
        history.write("orders", key, {"id": key, "customer_id": 1})
    history.progress_now()
    claimed = runner.until_level()
    # The row at that progress record is taken for the sake of the one behind it, of which nothing can be computed.
    history.write("orders", 1, {"id": 1, "customer_id": 2})
    history.progress_now()
    history.write("orders", 1, {"id": 1, "customer_id": 0})
    history.clock.advance(70)
    history.compact()
    runner.turn()
    assert runner.keeper is not None
    assert not runner.keeper.reached.proven
    history.write("orders", 2, {"id": 2, "customer_id": 3})
    history.progress_now()
    for _ in range(4):
        runner.turn()
    assert shown(runner.topic) == {b'{"id":1}': {"id": 1, "share": 12}, b'{"id":2}': {"id": 2, "share": 4}}
    assert runner.topic.claims[-1] == claimed, "at the LSN between the first one's share is another"
    runner.end()
