"""What ``cdc drop`` removes on the source: :class:`cdc.drop.ports.Source` on Postgres."""

from __future__ import annotations

from contextlib import AbstractContextManager

from cdc.checks.facts import ServerFacts, SlotFacts
from connectors.postgres.facts import read_server, read_slot
from connectors.postgres.publication import drop_publication
from connectors.postgres.session import Connection
from connectors.postgres.slot import drop_slot


class DroppedSource:
    """Slot and publication of one pipeline, in an open session."""

    def __init__(self, session: Connection, *, slot: str, publication: str) -> None:
        self._session = session
        self._slot = slot
        self._publication = publication

    def server(self) -> ServerFacts:
        return read_server(self._session)

    def slot(self) -> SlotFacts | None:
        return read_slot(self._session, self._slot)

    def transaction(self) -> AbstractContextManager[object]:
        return self._session.transaction()

    def drop_publication(self) -> bool:
        return drop_publication(self._session, self._publication)

    def drop_slot(self) -> bool:
        return drop_slot(self._session, self._slot)
