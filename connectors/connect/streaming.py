"""Whether a connector for Postgres gets on: one session has its slot, reads, and its offsets are stored.

Every state of Kafka Connect may say RUNNING while the connector begins anew again and again: a statement that fails is
tried every 10 s (``retriable.restart.connector.wait.ms``), each time in a new session. One that reads and cannot write
to Kafka says RUNNING too: an offset is stored when the records before it are acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from enum import StrEnum

from psycopg.rows import class_row

from cdc.process.clock import Clock
from cdc.process.errors import CdcError
from cdc.process.sql_files import load
from cdc.settings.model import Settings
from connectors.debezium.connector_config import debezium_settings
from connectors.debezium.connector_status import Lag
from connectors.postgres.server.catalog_facts import read_server, read_slot
from connectors.postgres.server.connections import Connection, connect

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
    STUCK = "stuck"
    """Captured tables were written meanwhile, and the session got no further."""

    @property
    def good(self) -> bool:
        """Whether the connector reads what the slot sends."""
        return self in (Streaming.READS, Streaming.IDLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotSample:
    """The slot at one moment.

    ``pid``: the session that has it. ``age_s``: how long that session exists, None where our role may not see it.
    ``sent_lsn``: how far it has read, None likewise. ``writes``: rows of captured tables written so far, by the
    server's statistics, which come late. ``wal_lsn``: how far the server has written its log. ``offsets``: as Kafka
    Connect has stored them, compared alone.
    """

    pid: int | None
    age_s: float | None
    sent_lsn: int | None
    writes: int
    wal_lsn: int
    offsets: object = None


def judge(first: SlotSample, last: SlotSample, between_s: float) -> Streaming:
    """Judge by two looks, ``between_s`` seconds apart.

    >>> old = SlotSample(pid=7, age_s=60.0, sent_lsn=100, writes=5, wal_lsn=100)
    >>> judge(old, SlotSample(pid=7, age_s=61.0, sent_lsn=100, writes=5, wal_lsn=100), 1.0).value
    'idle'
    >>> judge(old, SlotSample(pid=8, age_s=0.5, sent_lsn=100, writes=5, wal_lsn=100), 15.0).value
    'restarts'
    """
    if last.pid is None or not _steady(first, last, between_s):
        return Streaming.RESTARTS
    if last.writes == first.writes:
        return Streaming.IDLE
    if last.offsets != first.offsets:
        return Streaming.READS
    if first.sent_lsn is None:
        return Streaming.UNSTORED
    if first.sent_lsn >= first.wal_lsn == last.wal_lsn:
        # It had read all that there is. The writes are older, and the server counted them late.
        return Streaming.READS
    return Streaming.STUCK if last.sent_lsn == first.sent_lsn < first.wal_lsn else Streaming.UNSTORED


def _steady(first: SlotSample, last: SlotSample, between_s: float) -> bool:
    if last.age_s is not None:
        return last.age_s >= STEADY_S
    return first.pid == last.pid and between_s >= STEADY_S


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
    return found or SlotSample(pid=None, age_s=None, sent_lsn=None, writes=0, wal_lsn=0)


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
