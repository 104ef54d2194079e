"""The source as requests ask it: :class:`cdc.rereads.ports.RereadSource` on a session with Postgres."""

from __future__ import annotations

from cdc.condition import Condition
from cdc.topic import TableName
from snapshot.edges import Session
from snapshot.later.window_read import check_condition
from snapshot.read_transaction import insert_lsn


class RequestSource:
    """The database that a request is checked against. Implements :class:`cdc.rereads.ports.RereadSource`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def insert_lsn(self) -> int:
        return insert_lsn(self._session)

    def check(self, table: TableName, wanted: Condition) -> None:
        check_condition(self._session, table, wanted)
