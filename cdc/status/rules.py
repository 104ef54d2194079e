"""How far everything is, and each limit that is passed and each fault that is seen, with what ends it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

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
from cdc.figures.measures import Quantiles
from cdc.figures.process_status import CAPTURE, stream_part, view_part
from cdc.operate.rebuild import RebuildState
from cdc.process.errors import CdcError, Exit
from cdc.record.ports import Found, Unknown, known
from cdc.record.position import Lsn
from cdc.record.progress import Hold, Mark, Offsets, Watermark
from cdc.record.server_facts import SlotFacts
from cdc.record.state import SlotState
from cdc.record.tables_aside import AsideState
from cdc.settings.model import LimitSettings
from cdc.settings.settings_reference import size_text
from cdc.status.facts import ConnectorFacts, Reread, SinkFacts, StatusFacts
from cdc.status.stream_lines import StreamFacts, stream_conditions
from cdc.status.view_lines import (
    SinkStatus,
    ViewFacts,
    ViewStatus,
    age,
    aged,
    fresh_document,
    lag_of,
    size,
    view_conditions,
    view_status,
)

QUIET_BYTES = 64 * 1024
"""WAL that a quiet server writes by itself between two keepalives: no lag in seconds is read out of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The status of a pipeline. ``conditions``: one for each limit passed or fault seen. Empty when all is well.
    ``silent``: the parts that did not answer, of which nothing else is shown: part -> why."""

    name: str
    epoch: int | None
    address: str | None
    slot_name: str
    slot: Found[SlotFacts]
    wal_lsn: int | None
    log_lsn: int | None
    lag_bytes: int | None
    lag_s: float | None
    snapshot: str
    snapshot_rows: int | None
    """None where the connector reads them, which counts none."""
    sinks: Sequence[SinkStatus] = field(default=())
    views: Sequence[ViewStatus] = field(default=())
    streams: Sequence[StreamFacts] = field(default=())
    rereads: Sequence[Reread] = field(default=())
    asides: Mapping[str, AsideState] = field(default_factory=dict)
    tables: int = 0
    conditions: Sequence[Condition] = field(default=())
    silent: Mapping[str, CdcError] = field(default_factory=dict)
    connector: ConnectorFacts | None = None
    asked: bool = True
    """Whether the source itself was asked. Only Postgres is."""
    fresh: Quantiles | None = None
    """From commit to log in the last minutes. None where nothing came."""
    fresh_known: bool = False
    """Whether a running ``cdc run`` reported it."""
    answered_s: Mapping[str, float] = field(default_factory=dict)
    """As :class:`cdc.status.facts.StatusFacts` has it."""

    @property
    def passed(self) -> tuple[str, ...]:
        """The sentences of the conditions."""
        return tuple(one.sentence for one in self.conditions)

    @property
    def exit(self) -> Exit:
        """That of the first part that did not answer, which explains the rest. Else DIFFERENCE for a limit passed."""
        first = next(iter(self.silent.values()), None)
        return first.exit if first is not None else Exit.DIFFERENCE if self.passed else Exit.OK

    @property
    def following(self) -> int | None:
        """How many tables are captured and not set aside. Before the slot is made nobody follows any. None where no
        state says how many there are, as with a connector."""
        if not self.tables and self.snapshot_rows is None:
            return None
        return 0 if self.snapshot == "none" else max(0, self.tables - len(self.asides))

    def document(self) -> dict[str, Any]:
        """As ``cdc status --json`` prints it."""
        slot = known(self.slot)
        return {
            "name": self.name,
            "epoch": self.epoch,
            "source": {"address": self.address, "wal_lsn": _lsn(self.wal_lsn)},
            "slot": None
            if slot is None
            else {
                "name": slot.slot,
                "active_pid": slot.active_pid,
                "wal_status": slot.wal_status,
                "confirmed_flush_lsn": _lsn(slot.confirmed_flush_lsn),
                "retained_bytes": slot.retained_bytes,
                "safe_wal_bytes": slot.safe_wal_bytes,
            },
            "log": {"lsn": _lsn(self.log_lsn), "lag_bytes": self.lag_bytes, "lag_seconds": self.lag_s}
            | fresh_document(self.fresh_known, self.fresh),
            "connector": asdict(self.connector) if self.connector is not None else None,
            "snapshot": {"state": self.snapshot, "rows": self.snapshot_rows},
            "rereads": [asdict(one) for one in self.rereads],
            "tables": {
                "following": self.following,
                "others": {table: _aside_document(one) for table, one in self.asides.items()},
            },
            "sinks": {sink.name: sink.document() for sink in self.sinks},
            "views": {view.facts.name: view.document() for view in self.views},
            "streams": {stream.name: stream.document() for stream in self.streams},
            "passed": list(self.passed),
            "cures": {one.sentence: one.cure for one in self.conditions if one.cure},
            "unknown": {part: error.message for part, error in self.silent.items()},
        }


def status_of(facts: StatusFacts, limits: LimitSettings) -> Status:
    """Judge what was read against the limits."""
    source, newest = known(facts.source), facts.marks[-1] if facts.marks else None
    slot, snapshot = known(facts.slot), known(facts.snapshot)
    wal_lsn = source.server.wal_lsn if source is not None else None
    connector = known(facts.connector)
    log_lsn = connector.lsn if connector is not None else _log_lsn(newest, slot)
    lag_bytes = _behind(wal_lsn, log_lsn)
    lag_s = _log_lag_s(facts, lag_bytes)
    sinks = tuple(_with_fresh(_store_status(one, facts, wal_lsn, lag_s), one.rebuild, facts) for one in facts.sinks)
    shown = Status(
        name=facts.name,
        epoch=slot.epoch if slot is not None else None,
        address=source.address if source is not None else connector.address if connector is not None else None,
        slot_name=facts.slot_name,
        slot=source.slot if source is not None else facts.source if isinstance(facts.source, Unknown) else None,
        wal_lsn=wal_lsn,
        log_lsn=log_lsn if connector is not None else newest.lsn if newest is not None else None,
        lag_bytes=lag_bytes,
        lag_s=lag_s,
        snapshot=_snapshot(facts),
        snapshot_rows=None if facts.connector is not None else snapshot.rows if snapshot is not None else 0,
        sinks=sinks,
        views=tuple(_view_status(view, facts, wal_lsn, lag_s) for view in facts.views),
        streams=facts.streams,
        rereads=facts.rereads,
        asides=facts.asides,
        tables=facts.tables - len(facts.not_followed.keys() - facts.asides.keys()),
        silent=dict(_silent(facts)),
        connector=connector,
        asked=facts.source is not None,
        fresh=facts.fresh.log,
        fresh_known="log" in facts.fresh.asked,
        answered_s=facts.answered_s,
    )
    # A process may say what the log shows as well: once is enough.
    found = {one.sentence: one for one in conditions(shown, facts, limits)}
    return replace(shown, conditions=tuple(found.values()))


def _with_fresh(sink: SinkStatus, rebuild: RebuildState | None, facts: StatusFacts) -> SinkStatus:
    fresh = facts.fresh
    return replace(
        sink,
        rebuild=rebuild,
        fresh=fresh.sinks.get(sink.name),
        fresh_known=sink.name in fresh.asked,
        fill=fresh.fills.get(sink.name) if sink.state != "unreachable" else None,
    )


def _snapshot(facts: StatusFacts) -> str:
    """The state of the first snapshot: as the connector says it, where one captures."""
    if facts.connector is not None:
        return facts.connector.snapshot if isinstance(facts.connector, ConnectorFacts) else "unknown"
    snapshot = known(facts.snapshot)
    return snapshot.state if snapshot is not None else "unknown" if facts.log is not None else "none"


def _aside_document(one: AsideState) -> dict[str, Any]:
    return {
        "state": one.state.value,
        "cause": one.cause.value,
        "detail": one.detail,
        "since_lsn": _lsn(one.since_lsn),
        "since_ms": one.since_ms,
    }


def _silent(facts: StatusFacts) -> Iterator[tuple[str, CdcError]]:
    """The log first: without it the others can be read, and not judged."""
    if facts.log is not None:
        yield "log", facts.log.because
    if isinstance(facts.source, Unknown):
        yield "source", facts.source.because
    if isinstance(facts.connector, Unknown):
        yield "connector", facts.connector.because
    for sink in facts.sinks:
        if isinstance(sink.watermark, Unknown):
            yield sink.name, sink.watermark.because


def _log_lsn(newest: Mark | None, slot: SlotState | None) -> int | None:
    """Where the log is, in the WAL that the slot is of: the LSNs of an epoch before may be another server's."""
    if newest is None or (slot is not None and newest.epoch < slot.epoch):
        return slot.consistent_point if slot is not None else None
    return newest.lsn


