"""Cuts of which the cleaner may have taken something: no LSN of theirs is claimed (V6)."""

from __future__ import annotations

import random
from pathlib import Path

from tests.unit.cdc.views.view_histories import History, Runner, shown

SQL = "select o.id, o.customer_id from orders o"


def test_h489_what_the_cleaner_took_is_out_before_the_claim(tmp_path: Path) -> None:
    history = History(random.Random(1))
    runner = Runner(SQL, history, tmp_path)
    for key in (1, 2, 3, 4):
        history.write("orders", key, {"id": key, "customer_id": 1})
    history.progress_now()
    claimed = runner.until_level()
    # The row at that progress record is taken for the sake of the one behind it.
    history.write("orders", 1, {"id": 1, "customer_id": 2})
    history.progress_now()
    history.write("orders", 1, {"id": 1, "customer_id": 3})
    history.clock.advance(70)
    history.compact()
    runner.turn()
    assert not runner.opened[1].reached.proven
    assert runner.opened[1].reached.fence > claimed
    for key in (2, 3, 4):
        history.write("orders", key, {"id": key, "customer_id": 3})
    history.progress_now()
    before = runner.topic.claims.index(claimed) + 1
    # What waits is more than one piece.
    assert runner.until_level().lsn == history.lsn + 4
    assert len(runner.topic.claims) == before + 1, "the LSN between is claimed by none"
    assert shown(runner.topic) == {b'{"id":%d}' % key: {"id": key, "customer_id": 3} for key in (1, 2, 3, 4)}
    runner.end()
