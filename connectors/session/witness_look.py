"""Notes of the source's WAL: by them a later start knows a server that was put back (H192, H193)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import psycopg

from cdc.errors import CdcError, IdentityError
from cdc.ports import CompactedTopic
from cdc.settings import SourceSettings
from connectors.postgres.lineage import WITNESS_BYTES
from connectors.postgres.witnessed import ReadServer, still_has, take_witness, witnessed_lsn

EVERY_S = 60.0
_FIRST_S = 1.0


class WitnessLook:
    """Notes WAL right below what the log holds: once a minute while that moves, and at the session's end.

    ``held``: the LSN up to which the log holds the source, 0 while it is not known. Nothing is noted below what was
    noted before: a first snapshot reaches beyond where its capture begins (H246). ``fault``: called when the server has
    other WAL than was noted.
    """

    def __init__(
        self,
        source: SourceSettings,
        server: ReadServer,
        state: CompactedTopic,
        held: Callable[[], int],
        fault: Callable[[IdentityError], None],
    ) -> None:
        self._source = source
        self._server = server
        self._state = state
        self._held = held
        self._fault = fault
        self._noted_lsn = witnessed_lsn(server.slot, server.noted)
        self._noted = server.noted if self._noted_lsn else None

    def look(self) -> float:
        """Note it if there is more than at the last call. Seconds until the next call. LogError, SourceError."""
        held = max(self._held(), self._server.seen_lsn())
        if held <= WITNESS_BYTES:
            return _FIRST_S
        if held > self._noted_lsn:
            try:
                self._note(held)
            except IdentityError as other:
                self._fault(other)
        return EVERY_S

    def end(self) -> None:
        """The last note. A server that does not answer any more is left alone."""
        with suppress(CdcError, psycopg.Error, OSError):
            self.look()

    def _note(self, held: int) -> None:
        own = take_witness(self._source, self._server, held)
        # Asked behind it: a server that has the later WAL has written the earlier one, too.
        if own is None or (self._noted is not None and not still_has(self._source, self._server, self._noted)):
            return
        if own != self._noted:
            self._state.write([(own.key(), own.to_json())])
        # Where less was on the disk, the rest is noted at a later call.
        self._noted, self._noted_lsn = own, min(held, own.lsn + len(own.wal) // 2)
