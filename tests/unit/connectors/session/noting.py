"""A table that is set aside, and what the state topic says of it, for tests."""

from __future__ import annotations

from collections.abc import Sequence

from cdc.process.clock import ManualClock
from cdc.record.position import Position
from cdc.record.state import ReadingState, RequestState
from cdc.record.tables_aside import AsideState, CannotFollow, Cause, asides_of
from connectors.session.asides import SetAside
from tests.memory_log import MemoryCompactedTopic
from tests.unit.connectors.postgres import written as w

SHAPE = w.table(w.column("id", "int4", 0), w.column("doc", "text"), w.column("n", "int4"))
OTHER = w.table(*SHAPE.columns, name="others", oid=20000)
NAME = str(SHAPE.table)
PROGRESS = "shop.progress"
WHY = CannotFollow("its key is another one", hint="give it back", cause=Cause.CHANGED, tables=[SHAPE.table])


def set_aside(state: MemoryCompactedTopic, *, histories: Sequence[str] = ()) -> SetAside:
    return SetAside(state, state.read(), epoch=1, clock=ManualClock(), histories=histories.__contains__)


def noted(state: MemoryCompactedTopic) -> AsideState | None:
    return asides_of(state.read()).get(NAME)


def reread(state: str, floor_lsn: int, epoch: int = 1) -> ReadingState:
    floor = Position(epoch, floor_lsn, 0xFFFFFFFF).text()
    return ReadingState(id=f"snapshot:{NAME}", table=NAME, serial=1, epoch=epoch, state=state, floor=floor)


def by_hand(serial: int, **more: object) -> RequestState:
    return RequestState(id=f"snapshot:{NAME}", table=NAME, after_lsn=0, reason="", serial=serial, by_hand=True, **more)  # type: ignore[arg-type]
