"""The replication slot, made under a temporary name, then kept under its own, and the cut that it exports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import psycopg
from psycopg import pq, sql

from cdc.process.clock import Clock, readable
from cdc.process.crash_points import crash_point, declare
from cdc.process.errors import ConfigError, SlotError, SourceError
from cdc.record.position import Lsn
from snapshot.source.ports import Session, SourcePort
from snapshot.source.read_transaction import SQL, begin, first_line

# The cut: a database snapshot that every worker reads from, kept open by one session.
#
# The first one is exported by the slot's creation, so that rows and stream meet without gap or overlap. It lasts as
# long as the walsender session that made it, and no longer. The remaining chunks are then read in a plain REPEATABLE
# READ cut, at the same position, because the stream from the slot repairs the difference.

declare("cut_exported")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedCut:
    """``snapshot``: its id for SET TRANSACTION SNAPSHOT. ``lsn``: every commit it sees lies below.

    ``tx_id``: the first transaction it does not know. ``taken_us``: since 1970.
    """

    snapshot: str
    lsn: int
    tx_id: int
    taken_us: int


class CutHolder:
    """A cut and the session that holds it open."""

    def __init__(self, session: Session, cut: ExportedCut) -> None:
        self._session = session
        self.cut = cut

    @property
    def alive(self) -> bool:
        """Whether workers can still read from the cut. Sends nothing: the next command would end an export."""
        pgconn = self._session.pgconn
        try:
            while readable(pgconn.socket, 0):
                pgconn.consume_input()
                if pgconn.status != pq.ConnStatus.OK:
                    return False
                pgconn.is_busy()
        except (psycopg.Error, OSError, ValueError):
            return False
        return pgconn.status == pq.ConnStatus.OK

    def close(self) -> None:
        """End the session. Nobody can read in the cut any more."""
        self._session.close()


def hold_export(source: SourcePort, made: MadeSlot, walsender: Session) -> CutHolder:
    """The slot's own cut, kept open by the walsender session that exported it.

    Raises ValueError for a slot that was made without a snapshot.
    """
    if made.snapshot is None:
        raise ValueError("the slot was made without a snapshot")
    with source.session("cdc snapshot") as looking:
        begin(looking)
        looking.execute(SQL.composed("import_snapshot", snapshot=sql.Literal(made.snapshot)))
        seen = SQL.one(looking, "cut_time")
        looking.rollback()
    cut = ExportedCut(snapshot=made.snapshot, lsn=made.consistent_point, tx_id=seen.xmax, taken_us=seen.taken_us)
    return CutHolder(walsender, cut)


def open_cut(source: SourcePort) -> CutHolder:
    """A new cut, at the same position as the first: the stream from the slot replays what lies between.

    Raises SourceError when Postgres exports no snapshot.
    """
    session = source.session("cdc snapshot cut")
    try:
        begin(session)
        exported = SQL.one(session, "export_cut")
        seen = SQL.one(session, "cut_time")
    except psycopg.Error as error:
        session.close()
        raise SourceError(f"Postgres gives no snapshot: {first_line(error)}") from None
    crash_point("cut_exported")
    return CutHolder(
        session, ExportedCut(snapshot=exported.snapshot, lsn=exported.lsn, tx_id=seen.xmax, taken_us=seen.taken_us)
    )


declare("slot_made")

_ASK_S = 1.0
"""The pause between two looks at a wait."""
_MAKER = "cdc snapshot slot"
"""application_name of the session that makes the slot."""
_END_S = 10.0
"""The time that a session may take to end."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeSlot:
    """A slot just made. ``snapshot``: the id of the one it exported."""

    consistent_point: int
    snapshot: str | None


def making(slot: str) -> str:
    """The name under which a slot is made. It is temporary there: it goes with the session that makes it.

    >>> making("cdc_shop"), len(making("s" * 63))
    ('cdc_shop_making', 63)
    """
    return f"{slot[:56]}_making"


def make_slot(
    source: SourcePort, session: Session, slot: str, *, export: bool, lock_timeout_s: float, say: Say
) -> tuple[MadeSlot, Session]:
    """Make the slot under its temporary name. :func:`keep_slot` gives it the lasting one, once it is noted where it
    begins: so one that a killed run left is known for ours. Returns it with the walsender session, whose next command
    (or end) ends the export.

    Waits for every transaction older than itself to end, at most ``lock_timeout_s`` for each (a statement
    timeout would not stop it), and says whom it waits for. ``session``: another session, to look from. Raises
    ConfigError when the server is not set up for a slot, SlotError when one of that name is there, SourceError
    when the wait was too long. Then the server has removed the half-made slot.
    """
    walsender = source.session(_MAKER, replication=True, lock_timeout_s=lock_timeout_s)
    try:
        query = SQL.composed("create_slot" if export else "create_slot_alone", slot=sql.Identifier(making(slot)))
        waiting = _Waiting(session, walsender.info.backend_pid, lock_timeout_s, say)
        try:
            row = _run(walsender, query.as_bytes(walsender), waiting.look)
        except psycopg.Error as error:
            raise _slot_refusal(error, slot, waiting) from None
    except BaseException:
        walsender.close()
        raise
    made = MadeSlot(
        consistent_point=Lsn.parse(_text(row[1])),
        snapshot=_text(row[2]) if row[2] is not None else None,
    )
    return made, walsender


def keep_slot(session: Session, slot: str) -> None:
    """Give the slot just made its lasting name, at the same place. Raises as :func:`make_slot`."""
    try:
        session.execute(SQL.text("keep_slot"), {"making": making(slot), "slot": slot})
    except psycopg.Error as error:
        raise _slot_refusal(error, slot, None) from None
    crash_point("slot_made")


