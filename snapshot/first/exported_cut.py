"""The cut: a database snapshot that every worker reads from, kept open by one session.

The first one is exported by the slot's creation, so that rows and stream meet without gap or overlap. It lasts as
long as the walsender session that made it, and no longer. The remaining chunks are then read in a plain
REPEATABLE READ cut, at the same position, because the stream from the slot repairs the difference.
"""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
from psycopg import pq, sql

from cdc.crash import crash_point, declare
from cdc.errors import SourceError
from cdc.readable import readable
from snapshot.edges import Session, SourcePort
from snapshot.first.slot_creation import MadeSlot
from snapshot.queries import Queries, first_line
from snapshot.read_transaction import begin

declare("cut_exported")

_SQL = Queries(__package__)


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
        looking.execute(_SQL.composed("import_snapshot", snapshot=sql.Literal(made.snapshot)))
        seen = _SQL.one(looking, "cut_time")
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
        exported = _SQL.one(session, "export_cut")
        seen = _SQL.one(session, "cut_time")
    except psycopg.Error as error:
        session.close()
        raise SourceError(f"Postgres gives no snapshot: {first_line(error)}") from None
    crash_point("cut_exported")
    return CutHolder(
        session, ExportedCut(snapshot=exported.snapshot, lsn=exported.lsn, tx_id=seen.xmax, taken_us=seen.taken_us)
    )
