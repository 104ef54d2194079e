"""Notes of the source's WAL: by them a later start knows a server that was put back (H192, H193, H201, H202)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from typing import NamedTuple, TypeVar

import psycopg

from cdc.errors import CdcError
from cdc.ports import CompactedTopic
from cdc.settings import SourceSettings
from cdc.state import SlotState
from cdc.wal_witness import WalWitness
from connectors.postgres.connections import Connection, connect
from connectors.postgres.lineage import WITNESS_BYTES, is_filling, read_last_written, read_wal, started

EVERY_S = 60.0
_FIRST_S = 1.0
_T = TypeVar("_T")


class ReadServer(NamedTuple):
    """The server that a session reads. ``slot``: the pipeline's there. ``started``: when the server was started, as
    :func:`connectors.postgres.lineage.started` has it. One that was put back since has WAL of its own, and a note of
    that would say that it is the source (H202)."""

    slot: SlotState
    started: str


class WitnessLook:
    """Notes WAL right below what the log holds: once a minute while that moves, and at the session's end.

    ``held``: the LSN up to which the log holds the source, 0 while it is not known.
    """

    def __init__(
        self, source: SourceSettings, server: ReadServer, state: CompactedTopic, held: Callable[[], int]
    ) -> None:
        self._source = source
        self._slot = slot = server.slot
        self._started = server.started
        self._state = state
        self._held = held
        self._begun = slot.history[-1][1] if slot.history else 0
        self._noted_lsn = 0

    def look(self) -> float:
        """Note it if there is more than at the last call. Seconds until the next call. LogError, SourceError."""
        held = self._held()
        if held <= WITNESS_BYTES:
            return _FIRST_S
        if held > self._noted_lsn:
            own = self._read(held)
            if own is not None:
                self._state.write([(own.key(), own.to_json())])
            self._noted_lsn = held
        return EVERY_S

    def end(self) -> None:
        """The last note. A server that does not answer any more is left alone."""
        with suppress(CdcError, psycopg.Error, OSError):
            self.look()

    def _read(self, held: int) -> WalWitness | None:
        """What is to be noted, None where the server does not give it."""
        lsn = held - WITNESS_BYTES
        wal = self._ask(lambda walsender: read_wal(walsender, self._slot.timeline, lsn), "")
        if is_filling(wal):
            lsn, wal = self._ask(lambda walsender: read_last_written(walsender, self._slot.timeline, held), (0, ""))
        # Below the timeline's beginning another standby that was promoted there has the same.
        if not wal or lsn < self._begun:
            return None
        return WalWitness(epoch=self._slot.epoch, timeline=self._slot.timeline, lsn=lsn, wal=wal)

    def _ask(self, question: Callable[[Connection], _T], nothing: _T) -> _T:
        """Its answer by the session's own server, ``nothing`` from another one."""
        with closing(connect(self._source, application_name="cdc capture wal", replication=True)) as walsender:
            row = walsender.execute("IDENTIFY_SYSTEM").fetchone()
            if row is None or (row[0], row[1]) != (self._slot.system_identifier, self._slot.timeline):
                return nothing
            return question(walsender) if started(walsender) == self._started else nothing
