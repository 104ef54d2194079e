"""The source as requests ask it: :class:`cdc.operate.rereads.RereadSource` on a session with Postgres."""

from __future__ import annotations

from cdc.record.row_condition import Condition
from cdc.record.topic_names import TableName
from snapshot.later.window_read import check_condition
from snapshot.source.edges import Session
from snapshot.source.read_transaction import insert_lsn


class RequestSource:
    """The database that a request is checked against. Implements :class:`cdc.operate.rereads.RereadSource`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def insert_lsn(self) -> int:
        return insert_lsn(self._session)

    def check(self, table: TableName, wanted: Condition) -> None:
        check_condition(self._session, table, wanted)
