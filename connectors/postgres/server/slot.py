"""The slot: whether it is the one the stores were built from, who holds it, its end, and who sees a commit already."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import psycopg
from psycopg.rows import class_row

from cdc.capture.transaction_visibility import Visibility
from cdc.process.clock import Clock
from cdc.process.errors import ActiveError, IdentityError, SlotError, SourceError
from cdc.process.sql_files import load, quote_literal
from cdc.record.position import Lsn
from cdc.record.server_facts import ServerFacts, SlotFacts
from cdc.record.state import SlotState
from connectors.postgres.server.connections import Connection, first_line, writer_lock

RUNBOOK = "cdc init --new-epoch, then cdc snapshot; see connectors/postgres/README.md, slot lost"
START_OVER = "cdc init --new-epoch, then cdc snapshot"
"""The way to begin anew where changes are missing. Topics and stores stay."""
_FIRST = "point [source] dsn at the first server"
_SUCCESSOR = (
    "if this one took its place: cdc init --accept-promotion goes on with it where it has the same history, and where "
    f"it has not: {START_OVER}"
)
_FORMER = "this may be the primary of before a failover: point [source] dsn at the server that took its place"
_SQL = "stream.sql"


@dataclass(frozen=True, slots=True, kw_only=True)
class LockHolder:
    """A session that holds the pipeline's lock. ``exclusive``: a capture, otherwise a snapshot."""

    pid: int
    application: str
    exclusive: bool


def require_same_server(server: ServerFacts, known: SlotState, where: str) -> None:
    """IdentityError when another server, timeline or database answers than the pipeline was made on."""
    faults = {
        "system identifier": (server.system_identifier, known.system_identifier),
        "timeline": (server.timeline, known.timeline),
        "database": (server.database_oid, known.database_oid),
    }
    former = server.system_identifier == known.system_identifier and server.timeline < known.timeline
    for what, (now, then) in faults.items():
        if now != then:
            raise IdentityError(
                f"Postgres at {where} has the {what} {now}, the pipeline was made on {then}: LSNs mean nothing here",
                hint=_FORMER if former else f"{_FIRST}; {_SUCCESSOR}",
            )
    if server.in_recovery:
        raise IdentityError(
            f"Postgres at {where} is a standby; the stream is read from the primary",
            hint="point [source] dsn at the primary",
        )


def require_usable(slot: SlotFacts | None, known: SlotState, position: int) -> None:
    """SlotError when the slot cannot give every change from ``position`` on.

    A slot that is ahead of what the log holds has let changes go, by whomever it was moved or re-made.
    """
    name = known.slot
    if slot is None:
        raise SlotError(f"the slot {name} does not exist any more; changes since then are lost", hint=RUNBOOK)
    if slot.plugin != "pgoutput" or slot.database != known.database:
        raise SlotError(f"the slot {name} is another one: {slot.plugin} in database {slot.database}", hint=RUNBOOK)
    if slot.wal_status == "lost" or slot.invalidation_reason is not None:
        reason = slot.invalidation_reason or "its WAL was removed"
        raise SlotError(f"the server gave up the slot {name}: {reason}", hint=RUNBOOK)
    if slot.confirmed_flush_lsn is None:
        raise SlotError(f"the slot {name} was never finished", hint="cdc snapshot makes it anew")
    require_not_ahead(slot, position)


def require_not_ahead(slot: SlotFacts, position: int) -> None:
    """SlotError when the slot stands beyond ``position``: the server would start there, silently."""
    if slot.confirmed_flush_lsn is not None and slot.confirmed_flush_lsn > position:
        raise SlotError(
            f"the slot {slot.slot} stands at {Lsn(slot.confirmed_flush_lsn)}, beyond {Lsn(position)}, up to where "
            "the log holds the source: it was advanced, or dropped and made anew",
            hint=RUNBOOK,
        )


def require_written(conn: Connection, position: int) -> int:
    """The LSN up to which the server has written its WAL. IdentityError when the log has more: the server would pass
    over all changes up to there, silently."""
    row = conn.execute(load(__package__, _SQL)["written_lsn"].encode()).fetchone()
    written_lsn = int(row[0]) if row else 0
    if position > written_lsn:
        raise IdentityError(
            f"the log says that it holds the source up to {Lsn(position)}, and the server has written no further than "
            f"{Lsn(written_lsn)}: it was set back, or somebody else wrote into the progress topic",
            hint=f"see that nobody else writes there; then {START_OVER}",
        )
    return written_lsn