def keep_on_standbys(source: SourcePort, slot: str) -> None:
    """Let standbys keep the slot: neither a temporary one nor a copy is ever made so. ConfigError when refused."""
    with source.session(_MAKER, replication=True) as walsender:
        try:
            walsender.execute(SQL.composed("keep_on_standbys", slot=sql.Identifier(slot)))
        except psycopg.Error as error:
            raise ConfigError(
                f"the slot {slot} cannot be kept on standbys: {first_line(error)}",
                hint="set [source] failover = false, or see the server's log",
            ) from None


def remove_slot(session: Session, slot: str) -> None:
    """Drop a slot of ours that no row was read under. SlotError when it is in use, or cannot be dropped."""
    try:
        session.execute(SQL.text("drop_slot"), {"slot": slot})
    except psycopg.errors.UndefinedObject:
        return
    except psycopg.Error as error:
        raise SlotError(
            f"the slot {slot}, left by an earlier run, cannot be removed: {first_line(error)}",
            hint="end the session that uses it if nobody needs it, then run cdc snapshot again",
        ) from None


def end_making(session: Session, slot: str, clock: Clock) -> bool:
    """End the session that still makes the slot for a run that was killed. The slot goes with it.

    False when there is none. SlotError when it does not end, or when it is not ours.
    """
    deadline, holder = clock.monotonic() + _END_S, None
    while clock.monotonic() < deadline:
        found = next(iter(SQL.rows(session, "slot_holder", slot=making(slot))), None)
        if found is None:
            return holder is not None
        holder = found
        if holder.application != _MAKER:
            name = holder.application or "no application_name"
            raise SlotError(
                f"the slot {making(slot)} is in use by pid {holder.active_pid} ({name}), which is not cdc snapshot",
                hint='end that session if nobody needs it; or name another slot: [source] slot = "..."',
            )
        try:
            session.execute(SQL.text("end_session"), {"pid": holder.active_pid})
        except psycopg.errors.InsufficientPrivilege as error:
            raise SlotError(
                f"the half-made slot {making(slot)} cannot be removed: {first_line(error)}",
                hint=f"as its role, or one that may end it: select pg_terminate_backend({holder.active_pid});",
            ) from None
        clock.sleep(0.1)
    raise SlotError(
        f"the half-made slot {making(slot)} does not go: session {holder.active_pid if holder else None} does not end",
        hint="its session may wait in the kernel; end it on the server, then run cdc snapshot again",
    )


class _Waiting:
    """Logs the sessions that a session waits for, each set of them once."""

    def __init__(self, session: Session, pid: int, limit_s: float, say: Say) -> None:
        self._session = session
        self._pid = pid
        self._limit_s = limit_s
        self._say = say
        self.blockers: list[str] = []
        self.limit_s = limit_s

    def look(self) -> None:
        found = list(describe_blockers(self._session, self._pid))
        if found and found != self.blockers:
            limit = f", {self._limit_s:g} s at most" if self._limit_s else ""
            self._say(f"slot creation waits for older transactions{limit}: {', '.join(found)}")
        if found:
            self.blockers = found


def describe_blockers(session: Session, pid: int) -> Iterator[str]:
    """The sessions that a session waits for, in words a person can act on."""
    for row in SQL.rows(session, "blockers", pid=pid):
        if row.pid:
            age = f"open for {row.age_s:.0f} s" if row.age_s is not None else "since when is hidden from this role"
            yield f"pid {row.pid} ({row.name}, {row.role}, {age})"
        else:
            for prepared in SQL.rows(session, "prepared"):
                yield f'prepared transaction "{prepared.gid}" ({prepared.role}, open for {prepared.age_s:.0f} s)'


def _run(walsender: Session, query: bytes, look: Callable[[], None]) -> list[bytes | None]:
    """Run one command, looking around while it takes its time. Its only row. Psycopg's error when it fails."""
    pgconn = walsender.pgconn
    pgconn.send_query(query)
    while pgconn.is_busy():
        if readable(pgconn.socket, _ASK_S):
            pgconn.consume_input()
        else:
            look()
    result = pgconn.get_result()
    assert result is not None
    if result.status != pq.ExecStatus.TUPLES_OK:
        raise psycopg.errors.error_from_result(result)
    row = [result.get_value(0, column) for column in range(result.nfields)]
    while pgconn.get_result():
        pass
    return row


def _slot_refusal(error: psycopg.Error, slot: str, waiting: _Waiting | None) -> ConfigError | SlotError | SourceError:
    said = first_line(error)
    if isinstance(error, psycopg.errors.DuplicateObject):
        return SlotError(f"a slot {slot} is there already", hint='name another one: [source] slot = "..."')
    if isinstance(error, psycopg.errors.LockNotAvailable) and waiting is not None:
        who = f": {', '.join(waiting.blockers)}" if waiting.blockers else ""
        return SourceError(
            f"the slot {slot} could not be made in {waiting.limit_s:g} s, older transactions are still open{who}",
            hint="end them, or wait longer: [snapshot] lock_timeout; then run cdc snapshot again",
        )
    if isinstance(error, psycopg.errors.ConfigurationLimitExceeded):
        return ConfigError(
            f"no replication slot is free, and two are needed while the snapshot runs: {said}",
            hint="raise max_replication_slots and restart the server, or drop a slot that nobody needs",
        )
    if isinstance(error, psycopg.errors.ObjectNotInPrerequisiteState):
        return ConfigError(
            f"the server cannot make a logical slot: {said}",
            hint="cdc check says what to switch on, and how on this server",
        )
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return ConfigError(f"the role may not make a slot: {said}", hint="cdc check says how the right is given")
    return SourceError(f"the slot {slot} could not be made: {said}", hint="run cdc snapshot again")


def _text(value: bytes | None) -> str:
    return (value or b"").decode()