def _log_lag_s(facts: StatusFacts, lag_bytes: int | None) -> float | None:
    if lag_bytes is None:
        return None
    source = known(facts.source)
    if lag_bytes <= QUIET_BYTES and facts.marks and source is not None and source.slot and source.slot.active_pid:
        return 0.0
    return max(0.0, (facts.now_ms - facts.marks[-1].at_ms) / 1000) if facts.marks else None


def _store_status(sink: SinkFacts, facts: StatusFacts, wal_lsn: int | None, log_lag_s: float | None) -> SinkStatus:
    watermark = sink.watermark
    if isinstance(watermark, Unknown) or watermark is None:
        return SinkStatus(
            name=sink.name,
            kind=sink.kind,
            state="empty" if watermark is None else "unreachable",
            lsn=None,
            lag_bytes=None,
            lag_s=None,
            parked=sink.parked,
            error=watermark.because.message if watermark is not None else None,
        )
    slot = known(facts.slot)
    # The LSN 0 of a store that is being filled is no place in the WAL, and another epoch's LSN is none in this one.
    # While the log is silent the epoch of now is not known.
    same = not isinstance(facts.slot, Unknown) and (slot is None or watermark.epoch == slot.epoch)
    comparable = watermark.lsn > 0 and same
    lag = lag_of(facts.marks, (watermark.epoch, watermark.lsn), facts.now_ms, watermark.level_ms)
    return SinkStatus(
        name=sink.name,
        kind=sink.kind,
        state=_state(watermark, facts),
        lsn=watermark.lsn,
        lag_bytes=_behind(wal_lsn, watermark.lsn) if comparable else None,
        lag_s=max(lag.seconds, log_lag_s) if watermark.lsn > 0 and log_lag_s is not None else None,
        lag_at_least=lag.at_least,
        parked=sink.parked,
        held={hold.table: hold.reason for hold in watermark.held.values()},
        lag_records=_records_behind(watermark, facts.ends) if facts.source is None else None,
    )


