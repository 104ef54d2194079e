"""Each limit that is passed and each fault that is seen, with what ends it: pure, from a status and its facts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cdc.checks.findings import (
    BY_ITSELF,
    CONNECTOR_SLOT_LOST,
    SLOT_LOST,
    WATCH,
    Condition,
    aside_condition,
    failed_reading,
    process_conditions,
)
from cdc.figures.processes import CAPTURE, view_part
from cdc.record.ports import Unknown
from cdc.record.progress import Hold
from cdc.settings.model import LimitSettings
from cdc.settings.settings_reference import size_text
from cdc.status.facts import StatusFacts
from cdc.status.view_lines import SinkStatus, age, aged, size, view_conditions

if TYPE_CHECKING:
    from cdc.status.rules import Status


def conditions(shown: Status, facts: StatusFacts, limits: LimitSettings) -> Iterator[Condition]:
    """Each fault, causes first: ``cdc status`` ends with the first one as its error."""
    for part, error in shown.silent.items():
        said = error.message if part in ("log", "source", "connector") else f"{part}: {error.message}"
        yield Condition(said, error.hint)
    behind = [*_log_conditions(shown, facts, limits)]
    stores = {sink.name: [*_store_conditions(sink, shown, limits)] for sink in shown.sinks}
    views = {view_part(view.facts.name): [*view_conditions(view, limits)] for view in shown.views}
    wrong = {part for part, found in {CAPTURE: behind, **stores, **views}.items() if found}
    if facts.connector is None and facts.source is not None and shown.snapshot == "none":
        said = "nothing is captured before the first snapshot: cdc snapshot makes the slot and copies the rows"
        yield Condition(said, "cdc snapshot")
    yield from _slot_conditions(shown, facts)
    # No limit holds for a store that is being filled, so that one whose sink has gone would look well for ever.
    fills = wrong | {sink.name for sink in shown.sinks if sink.state == "filling"}
    for process in facts.fresh.processes:
        # Capture waits for the end of the first snapshot, as it should.
        if process.command != CAPTURE or shown.snapshot == "complete":
            yield from process_conditions(process, fills if process.address else wrong)
    yield from shown.connector.conditions() if shown.connector is not None else ()
    yield from _table_conditions(facts)
    yield from behind
    for found in (*stores.values(), *views.values()):
        yield from found


def _log_conditions(shown: Status, facts: StatusFacts, limits: LimitSettings) -> Iterator[Condition]:
    if shown.lag_bytes is not None and shown.lag_bytes > limits.lag_bytes:
        limit = size_text(limits.lag_bytes)
        yield Condition(f"the log is {size(shown.lag_bytes)} behind the source; the limit is {limit}", WATCH)


def _store_conditions(sink: SinkStatus, shown: Status, limits: LimitSettings) -> Iterator[Condition]:
    limit_s = limits.lag.total_seconds()
    if sink.state == "empty" and shown.snapshot == "complete":
        yield Condition(
            f"{sink.name} is empty, and the log is not: cdc sink {sink.name} fills it", f"cdc sink {sink.name}"
        )
    elif sink.lag_s is not None and sink.lag_s > limit_s and sink.state != "filling":
        late = f"{aged(sink.lag_s, sink.lag_at_least)} behind"
        yield Condition(f"{sink.name} is {late}; the limit is {age(limit_s)}", WATCH)
    for table, reason in sorted(sink.held.items()):
        hold = Hold(table=table, reason=reason)
        yield Condition(hold.sentence(sink.name), BY_ITSELF if hold.passing else f"cdc rebuild {sink.name}")
    if sink.parked:
        keys = "1 key is" if sink.parked == 1 else f"{sink.parked} keys are"
        cure = f"cdc dead list {sink.name} shows why; cdc dead retry or cdc dead drop releases them"
        yield Condition(f"{sink.name}: {keys} parked in the dead letters", cure)


def _table_conditions(facts: StatusFacts) -> Iterator[Condition]:
    yield from (Condition(one.why, one.fix) for one in sorted(facts.not_followed.values()))
    read = {one.table for one in facts.rereads if one.state != "failed"}
    for table, state in facts.asides.items():
        if table not in facts.not_followed:
            yield aside_condition(state, read)
    if facts.oversized:
        rows = "1 row is" if facts.oversized == 1 else f"{facts.oversized} rows are"
        cure = 'cdc verify SINK --repair writes the rows into a store, then: cdc dead drop --sink "(capture)"'
        yield Condition(f"{rows} larger than the topic takes: cdc dead list names the keys", cure)
    yield from (failed_reading(one.table, one.detail) for one in facts.rereads if one.state == "failed")


def _slot_conditions(shown: Status, facts: StatusFacts) -> Iterator[Condition]:
    slot = shown.slot
    if isinstance(slot, Unknown) or isinstance(facts.slot, Unknown) or facts.slot is None:
        return
    connects = facts.connector is not None
    lost = CONNECTOR_SLOT_LOST if connects else SLOT_LOST
    if slot is None:
        yield Condition(f"the slot {facts.slot_name} is gone", lost)
    elif slot.wal_status == "lost" or slot.invalidation_reason:
        yield Condition(f"the slot {slot.slot} is {slot.invalidation_reason or slot.wal_status}", lost)
    elif slot.wal_status == "unreserved":
        cure = "raise max_slot_wal_keep_size before the next checkpoint, and let the slot be read on"
        yield Condition(f"the slot {slot.slot} is unreserved", cure)
    elif slot.active_pid is None and shown.snapshot == "complete":
        reader, cure = ("the connector", "cdc connect status says why") if connects else ("cdc run", "start cdc run")
        yield Condition(f"nobody reads the slot {slot.slot}: {reader} is not running", cure)
