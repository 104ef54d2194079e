"""How far a connector is: by its stored offsets, for the sinks as the native capture's progress topic says it, and
whether one that says RUNNING gets on.

Kafka Connect stores an offset when the records before it are acknowledged. In Postgres' offsets ``lsn_commit`` is where
the last commit ended, so every change of a transaction that committed below it lies below the topics' ends. It
moves with each record and heartbeat, as often as the worker's ``offset.flush.interval.ms`` lets it. Other databases'
offsets hold no LSN: there a record says LSN 0, once the first snapshot is over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import orjson
from psycopg.rows import class_row

from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.errors import CdcError
from cdc.process.logs import LoggedCauses
from cdc.process.sql_files import load
from cdc.record.progress import Offsets, Progress
from cdc.settings.model import Settings
from connectors.debezium.client import answering, entry, text
from connectors.debezium.config import debezium_settings
from connectors.debezium.status import Lag
from connectors.postgres.server.catalog_facts import read_server, read_slot
from connectors.postgres.server.connections import Connection, connect

log = logging.getLogger(__name__)

_ASK_S = 1.0
_STORED = "the connector's stored offset"
_INCREMENTAL = "incremental_snapshot"
_COLLECTIONS = f"{_INCREMENTAL}_collections"
_CORRELATION = f"{_INCREMENTAL}_correlation_id"

Ask = Callable[[], Iterable[Mapping[str, Any]]]
"""The stored offsets, as :meth:`connectors.debezium.client.ConnectClient.offsets` gives them."""


def snapshot_state(stored: Iterable[Mapping[str, Any]]) -> str:
    """``none`` before the connector has written, ``running`` while it reads its first snapshot, else ``complete``: of
    any database.

    >>> [snapshot_state(one) for one in ([], [{"offset": {"snapshot": "INITIAL"}}], [{"offset": {"pos": 4}}])]
    ['none', 'running', 'complete']

    ConfigError where the answer has another form.
    """
    offsets = _offsets(stored)
    if not offsets or not all(offsets):
        return "none"
    reading = any(o.get("snapshot") or o.get("initsync") or o.get("snapshot_completed") is False for o in offsets)
    return "running" if reading else "complete"


def shown_lsn(stored: Iterable[Mapping[str, Any]]) -> int | None:
    """The LSN below which every commit is in the topics, 0 for a database that has none. None while a snapshot is read,
    or before anything is.

    >>> shown_lsn([{"partition": {"server": "shop"}, "offset": {"lsn_proc": 90, "lsn_commit": 80, "lsn": 90}}])
    80
    >>> shown_lsn([{"offset": {"lsn": 70, "snapshot": "INITIAL"}}]), shown_lsn([{"offset": {"lsn": 70}}])
    (None, 70)

    ConfigError where the answer has another form.
    """
    with answering(_STORED):
        known = list(stored)
    if snapshot_state(known) != "complete":
        return None
    # After the snapshot and before the first commit there is the snapshot's own LSN alone.
    found = _offsets(known)[0]
    return _lsn(found.get("lsn_commit") or found.get("lsn") or 0)


def reads_incrementally(stored: Iterable[Mapping[str, Any]]) -> bool:
    """Whether an incremental snapshot is under way.

    >>> reads_incrementally([{"offset": {"lsn": 7, "incremental_snapshot_primary_key": "ac"}}])
    True
    >>> reads_incrementally([{"offset": {"lsn": 7}}])
    False
    """
    return any(name.startswith(_INCREMENTAL) for offset in _offsets(stored) for name in offset)


def with_snapshot(
    stored: Iterable[Mapping[str, Any]],
    tables: Iterable[str],
    identifier: str = "",
    *,
    keep: Callable[[str], bool],
    where: str = "",
) -> list[dict[str, Any]]:
    """The stored offsets of a connector that reads these tables incrementally when it goes on, after those that it
    reads already and is to ``keep``. ``identifier``: of the snapshot that is asked for. ``where``: a condition of SQL
    for the rows. Pure.

    Format: the names of Debezium's AbstractIncrementalSnapshotContext (2.x and 3.x).

    >>> [one] = with_snapshot([{"offset": {"lsn": 7}}], ["public.b"], "an id", keep=bool)
    >>> one["offset"]["incremental_snapshot_collections"]
    '[{"incremental_snapshot_collections_id":"public.b"}]'
    >>> with_snapshot([one], [], keep=lambda table: False)
    [{'offset': {'lsn': 7}}]

    ConfigError where the answer has another form.
    """
    condition = {f"{_COLLECTIONS}_additional_condition": where} if where else {}
    asked = [{f"{_COLLECTIONS}_id": table, **condition} for table in tables]
    given = []
    for one in stored:
        with answering(_STORED):
            offset = entry(one["offset"])
            reading = [entry(each) for each in orjson.loads(text(offset.get(_COLLECTIONS) or "[]"))]
            kept = [each for each in reading if keep(text(each[f"{_COLLECTIONS}_id"]))]
        if kept == reading and not asked:
            given.append({**one})
            continue
        if kept[:1] != reading[:1]:
            # How far the first one is read goes with it.
            offset = {name: value for name, value in offset.items() if not name.startswith(_INCREMENTAL)}
        if kept or asked:
            offset = {**offset, _COLLECTIONS: orjson.dumps([*kept, *asked]).decode()}
        if asked:
            offset = {**offset, _CORRELATION: identifier}
        given.append({**one, "offset": offset})
    return given


def _offsets(stored: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    with answering(_STORED):
        return [entry(entry(one).get("offset") or {}) for one in stored]


def _lsn(value: object) -> int:
    """A number of 64 bits. ConfigError for anything else."""
    with answering(_STORED):
        number = int(value) if isinstance(value, int | str) and not isinstance(value, bool) else -1
        if not 0 <= number < 1 << 64:
            raise ValueError("a log position was expected")
        return number


class ConnectProgress:
    """:class:`spark.records.ports.ProgressFeed` of a Debezium connector. One thread at a time.

    ``ends``: where the table topics end now. Asked after the offsets, so that it covers them. ``epoch``: that of the
    pipeline. While Kafka Connect cannot be asked nothing is reported, and the stores go on.
    """

    def __init__(
        self, ask: Ask, ends: Callable[[], Offsets], epoch: Callable[[], int], *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._ask = ask
        self._ends = ends
        self._epoch = epoch
        self._clock = clock
        self._last: tuple[int, int] | None = None
        self._due_s = clock.monotonic()
        self._logged = LoggedCauses()

    def poll(self, timeout_s: float) -> list[Progress]:
        """A record if it has moved since the last call. Asks about once a second and waits so long at most."""
        now_s = self._clock.monotonic()
        if now_s < self._due_s:
            self._clock.sleep(min(timeout_s, self._due_s - now_s))
            return []
        self._due_s = now_s + _ASK_S
        found = []
        try:
            lsn = shown_lsn(self._ask())
            if lsn is not None and (now := (self._epoch(), lsn)) != self._last:
                found.append(Progress(epoch=now[0], lsn=lsn, offsets=self._ends()))
                self._last = now
        except CdcError as error:
            if self._logged.is_new("connect", error.message):
                log.warning("connect_away", extra={"reason": error.message})
            return []
        self._logged.over("connect")
        return found

    def close(self) -> None:
        """Nothing is open."""


# Whether a connector for Postgres gets on: one session has its slot, reads, and its offsets are stored.
#
# Every state of Kafka Connect may say RUNNING while the connector begins anew again and again: a statement that fails
# is tried every 10 s (``retriable.restart.connector.wait.ms``), each time in a new session. One that reads and cannot
# write to Kafka says RUNNING too: an offset is stored when the records before it are acknowledged.

STEADY_S = 15.0
"""A session this old has outlived a connector's retry."""
_STORED_S = 65.0
"""``offset.flush.interval.ms`` is a minute unless the worker sets it."""
_BETWEEN_S = 1.0
_COUNTED_LATE_S = 11.0
"""A session that became idle counts what it wrote within 10 s (``PGSTAT_IDLE_INTERVAL``, pgstat.c). What is counted in
this time may be older than the first look."""


