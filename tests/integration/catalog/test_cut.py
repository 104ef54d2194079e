"""A cut of the source: certain only when every commit that may be in the log was surely visible to it."""

from __future__ import annotations

import psycopg
import pytest

from cdc.process.clock import SYSTEM_CLOCK
from cdc.settings.mask_rules import NO_MASKS
from connectors.postgres.server.cut_reader import SourceCut


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
def test_h69_h93_a_transaction_that_began_last_is_waited_for_too(database: str, isolation: str) -> None:
    """The newest of all is above the xmax of a snapshot, as long as none behind it has ended: it seems not to be there.

    Its commit may be in the log, and applied in the stores, while no session sees it yet.
    """
    with psycopg.connect(database) as newest:
        newest.execute(f"set transaction isolation level {isolation}")
        newest.execute("select pg_current_xact_id()")
        source = SourceCut(
            lambda autocommit: psycopg.connect(database, autocommit=autocommit),
            "none",
            SYSTEM_CLOCK,
            settle_s=0.3,
            masks=NO_MASKS,
        )
        try:
            assert not source.cut().certain
            newest.rollback()
            assert source.cut().certain
        finally:
            source.close()


class CommitsMeanwhile:
    """A clock at whose first sleep a transaction ends and another one commits."""

    def __init__(self, dsn: str, waited_for: psycopg.Connection) -> None:
        self._dsn = dsn
        self._waited_for = waited_for
        self.lsn = 0

    def monotonic(self) -> float:
        return SYSTEM_CLOCK.monotonic()

    def now_ns(self) -> int:
        return SYSTEM_CLOCK.now_ns()

    def sleep(self, duration_s: float) -> None:
        if not self.lsn:
            with psycopg.connect(self._dsn, autocommit=True) as other:
                found = other.execute("select pg_logical_emit_message(true, 'late', '') - '0/0'").fetchone()
                assert found is not None
                self.lsn = int(found[0])
            self._waited_for.rollback()
        SYSTEM_CLOCK.sleep(duration_s)


def test_h93_commits_while_a_cut_waits_are_not_surely_in_it(database: str) -> None:
    """The wait proves that each commit before it is visible, and of later ones nothing."""
    with psycopg.connect(database) as newest:
        newest.execute("select pg_current_xact_id()")
        clock = CommitsMeanwhile(database, newest)
        source = SourceCut(
            lambda autocommit: psycopg.connect(database, autocommit=autocommit), "none", clock, masks=NO_MASKS
        )
        try:
            cut = source.cut()
        finally:
            source.close()
    assert cut.certain
    assert cut.settled < clock.lsn <= cut.fence
