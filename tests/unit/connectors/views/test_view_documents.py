"""``cdc view show``: a document out of a state, and what is said beside one that the runner claims no LSN for."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from cdc.process.errors import UsageError
from cdc.record.position import Position
from cdc.record.state import FormState
from cdc.views.runner_rules import LACKS
from cdc.views.syntax import NotComputable
from cdc.views.view_plan import planned
from cdc.wire.dead_letter import CAPTURE, DeadLetter, Why
from connectors.views.view_showing import ShownDocument, stored_document
from tests.unit.cdc.views.oracles import DOCUMENTS
from tests.unit.cdc.views.view_histories import SHAPES, History, Runner

SHARES = "select l.order_id, count(*) as n, sum(12 / l.qty) as total from lines l group by l.order_id"


def _line(history: History, key: int, order: int, qty: int) -> None:
    history.write("lines", key, {"id": key, "order_id": order, "qty": qty})
    history.progress_now()


def _put_aside(history: History, table: str) -> None:
    """A row that no topic takes."""
    history.lsn += 8
    headers = (("pos", Position(1, history.lsn, 1).text().encode()), ("op", b"u"), ("ver", b"1"))
    letter = DeadLetter(
        sink=CAPTURE, why=Why.OVERSIZED, topic=f"t.{table}", partition=0, offset=0, reason="large",
        key=b'{"id":1}', value=None, headers=headers,
    )  # fmt: skip
    history.input.dead.append(letter)
    history.progress_now()


def _ordered(history: History) -> None:
    history.write("customers", 1, {"id": 1, "name": 7})
    for order, customer in ((1, 1), (2, None)):
        history.write("orders", order, {"id": order, "customer_id": customer})
    history.progress_now()


def test_h546_a_group_of_a_row_without_figures_says_so(tmp_path: Path) -> None:
    history = History(random.Random(1))
    runner = Runner(SHARES, history, tmp_path)
    _line(history, 1, 1, 3)
    _line(history, 2, 2, 4)
    runner.until_level()
    plan, state = planned(SHARES, SHAPES), tmp_path / "state"
    assert stored_document(state, plan, 1, (1,)) == ShownDocument('{"order_id":1,"n":1,"total":4}')
    _put_aside(history, "lines")
    _line(history, 3, 2, 0)
    for _ in range(3):
        runner.turn()
    runner.end()
    of_former, of_none = (stored_document(state, plan, 1, (order,)) for order in (1, 2))
    assert of_former.row == '{"order_id":1,"n":1,"total":4}'
    (said,) = of_former.lacks
    assert said.startswith("nothing can be computed from 2 rows of the view now: the figures have the former part")
    assert of_none.row == '{"order_id":2,"n":1,"total":3}'
    (said,) = of_none.lacks
    assert said.endswith("the figures lack what belongs here of them")


def test_h546_a_document_of_an_unknown_row_is_not_shown(tmp_path: Path) -> None:
    history = History(random.Random(1))
    runner = Runner(DOCUMENTS, history, tmp_path)
    _ordered(history)
    runner.until_level()
    _put_aside(history, "customers")
    for _ in range(3):
        runner.turn()
    runner.end()
    plan, state = planned(DOCUMENTS, SHAPES), tmp_path / "state"
    found = stored_document(state, plan, 1, (1,)).row
    assert isinstance(found, NotComputable)
    assert str(found) == LACKS
    assert stored_document(state, plan, 1, (2,)) == ShownDocument('{"id":2,"name":null,"lines":null}')


def test_h546_a_document_says_what_keeps_its_view_from_an_lsn(tmp_path: Path) -> None:
    history = History(random.Random(1))
    runner = Runner(DOCUMENTS, history, tmp_path)
    _ordered(history)
    runner.until_level()
    gone = FormState(table="public.customers", oid=1, columns=[], leaves=[], publication="")
    history.input.state[gone.key()] = gone.to_json()
    history.clock.advance(3)
    runner.turn()
    runner.end()
    found = stored_document(tmp_path / "state", planned(DOCUMENTS, SHAPES), 1, (1,))
    (said,) = found.lacks
    assert said.startswith("public.customers was dropped, or is captured no more")


def test_h569_a_state_that_is_not_built_has_no_answer(tmp_path: Path) -> None:
    history = History(random.Random(1))
    runner = Runner(DOCUMENTS, history, tmp_path)
    runner.turn()
    runner.end()
    with pytest.raises(UsageError, match="is not built yet"):
        stored_document(tmp_path / "state", planned(DOCUMENTS, SHAPES), 1, (1,))
