"""Tables that are to be read again, or of which nothing comes: no LSN is claimed for what shows them."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import orjson

from cdc.record.position import CHUNK_SEQ, Position
from cdc.record.state import CommandState, Document, FormState, ReadingState, RequestState
from cdc.views.log_cut import Fence
from cdc.views.runner_rules import awaited_tables
from tests.unit.cdc.views.oracles import DOCUMENTS, documents_of
from tests.unit.cdc.views.view_histories import PARTITIONS, History, Runner, shown

FLOOR = Position(1, 160, CHUNK_SEQ).text()
REQUEST = RequestState(
    id="snapshot:public.t", table="public.t", after_lsn=80, reason="public.t was rewritten or truncated", serial=5
)
READ = ReadingState(id="snapshot:public.t", table="public.t", serial=5, epoch=1, state="done", floor=FLOOR)
FORM = FormState(table="public.t", oid=1, columns=[], leaves=[], publication="*")


def awaited(*documents: Document, cleared: str = "", before: bool = False, progress_ms: int = 0) -> str:
    found = awaited_tables(
        {one.key(): one.to_json() for one in documents},
        ["public.t", "public.u"],
        fence=Fence(1, 900),
        cleared={"public.t": cleared},
        before={"public.t": "why"} if before else {},
        progress_ms=progress_ms,
    )
    assert found.keys() <= {"public.t"}
    return found.get("public.t", "")


def test_h467_a_table_is_awaited_until_its_rows_are_there() -> None:
    assert awaited(REQUEST).startswith("public.t was rewritten or truncated, and is to be read again: documents may")
    assert awaited(REQUEST, replace(READ, state="running")) == awaited(REQUEST), "not told at each step"
    assert "is to be read again" in awaited(REQUEST, replace(READ, serial=4)), "the reading of an earlier request"
    assert "has not come to its rows" in awaited(READ, before=True)
    assert awaited(READ, before=True, cleared=FLOOR) == ""
    assert awaited(READ) == "", "it began before the view was there"
    failed = replace(READ, state="failed", detail="the table is gone")
    assert "could not be read again (the table is gone)" in awaited(failed)
    assert awaited(replace(failed, epoch=2)) == ""
    paused = CommandState(id=REQUEST.id, serial=5, state="paused")
    assert "is to be read again" in awaited(REQUEST, paused)
    assert awaited(REQUEST, replace(paused, state="cancelled"), before=True) == ""
    assert awaited(replace(READ, state="cancelled"), before=True) == ""


def test_h467_partitions_are_awaited_until_progress_is_newer() -> None:
    part = replace(REQUEST, id="snapshot:public.t:partitions", leaves=["public.p1"])
    assert "is to be read again" in awaited(part)
    read = replace(READ, id=part.id, finished_ns=7_000_000)
    assert "has not come to its rows" in awaited(read, progress_ms=6, before=True)
    assert awaited(read, progress_ms=7, before=True) == ""


def test_h467_what_an_operator_asks_for_is_no_lack() -> None:
    by_hand = replace(REQUEST, by_hand=True)
    assert awaited(by_hand) == ""
    assert awaited(by_hand, before=True), "it stands in the place of a reading that failed"
    assert awaited(replace(by_hand, where="id = 1"), before=True) == ""
    assert awaited(replace(REQUEST, first=True)) == "", "such a table holds the view"
    assert awaited(replace(REQUEST, table="public.other")) == ""


def test_h468_a_table_that_nobody_publishes_is_named() -> None:
    assert awaited(FORM) == ""
    assert awaited(replace(FORM, publication="")).startswith("public.t was dropped, or is captured no more")
    assert awaited(replace(FORM, table="public.other", publication="")) == ""


def noted(history: History, *documents: Document) -> None:
    history.input.state.update({one.key(): one.to_json() for one in documents})


def test_h467_documents_go_out_and_no_lsn_is_claimed(tmp_path: Path) -> None:
    history = History(random.Random(1))
    runner = Runner(DOCUMENTS, history, tmp_path)
    history.write("orders", 1, {"id": 1, "customer_id": 3})
    history.write("customers", 3, {"id": 3, "name": 1})
    history.progress_now()
    claim = runner.until_level()
    request = replace(REQUEST, id="snapshot:public.customers", table="public.customers")
    noted(history, request)
    history.rows["customers"][3] = {"id": 3, "name": 2}  # without an event
    history.write("orders", 2, {"id": 2, "customer_id": None})
    history.progress_now()
    for _ in range(4):
        runner.turn()
    assert len(shown(runner.topic)) == 2
    assert runner.topic.claims[-1] == claim
    assert not runner.level
    assert ["is to be read again" in said for said in runner.topic.held] == [True]
    runner.end()
    history.progress_now()
    runner.turn()
    window = Position(1, history.lsn + 1, CHUNK_SEQ).text()
    read = ReadingState(
        id=request.id, table=request.table, serial=5, epoch=1, state="done", floor=window, finished_ns=1
    )
    del history.input.state[request.key()]  # with the same write
    noted(history, read)
    history.lsn += 8
    history.progress_now()
    for _ in range(4):
        runner.turn()
    assert runner.topic.claims[-1] == claim, "its rows are not there"
    row = orjson.dumps({"before": None, "after": {"id": 3, "name": 2}})
    mark = orjson.dumps({"sweep": {"floor": window, "partitions": PARTITIONS}})
    for partition in range(PARTITIONS):
        history.append("t.customers", partition, (b'{"id":3}', row, window.encode(), b"r", b"1"))
        key = orjson.dumps({"__sweep": "public.customers"})
        history.append("t.customers", partition, (key, mark, window.encode(), b"t", b"1"))
    history.write("orders", 3, {"id": 3, "customer_id": 3})
    history.progress_now()
    claim = runner.until_level()
    assert shown(runner.topic) == documents_of(history.at(claim.lsn))
    assert not runner.topic.held
    runner.end()


def test_h467_h468_a_source_at_rest_is_looked_at_too(tmp_path: Path) -> None:
    history = History(random.Random(1))
    runner = Runner(DOCUMENTS, history, tmp_path)
    history.write("orders", 1, {"id": 1, "customer_id": 3})
    history.progress_now()
    runner.until_level()
    gone = replace(FORM, table="public.customers", publication="")
    noted(history, gone)
    runner.turn()
    assert not runner.topic.held, "not at each turn"
    history.clock.advance(3)
    runner.turn()
    assert ["public.customers was dropped" in said for said in runner.topic.held] == [True]
    noted(history, replace(gone, publication="*"))
    history.clock.advance(3)
    runner.turn()
    assert not runner.topic.held
    assert runner.level
    runner.end()


def test_h476_a_hold_ends_with_the_next_claim(tmp_path: Path) -> None:
    """The former one is true of documents that are not there yet."""
    history = History(random.Random(1))
    runner = Runner(DOCUMENTS, history, tmp_path)
    history.write("orders", 1, {"id": 1, "customer_id": 3})
    history.progress_now()
    claim = runner.until_level()
    gone = replace(FORM, table="public.customers", publication="")
    noted(history, gone)
    history.clock.advance(3)
    runner.turn()
    assert runner.topic.held
    noted(history, replace(gone, publication="*"))
    history.write("orders", 1, {"id": 1, "customer_id": 4})
    history.progress_now()
    runner.kill_chance = 1.0
    runner.turn()
    assert runner.topic.claims[-1] == claim
    assert runner.topic.held, "the change is not published"
    assert runner.until_level() > claim
    assert not runner.topic.held
    runner.end()
