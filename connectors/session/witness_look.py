"""Notes of the source's WAL: by them a later start knows a server that was put back (H192, H193)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial

import psycopg

from cdc.errors import CdcError
from cdc.ports import CompactedTopic
from cdc.settings import SourceSettings
from cdc.state import SlotState
from cdc.wal_witness import WalWitness
from connectors.postgres.connections import connect
from connectors.postgres.lineage import WITNESS_BYTES, read_wal

EVERY_S = 60.0
_FIRST_S = 1.0
_ANSWER_S = 20.0


class WitnessLook:
    """Notes WAL right below what the log holds: once a minute while that moves, and at the session's end.

    ``held``: the LSN up to which the log holds the source, 0 while it is not known. ``slot``: the pipeline's.
    """

    def __init__(self, source: SourceSettings, slot: SlotState, state: CompactedTopic, held: Callable[[], int]) -> None:
        self._source = source
        self._slot = slot
        self._state = state
        self._held = held
        self._noted_lsn = 0

    def look(self) -> float:
        """Note it if there is more than at the last call. Seconds until the next call. LogError, SourceError."""
        lsn = self._held() - WITNESS_BYTES
        if lsn <= 0:
            return _FIRST_S
        if lsn > self._noted_lsn:
            wal = self._read(lsn)
            if wal:
                own = WalWitness(epoch=self._slot.epoch, timeline=self._slot.timeline, lsn=lsn, wal=wal)
                self._state.write([(own.key(), own.to_json())])
            self._noted_lsn = lsn
        return EVERY_S

    def end(self) -> None:
        """The last note. A server that does not answer any more is left alone."""
        with suppress(CdcError, psycopg.Error, OSError):
            self.look()

    def _read(self, lsn: int) -> str:
        session = partial(connect, self._source, application_name="cdc capture wal", replication=True)
        with closing(session(turn=lambda: None, limit_s=_ANSWER_S)) as walsender:
            row = walsender.execute("IDENTIFY_SYSTEM").fetchone()
            if row is None or (row[0], row[1]) != (self._slot.system_identifier, self._slot.timeline):
                return ""
            return read_wal(walsender, self._slot.timeline, lsn)
