"""Notes of the source's WAL: by them a later start knows a server that was put back (H192, H193)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import psycopg

from cdc.errors import CdcError
from cdc.ports import CompactedTopic
from cdc.settings import SourceSettings
from connectors.postgres.lineage import WITNESS_BYTES
from connectors.postgres.witnessed import ReadServer, take_witness

EVERY_S = 60.0
_FIRST_S = 1.0


class WitnessLook:
    """Notes WAL right below what the log holds: once a minute while that moves, and at the session's end.

    ``held``: the LSN up to which the log holds the source, 0 while it is not known.
    """

    def __init__(
        self, source: SourceSettings, server: ReadServer, state: CompactedTopic, held: Callable[[], int]
    ) -> None:
        self._source = source
        self._server = server
        self._state = state
        self._held = held
        self._noted_lsn = 0

    def look(self) -> float:
        """Note it if there is more than at the last call. Seconds until the next call. LogError, SourceError."""
        held = self._held()
        if held <= WITNESS_BYTES:
            return _FIRST_S
        if held > self._noted_lsn:
            own = take_witness(self._source, self._server, held)
            if own is not None:
                self._state.write([(own.key(), own.to_json())])
            self._noted_lsn = held
        return EVERY_S

    def end(self) -> None:
        """The last note. A server that does not answer any more is left alone."""
        with suppress(CdcError, psycopg.Error, OSError):
            self.look()
