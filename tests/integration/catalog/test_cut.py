"""A cut of the source: certain only when every commit that may be in the log was surely visible to it."""

from __future__ import annotations

import psycopg
import pytest

from cdc.clock import SYSTEM_CLOCK
from connectors.postgres.cut import SourceCut


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
def test_h69_h93_a_transaction_that_began_last_is_waited_for_too(database: str, isolation: str) -> None:
    """The newest of all is above the xmax of a snapshot, as long as none behind it has ended: it seems not to be there.

    Its commit may be in the log, and applied in the stores, while no session sees it yet.
    """
    with psycopg.connect(database) as newest:
        newest.execute(f"set transaction isolation level {isolation}")
        newest.execute("select pg_current_xact_id()")
        source = SourceCut(
            lambda autocommit: psycopg.connect(database, autocommit=autocommit), "none", SYSTEM_CLOCK, settle_s=0.3
        )
        try:
            assert not source.cut().certain
            newest.rollback()
            assert source.cut().certain
        finally:
            source.close()
