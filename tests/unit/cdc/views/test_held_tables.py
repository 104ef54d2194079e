"""Which tables hold a view, from what the state topic says."""

from __future__ import annotations

from dataclasses import replace

from cdc.record.position import CHUNK_SEQ, Position
from cdc.record.state import Document, ReadingState, RequestState
from cdc.record.tables_aside import AsideState, Cause, TableState
from cdc.views.log_cut import Fence
from cdc.views.runner_rules import held_tables

ASIDE = AsideState(
    table="public.t", epoch=1, state=TableState.ASIDE, cause=Cause.LOCKED, detail="locked", since_lsn=80, since_ms=1
)
FLOOR = Position(1, 160, CHUNK_SEQ).text()
READ = ReadingState(id="snapshot:public.t", table="public.t", serial=1, epoch=1, state="done", floor=FLOOR)
REQUEST = RequestState(id="snapshot:public.t", table="public.t", after_lsn=0, reason="new", serial=1, first=True)


def held(*documents: Document, before: int = 800, known: bool = False, cleared: str = "") -> str:
    found = held_tables(
        {one.key(): one.to_json() for one in documents},
        ["public.t", "public.u"],
        fence=Fence(1, 900),
        before=Fence(1, before),
        held={"public.t": "why"} if known else {},
        cleared={"public.t": cleared},
    )
    assert found.keys() <= {"public.t"}
    return found.get("public.t", "")


def test_v15_a_table_set_aside_holds_until_read_again() -> None:
    assert held() == ""
    assert held(ASIDE).startswith("public.t is set aside")
    assert held(replace(ASIDE, epoch=2)) == ""
    assert held(replace(ASIDE, table="public.other")) == ""
    assert held(replace(ASIDE, state=TableState.WAITING)) == ""
    running = replace(READ, state="running")
    assert held(replace(ASIDE, state=TableState.READING, from_lsn=90), running).endswith("is being read again")
    # Its note may be gone before the view has come to its rows.
    assert "has not come to its rows" in held(READ, known=True)
    assert held(running, known=True).endswith("is being read again")
    assert held(READ, known=True, cleared=FLOOR) == ""


def test_v15_a_reading_that_nobody_here_saw_begin_holds() -> None:
    assert held(READ) == "", "it began before the last cut"
    assert "has not come to its rows" in held(READ, before=160)
    assert held(READ, before=160, cleared=FLOOR) == ""
    assert held(replace(READ, epoch=2), before=160) == ""


def test_v15_a_table_that_was_never_read_holds() -> None:
    assert held(REQUEST).endswith("is to be read for the first time")
    assert held(REQUEST, replace(READ, state="running", first=True)).endswith("is being read for the first time")
    assert held(replace(READ, first=True), cleared=FLOOR) == ""
