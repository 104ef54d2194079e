"""Taking a :class:`cdc.wal_witness.WalWitness` from a server, and comparing one with it (H193, H201, H202, H203)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import NamedTuple, TypeVar

from cdc.settings import SourceSettings
from cdc.state import SlotState
from cdc.wal_witness import WalWitness
from connectors.postgres.connections import Connection, connect, describe
from connectors.postgres.failover import require_same_wal
from connectors.postgres.lineage import (
    WITNESS_BYTES,
    Lineage,
    is_filling,
    read_last_written,
    read_wal,
    started,
)
from connectors.postgres.slot import require_written

_T = TypeVar("_T")
_ANSWER_S = 20.0


class ReadServer(NamedTuple):
    """The server that a session reads. ``slot``: the pipeline's there. ``started``: when the server was started, as
    :func:`connectors.postgres.lineage.started` has it. One that was put back since has WAL of its own, and a note of
    that would say that it is the source (H202)."""

    slot: SlotState
    started: str


def take_witness(source: SourceSettings, server: ReadServer, held: int) -> WalWitness | None:
    """WAL right below ``held``, None where the server does not give it or another one answers.

    SourceError or ConfigError when there is no session. Raises psycopg.Error.
    """
    slot, lsn = server.slot, held - WITNESS_BYTES
    wal = _ask(source, server, lambda walsender: read_wal(walsender, slot.timeline, lsn), "")
    if is_filling(wal):
        lsn, wal = _ask(source, server, lambda walsender: read_last_written(walsender, slot.timeline, held), (0, ""))
    # Below the timeline's beginning another standby that was promoted there has the same.
    if not wal or lsn < (slot.history[-1][1] if slot.history else 0):
        return None
    return WalWitness(epoch=slot.epoch, timeline=slot.timeline, lsn=lsn, wal=wal)


def _ask(source: SourceSettings, server: ReadServer, question: Callable[[Connection], _T], nothing: _T) -> _T:
    """Its answer by that server, ``nothing`` from another one."""
    # A process of the server that stands still heeds no timeout (H225).
    watched = partial(connect, source, turn=lambda: None, limit_s=_ANSWER_S)
    with closing(watched(application_name="cdc capture wal", replication=True)) as walsender:
        row = walsender.execute("IDENTIFY_SYSTEM").fetchone()
        if row is None or (row[0], row[1]) != (server.slot.system_identifier, server.slot.timeline):
            return nothing
        return question(walsender) if started(walsender) == server.started else nothing


def witnessed_lsn(slot: SlotState, witness: WalWitness | None) -> int:
    """Up to where the server of ``slot`` must have written its WAL, by what was noted of it. 0 for nothing noted."""
    if witness is None or (witness.epoch, witness.timeline) != (slot.epoch, slot.timeline):
        return 0
    return witness.lsn + len(witness.wal) // 2


def require_witnessed(session: Connection, source: SourceSettings, slot: SlotState, witness: WalWitness | None) -> None:
    """IdentityError when the server of ``session`` has less WAL than was noted of the source, or another one (H203).

    SourceError or ConfigError when it does not answer.
    """
    end = witnessed_lsn(slot, witness)
    if witness is None or not end:
        return
    require_written(session, end)
    with closing(connect(source, application_name="cdc snapshot wal", replication=True)) as walsender:
        wal = read_wal(walsender, slot.timeline, witness.lsn)
    require_same_wal(Lineage([], wal), witness, describe(source))
