"""Taking a :class:`cdc.wal_witness.WalWitness` from a server, and comparing one with it (H193, H201, H202, H203)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import NamedTuple, TypeVar

from cdc.errors import SourceError
from cdc.lsn import Lsn
from cdc.settings import SourceSettings
from cdc.state import SlotState
from cdc.wal_witness import WalWitness
from connectors.postgres.connections import Connection, connect, describe
from connectors.postgres.failover import require_same_wal
from connectors.postgres.lineage import (
    LEAST_BYTES,
    WITNESS_BYTES,
    Lineage,
    is_filling,
    read_last_written,
    read_noted,
    read_wal,
    started,
    written_lsn,
)
from connectors.postgres.slot import require_written

_T = TypeVar("_T")
ANSWER_S = 20.0
"""The longest wait for a server's WAL."""


class ReadServer(NamedTuple):
    """The server that a session reads. ``slot``: the pipeline's there. ``started``: when the server was started, as
    :func:`connectors.postgres.lineage.started` has it. One that was put back since has WAL of its own, and a note of
    that would say that it is the source (H202). ``noted``: what was noted before the session. ``seen_lsn``: as of which
    LSN rows were read beside the stream."""

    slot: SlotState
    started: str
    noted: WalWitness | None = None
    seen_lsn: Callable[[], int] = lambda: 0


def take_witness(source: SourceSettings, server: ReadServer, held: int) -> WalWitness | None:
    """WAL right below ``held``, None where the server does not give it or another one answers.

    SourceError or ConfigError when there is no session, or no answer. Raises psycopg.Error.
    """
    slot = server.slot
    # Below the timeline's beginning another standby that was promoted there has the same.
    begun = slot.history[-1][1] if slot.history else 0
    lsn, wal = _ask(source, server, lambda walsender: _read_below(walsender, slot.timeline, held, begun), (0, ""))
    if is_filling(wal):
        end = lsn + len(wal) // 2
        lsn, wal = _ask(source, server, lambda walsender: read_last_written(walsender, slot.timeline, end), (0, ""))
    if not wal or lsn < begun:
        return None
    return WalWitness(epoch=slot.epoch, timeline=slot.timeline, lsn=lsn, wal=wal)


def _read_below(walsender: Connection, timeline: int, held: int, begun: int) -> tuple[int, str]:
    """Where the WAL right below ``held`` begins, and the WAL. Right below what is on the disk where that is less."""
    end = min(held, written_lsn(walsender))
    lsn = max(end - WITNESS_BYTES, begun)
    if end - lsn < LEAST_BYTES:
        return lsn, ""
    return lsn, read_wal(walsender, timeline, lsn, most=end - lsn) or ""


def still_has(source: SourceSettings, server: ReadServer, witness: WalWitness) -> bool:
    """Whether that server answers, and has its WAL where ``witness`` was taken, or had it removed. IdentityError when
    it has other WAL there: a machine that is put back with its memory was started when the source was (H251).

    SourceError or ConfigError when there is no session, or no answer. Raises psycopg.Error.
    """
    wal = _ask(source, server, lambda walsender: read_noted(walsender, witness), None)
    require_same_wal(Lineage([], wal or ""), witness, describe(source))
    return wal is not None


def _ask(source: SourceSettings, server: ReadServer, question: Callable[[Connection], _T], nothing: _T) -> _T:
    """Its answer by that server, ``nothing`` from another one."""
    # A process of the server that stands still heeds no timeout (H225).
    watched = partial(connect, source, turn=lambda: None, limit_s=ANSWER_S)
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


def require_witnessed(
    session: Connection,
    source: SourceSettings,
    slot: SlotState,
    witness: WalWitness | None,
    turn: Callable[[], None] = lambda: None,
) -> None:
    """IdentityError when the server of ``session`` has less WAL than was noted of the source, or another one (H203).

    ``turn``: called while an answer is waited for. SourceError or ConfigError when it does not answer.
    """
    end = witnessed_lsn(slot, witness)
    if witness is None or not end or not witness.wal:
        return
    require_written(session, end)
    watched = partial(connect, source, turn=turn, limit_s=ANSWER_S)
    with closing(watched(application_name="cdc noted wal", replication=True)) as walsender:
        wal = read_noted(walsender, witness)
    if wal is None:
        # Written, and not on its disk yet. Passed over, a server that was put back would be gone on with (H248).
        raise SourceError(f"Postgres at {describe(source)} does not have its WAL up to {Lsn(end)} on its disk yet")
    require_same_wal(Lineage([], wal), witness, describe(source))