class Streaming(StrEnum):
    """The progress of a connector that says RUNNING."""

    READS = "reads"
    IDLE = "idle"
    """The session is steady, and no captured table was written meanwhile."""
    UNSTORED = "unstored"
    """Captured tables were written meanwhile, and the connector's stored offsets did not move."""
    RESTARTS = "restarts"
    """No session has had the slot for long enough."""

    @property
    def good(self) -> bool:
        """Whether the connector reads what the slot sends."""
        return self in (Streaming.READS, Streaming.IDLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotSample:
    """The slot at one moment.

    ``pid``: the session that has it. ``age_s``: how long that session exists, None where our role may not see it.
    ``writes``: rows of captured tables written so far, by the server's statistics, which come late. ``offsets``: as
    Kafka Connect has stored them, compared alone.
    """

    pid: int | None
    age_s: float | None
    writes: int
    offsets: object = None


def judge(first: SlotSample, last: SlotSample, between_s: float) -> Streaming:
    """Judge by two looks, ``between_s`` seconds apart.

    >>> old = SlotSample(pid=7, age_s=60.0, writes=5)
    >>> judge(old, SlotSample(pid=7, age_s=61.0, writes=5), 1.0).value
    'idle'
    >>> judge(old, SlotSample(pid=8, age_s=0.5, writes=5), 15.0).value
    'restarts'
    """
    own_age_s = between_s if first.pid == last.pid else 0.0
    if last.pid is None or (own_age_s if last.age_s is None else last.age_s) < STEADY_S:
        return Streaming.RESTARTS
    if last.writes == first.writes:
        return Streaming.IDLE
    return Streaming.READS if last.offsets != first.offsets else Streaming.UNSTORED


def watch(look: Callable[[], SlotSample], clock: Clock) -> Streaming:
    """Look until it is known whether a connector gets on.

    Takes a second, up to 16 where its session is young or writes were counted, and up to 66 where its offsets do not
    move. Writes that are counted in the first 11 seconds may be older, so that they blame nobody. Raises what
    ``look`` raises.
    """
    began, first, counted_late = clock.monotonic(), look(), False
    while True:
        clock.sleep(_BETWEEN_S)
        last, between_s = look(), clock.monotonic() - began
        found = judge(first, last, between_s)
        enough_s = _STORED_S if found is Streaming.UNSTORED else STEADY_S
        known = found is Streaming.READS or (found is Streaming.IDLE and not counted_late)
        if known or between_s >= enough_s + _BETWEEN_S:
            return found
        if last.writes != first.writes and between_s <= _COUNTED_LATE_S:
            first, counted_late = replace(first, writes=last.writes), True


def watch_connector(settings: Settings, offsets: Callable[[], object], clock: Clock) -> Streaming:
    """:func:`watch` the pipeline's slot and the connector's stored ``offsets``. SourceError where Postgres cannot be
    asked, and what ``offsets`` raises."""
    with closing(connect(settings.source, application_name="cdc connect")) as session:
        return watch(lambda: replace(_look(session, settings), offsets=offsets()), clock)


def _look(session: Connection, settings: Settings) -> SlotSample:
    with session.cursor(row_factory=class_row(SlotSample)) as cursor:
        query = load(__package__)["reading"].encode()
        cursor.execute(query, {"slot": settings.slot, "publication": settings.publication})
        found = cursor.fetchone()
    return found or SlotSample(pid=None, age_s=None, writes=0)


def read_lag(settings: Settings) -> tuple[Lag | None, str]:
    """The slot's lag, or None and why it is not known. Raises nothing of Postgres'."""
    database = debezium_settings(settings).database
    if database != "postgres":
        return None, f"a {database} source is not asked, so whether the connector reads is not known"
    try:
        with connect(settings.source) as session:
            server, slot = read_server(session), read_slot(session, settings.slot)
    except CdcError as error:
        return None, error.message
    if slot is None:
        return None, f"there is no slot {settings.slot}"
    known = server.wal_lsn is not None and slot.confirmed_flush_lsn is not None
    lag = Lag(
        slot=slot.slot,
        active=slot.active_pid is not None,
        wal_status=slot.wal_status,
        lag_bytes=(server.wal_lsn or 0) - (slot.confirmed_flush_lsn or 0) if known else None,
        retained_bytes=slot.retained_bytes,
    )
    return lag, ""