def try_lock(conn: Connection, name: str) -> bool:
    """Take the pipeline's lock for this session, exclusively. False when another session holds it."""
    space, number = writer_lock(name)
    row = conn.execute(load(__package__, _SQL)["try_lock"].encode(), {"space": space, "number": number}).fetchone()
    return bool(row and row[0])


def lock_holders(conn: Connection, name: str) -> list[LockHolder]:
    """The sessions that have the pipeline's lock, this one excepted."""
    space, number = writer_lock(name)
    with conn.cursor(row_factory=class_row(LockHolder)) as cursor:
        cursor.execute(load(__package__, _SQL)["holders"].encode(), {"space": space, "number": number})
        return cursor.fetchall()


def drop_slot(conn: Connection, slot: str) -> bool:
    """Drop it. False when there is none.

    Raises ActiveError when it is in use, SourceError when Postgres refuses for another reason.
    """
    try:
        conn.execute(load(__package__, _SQL)["drop_slot"].encode(), {"slot": slot})
    except psycopg.errors.UndefinedObject:
        return False
    except psycopg.errors.ObjectInUse as error:
        raise active(slot, error.diag.message_primary or "") from None
    except psycopg.Error as error:
        raise SourceError(
            f"the slot {slot} cannot be dropped: {first_line(error)}",
            hint=f"as a role that may replicate: select pg_drop_replication_slot({quote_literal(slot)});",
        ) from None
    return True


def active(slot: str, reason: str) -> ActiveError:
    """Somebody else reads the slot. ``reason`` is the server's sentence, which names the process."""
    return ActiveError(
        f"another reader is running: {reason or f'the slot {slot} is in use'}",
        hint="stop the other capture; if none runs, its session ends after wal_sender_timeout, "
        "or end it with pg_terminate_backend",
    )


def barrier(connection: Connection) -> Visibility:
    """The transactions visible now. Every older one that is not ended is in its list of running ones.

    A snapshot alone is not enough: its xmax is the successor of the newest *ended* transaction, so a younger one
    that has been streamed already, and waits for its standby, is in no list at all. One that takes an id of its own
    and ends puts every older id below xmax. It writes nothing and waits for nobody.
    """
    blocks = load(__package__, _SQL)
    with connection.transaction(force_rollback=True):
        connection.execute(blocks["take_xid"].encode())
    row = connection.execute(blocks["see"].encode()).fetchone()
    assert row is not None
    return Visibility.parse(row[0])


def sees_all_of(connection: Connection, before: Visibility) -> bool:
    """Whether a snapshot of now sees every transaction that ``before`` (a barrier) lists as running."""
    row = connection.execute(load(__package__, _SQL)["see"].encode()).fetchone()
    assert row is not None
    now = Visibility.parse(row[0])
    return all(now.sees(xid) for xid in before.running)


_WAITS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05)


class Visible:
    """Asks on one session. ``waiting`` is called, several times a second, while the commit is not visible. May raise.

    A transaction's messages are about rows that it made itself or saw: where it is visible, they are too. With a
    synchronous standby that does not answer this takes as long as the standby does.
    """

    def __init__(self, connection: Connection, *, clock: Clock, waiting: Callable[[], None]) -> None:
        self._connection = connection
        self._clock = clock
        self._waiting = waiting

    def within(self, xid: int, timeout_s: float) -> bool:
        """Whether the transaction (64 bit) is visible, or becomes so in this time."""
        start_s, turn = self._clock.monotonic(), 0
        while not self._sees(xid):
            if self._clock.monotonic() - start_s >= timeout_s:
                return False
            self._waiting()
            self._clock.sleep(_WAITS_S[min(turn, len(_WAITS_S) - 1)])
            turn += 1
        return True

    def _sees(self, xid: int) -> bool:
        row = self._connection.execute(load(__package__, _SQL)["see"].encode()).fetchone()
        assert row is not None
        return Visibility.parse(row[0]).sees(xid)


def newest_xid(connection: Connection) -> int:
    """The next transaction id, 64 bit: what 32-bit ids of the stream are near to."""
    row = connection.execute("select pg_snapshot_xmax(pg_current_snapshot())::text").fetchone()
    assert row is not None
    return int(row[0])