def _view_status(view: ViewFacts, facts: StatusFacts, wal_lsn: int | None, log_lag_s: float | None) -> ViewStatus:
    slot = known(facts.slot)
    comparable = not isinstance(facts.slot, Unknown) and (slot is None or view.epoch == slot.epoch)
    lag = lag_of(facts.marks, (view.epoch or 0, view.lsn or 0), facts.now_ms)
    age_s = max(lag.seconds, log_lag_s) if log_lag_s is not None else None
    shown = view_status(view, _behind(wal_lsn, view.lsn) if comparable else None, age_s)
    return replace(shown, lag_at_least=lag.at_least)


def _records_behind(watermark: Watermark, ends: Offsets) -> int:
    """How many records of the topics the store does not show yet."""
    return sum(
        max(0, end - watermark.offsets.get(topic, {}).get(partition, 0))
        for topic, partitions in ends.items()
        for partition, end in partitions.items()
    )


def _state(watermark: Watermark, facts: StatusFacts) -> str:
    if facts.source is None:
        return _level(watermark, facts)
    if watermark.lsn == 0:
        return "filling"
    if facts.log is not None:
        return "unjudged"
    if not _whole(watermark, facts) or any(one.first for one in facts.rereads):
        return "bootstrapping"
    return "holding" if watermark.held else "consistent"


def _level(watermark: Watermark, facts: StatusFacts) -> str:
    """Of a store whose source has no LSNs."""
    if facts.log is not None:
        return "unjudged"
    if _records_behind(watermark, facts.ends):
        return "behind"
    return "holding" if watermark.held else "level"


def _whole(watermark: Watermark, facts: StatusFacts) -> bool:
    """Whether the store shows the whole first snapshot."""
    if facts.connector is not None:
        return _snapshot(facts) == "complete"
    snapshot = known(facts.snapshot)
    return snapshot is not None and snapshot.state == "complete" and watermark.lsn > snapshot.last_cut_lsn


def _behind(wal_lsn: int | None, lsn: int | None) -> int | None:
    return max(0, wal_lsn - lsn) if wal_lsn is not None and lsn is not None else None


def _lsn(value: int | None) -> str | None:
    return str(Lsn(value)) if value is not None else None


def conditions(shown: Status, facts: StatusFacts, limits: LimitSettings) -> Iterator[Condition]:
    """Each fault, causes first: ``cdc status`` ends with the first one as its error."""
    for part, error in shown.silent.items():
        said = error.message if part in ("log", "source", "connector") else f"{part}: {error.message}"
        yield Condition(said, error.hint)
    behind = [*_log_conditions(shown, facts, limits)]
    stores = {sink.name: [*_store_conditions(sink, shown, limits)] for sink in shown.sinks}
    views = {view_part(view.facts.name): [*view_conditions(view, limits)] for view in shown.views}
    views |= {stream_part(one.name): [*stream_conditions(one, limits)] for one in shown.streams}
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
    for found in (behind, *stores.values(), *views.values()):
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
    yield from (Condition(why, cure) for why, cure in facts.put_aside())
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
