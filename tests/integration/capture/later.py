"""What tests of later snapshots share: asking, waiting, and what a store makes of the topic."""

from __future__ import annotations

from typing import Any

from cdc.process.clock import SYSTEM_CLOCK
from cdc.record.position import Position
from cdc.record.state import ReadingState, RequestState, find_all
from cdc.wiring import open_state
from tests.integration.capture.pipeline import Pipeline
from tests.waiting import wait_until


def ask(pipeline: Pipeline, table: str = "public.t", *, after_lsn: int = 0, **more: Any) -> RequestState:
    """What ``cdc snapshot TABLE`` writes."""
    serial = SYSTEM_CLOCK.now_ns()
    name = more.pop("id", f"snapshot:{table}")
    request = RequestState(id=name, table=table, after_lsn=after_lsn, reason="asked", serial=serial, **more)
    open_state(pipeline.settings).write([(request.key(), request.to_json())])
    return request


def reread(pipeline: Pipeline, name: str) -> ReadingState | None:
    return next((state for state in find_all(pipeline.state(), ReadingState) if state.id == name), None)


def over(pipeline: Pipeline, request: RequestState, deadline_s: float = 40) -> ReadingState:
    """The request's end."""

    def ended() -> ReadingState | None:
        found = reread(pipeline, request.id)
        return found if found is not None and found.serial == request.serial and found.over else None

    found = wait_until(ended, deadline_s, lambda: reread(pipeline, request.id))
    assert found is not None
    return found


def swept(pipeline: Pipeline, table: str) -> dict[str, Any]:
    """What a store holds that reads the topic: newer or equal wins; a sweep takes effect with its last mark."""
    held: dict[str, tuple[Position, Any]] = {}
    marks: dict[str, set[int]] = {}
    floor = Position(0, 0, 0)
    for record in pipeline.records(table):
        if record.op == "t":
            if record.value is not None and "sweep" in record.value:
                told = marks.setdefault(record.value["sweep"]["floor"], set())
                told.add(record.partition)
                if len(told) == record.value["sweep"]["partitions"]:
                    floor = max(floor, Position.parse(record.value["sweep"]["floor"]))
            else:
                floor = max(floor, record.pos)
        elif record.pos >= held.get(record.key, (Position(0, 0, 0), None))[0]:
            after = record.value["after"] if record.value is not None else None
            held[record.key] = (record.pos, after)
    return {key: row for key, (pos, row) in held.items() if row is not None and pos >= floor}


def source(pipeline: Pipeline, table: str) -> list[dict[str, Any]]:
    with pipeline.session() as session:
        return [row for (row,) in session.execute(f"select row_to_json(t) from {table} t".encode()).fetchall()]


def same(pipeline: Pipeline, table: str = "t") -> None:
    """A store built from the topic, and the last record of each key, are the source's rows."""
    want = sorted(source(pipeline, table), key=repr)
    assert sorted(swept(pipeline, table).values(), key=repr) == want
    last = {record.key: record for record in pipeline.records(table) if record.op != "t"}
    alive = swept(pipeline, table)
    assert {key: record.value["after"] for key, record in last.items() if key in alive} == alive
