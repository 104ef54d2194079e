"""A snapshot that knows of every transaction that had an id before it."""

from __future__ import annotations

from cdc.sql import load
from cdc.visibility import Visibility
from connectors.postgres.connections import Connection


def barrier(connection: Connection) -> Visibility:
    """The transactions visible now. Every older one that is not ended is in its list of running ones.

    A snapshot alone is not enough: its xmax is the successor of the newest *ended* transaction, so a younger one
    that has been streamed already, and waits for its standby, is in no list at all. One that takes an id of its own
    and ends puts every older id below xmax. It writes nothing and waits for nobody.
    """
    blocks = load(__package__, "barrier.sql")
    with connection.transaction(force_rollback=True):
        connection.execute(blocks["take_xid"].encode())
    row = connection.execute(blocks["see"].encode()).fetchone()
    assert row is not None
    return Visibility.parse(row[0])


def sees_all_of(connection: Connection, before: Visibility) -> bool:
    """Whether a snapshot of now sees every transaction that ``before`` (a barrier) lists as running."""
    row = connection.execute(load(__package__, "barrier.sql")["see"].encode()).fetchone()
    assert row is not None
    now = Visibility.parse(row[0])
    return all(now.sees(xid) for xid in before.running)
